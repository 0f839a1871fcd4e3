//! The C interface of erase blocks for applications: what `include/diecut.h` promises, over [`diecut_blockspace`].
//!
//! Place in the flow: in the process of an application, between its C (or C++, or any) code and the Rust client, which
//! speaks with the server over rings in shared memory.
//!
//! Invariants:
//! - The header is the contract; `tests/header.rs` compares every prototype, structure and code in it with this crate.
//! - No panic crosses the border ([`failure::guard`]), and no argument that the header does not forbid is undefined
//!   behaviour: pointers that may not be NULL are checked for it.
//! - Handles are boxes that C code holds; what they share (the client, an embedded device) is counted.
//!
//! What it does not know: anything of the server but its client library.

#![deny(clippy::unwrap_used)]

pub mod failure;

use diecut_blockspace::embedded::Embedded;
use diecut_blockspace::{Attach, Client, LogicalBlock, Purpose, SharedTicket, UnitIndex};
use failure::{Failure, guard};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::Arc;

/// `DIECUT_ABI_VERSION`.
pub const ABI_VERSION: u32 = 1;

/// `diecut_client`. What is attached goes before the device it is attached to.
pub struct DiecutClient {
    client: Arc<Client>,
    device: Option<Arc<Embedded>>,
}

/// `diecut_operation`. Its client goes before the device, as above.
pub struct DiecutOperation {
    ticket: SharedTicket,
    /// Bytes of a read; of an append 0.
    read_bytes: usize,
    device: Option<Arc<Embedded>>,
}

/// `diecut_embedded`.
pub struct DiecutEmbedded {
    device: Arc<Embedded>,
}

/// `diecut_block`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiecutBlock {
    /// See `diecut.h`.
    pub unit: u16,
    /// 0.
    pub reserved: u16,
    /// See `diecut.h`.
    pub index: u32,
}

/// `diecut_shape`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "see diecut.h")]
pub struct DiecutShape {
    pub block_size_bytes: u64,
    pub append_unit_bytes: u64,
    pub read_unit_bytes: u64,
    pub append_max_bytes: u64,
    pub read_max_bytes: u64,
    pub page_size_bytes: u32,
    pub unsafe_units: u32,
    pub units: u32,
    pub reserved: u32,
}

/// `diecut_held_block`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "see diecut.h")]
pub struct DiecutHeldBlock {
    pub block: DiecutBlock,
    pub purpose: u32,
    pub written_pages: u32,
    pub allocation_sequence: u64,
}

impl DiecutBlock {
    fn name(self) -> Result<LogicalBlock, Failure> {
        if self.reserved != 0 {
            return Err(Failure::argument("the reserved field of a block is not 0"));
        }
        Ok(LogicalBlock { unit: UnitIndex(self.unit), index: self.index })
    }
}

impl From<LogicalBlock> for DiecutBlock {
    fn from(block: LogicalBlock) -> DiecutBlock {
        DiecutBlock { unit: block.unit.0, reserved: 0, index: block.index }
    }
}

fn there<T>(pointer: Option<T>, name: &str) -> Result<T, Failure> {
    pointer.ok_or_else(|| Failure::argument(&format!("{name} is NULL")))
}

fn tell<T>(place: Option<&mut MaybeUninit<T>>, value: T) {
    if let Some(place) = place {
        place.write(value);
    }
}

/// # Safety
/// `text` is NULL or a string with an end that lives as long as the result is used.
unsafe fn string<'a>(text: *const c_char, name: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::argument(&format!("{name} is NULL")));
    }
    // SAFETY: promised by the caller.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::argument(&format!("{name} is not UTF-8")))
}

/// # Safety
/// `first` is NULL or the first of `count` elements that live, unchanged by others, as long as the result is used.
unsafe fn slice<'a, T>(first: *const T, count: usize, name: &str) -> Result<&'a [T], Failure> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::argument(&format!("{name} is NULL"))),
        // SAFETY: promised by the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// # Safety
/// As [`slice`], and the elements may be written to. Bytes of C code are bytes, whether it has written them before or not.
unsafe fn slice_mut<'a, T>(first: *mut T, count: usize, name: &str) -> Result<&'a mut [T], Failure> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Failure::argument(&format!("{name} is NULL"))),
        // SAFETY: promised by the caller.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(first, count) }),
    }
}

#[unsafe(no_mangle)]
extern "C" fn diecut_abi_version() -> u32 {
    ABI_VERSION
}

#[unsafe(no_mangle)]
extern "C" fn diecut_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
extern "C" fn diecut_error_text() -> *const c_char {
    failure::text()
}

#[unsafe(no_mangle)]
extern "C" fn diecut_code_text(code: c_int) -> *const c_char {
    failure::text_of(code).as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_attach(
    socket: *const c_char,
    vssd: *const c_char,
    client: Option<&mut MaybeUninit<Box<DiecutClient>>>,
) -> c_int {
    guard(|| {
        let client = there(client, "client")?;
        // SAFETY: strings, says the header.
        let (socket, vssd) = unsafe { (string(socket, "socket")?, string(vssd, "vssd")?) };
        let attached = Client::attach(Attach { socket: Path::new(socket), vssd })?;
        client.write(Box::new(DiecutClient { client: Arc::new(attached), device: None }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_attach_keeping(
    socket: *const c_char,
    vssd: *const c_char,
    blocks: *const DiecutBlock,
    count: usize,
    client: Option<&mut MaybeUninit<Box<DiecutClient>>>,
) -> c_int {
    guard(|| {
        let client = there(client, "client")?;
        // SAFETY: strings and an array of `count`, says the header.
        let (socket, vssd) = unsafe { (string(socket, "socket")?, string(vssd, "vssd")?) };
        // SAFETY: same.
        let blocks = unsafe { slice(blocks, count, "blocks")? };
        let names = blocks.iter().map(|block| block.name()).collect::<Result<Vec<_>, _>>()?;
        let attached = Client::attach(Attach { socket: Path::new(socket), vssd })?;
        attached.keep(&names)?;
        client.write(Box::new(DiecutClient { client: Arc::new(attached), device: None }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_detach(client: Option<Box<DiecutClient>>) {
    guard(|| {
        drop(client);
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_get_shape(
    client: Option<&DiecutClient>,
    shape: *mut DiecutShape,
    size: usize,
) -> c_int {
    guard(|| {
        let client = &there(client, "client")?.client;
        if shape.is_null() {
            return Err(Failure::argument("shape is NULL"));
        }
        let known = client.shape();
        let own = DiecutShape {
            block_size_bytes: known.block_size_bytes(),
            append_unit_bytes: known.unit_of_append_bytes().into(),
            read_unit_bytes: READ_UNIT_BYTES,
            append_max_bytes: client.append_max_bytes() as u64,
            read_max_bytes: client.read_max_bytes() as u64,
            page_size_bytes: known.page_size_bytes,
            unsafe_units: known.unsafe_units,
            units: known.units.into(),
            reserved: 0,
        };
        if size > size_of::<DiecutShape>() {
            return Err(Failure::argument("the caller knows more fields than the library"));
        }
        // SAFETY: the caller's structure has `size` bytes, and ours not fewer.
        unsafe { std::ptr::copy_nonoverlapping((&raw const own).cast::<u8>(), shape.cast::<u8>(), size) };
        Ok(())
    })
}

/// An IU.
const READ_UNIT_BYTES: u64 = 4096;

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_held_blocks(
    client: Option<&DiecutClient>,
    blocks: *mut DiecutHeldBlock,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> c_int {
    guard(|| {
        let client = &there(client, "client")?.client;
        let count = there(count, "count")?;
        // SAFETY: an array of `capacity`, says the header.
        let blocks = unsafe { slice_mut(blocks, capacity, "blocks")? };
        let held = client.held_blocks()?;
        count.write(held.len());
        for (place, record) in blocks.iter_mut().zip(&held) {
            *place = DiecutHeldBlock {
                block: record.block.into(),
                purpose: record.purpose.into(),
                written_pages: record.written_pages,
                allocation_sequence: record.allocation_sequence,
            };
        }
        if held.len() > capacity {
            return Err(Failure::too_small(format!("{} erase blocks are held", held.len())));
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_keep(
    client: Option<&DiecutClient>,
    blocks: *const DiecutBlock,
    count: usize,
    freed: Option<&mut MaybeUninit<u32>>,
) -> c_int {
    guard(|| {
        let client = &there(client, "client")?.client;
        // SAFETY: an array of `count`, says the header.
        let blocks = unsafe { slice(blocks, count, "blocks")? };
        let names = blocks.iter().map(|block| block.name()).collect::<Result<Vec<_>, _>>()?;
        tell(freed, client.keep(&names)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_allocate(
    client: Option<&DiecutClient>,
    unit: u32,
    purpose: u32,
    block: Option<&mut MaybeUninit<DiecutBlock>>,
) -> c_int {
    guard(|| {
        let client = &there(client, "client")?.client;
        let block = there(block, "block")?;
        let purpose = u8::try_from(purpose).map_err(|_| Failure::argument("purpose is above 255"))?;
        let unit = unit_index(unit)?;
        block.write(client.allocate(unit, Purpose(purpose))?.into());
        Ok(())
    })
}

fn unit_index(unit: u32) -> Result<UnitIndex, Failure> {
    u16::try_from(unit).map(UnitIndex).map_err(|_| Failure::argument("there is no such unit"))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_append(
    client: Option<&DiecutClient>,
    block: DiecutBlock,
    bytes: *const c_void,
    length: usize,
    offset: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let client = &there(client, "client")?.client;
        // SAFETY: `length` bytes, says the header.
        let bytes = unsafe { slice(bytes.cast::<u8>(), length, "bytes")? };
        tell(offset, client.append(block.name()?, bytes)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_read(
    client: Option<&DiecutClient>,
    block: DiecutBlock,
    offset: u64,
    bytes: *mut c_void,
    length: usize,
) -> c_int {
    guard(|| {
        let client = &there(client, "client")?.client;
        // SAFETY: `length` bytes, says the header.
        let bytes = unsafe { slice_mut(bytes.cast::<u8>(), length, "bytes")? };
        Ok(client.read(block.name()?, offset, bytes)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_free(client: Option<&DiecutClient>, block: DiecutBlock) -> c_int {
    guard(|| Ok(there(client, "client")?.client.free(block.name()?)?))
}

#[unsafe(no_mangle)]
extern "C" fn diecut_sync(client: Option<&DiecutClient>) -> c_int {
    guard(|| Ok(there(client, "client")?.client.sync()?))
}

#[unsafe(no_mangle)]
extern "C" fn diecut_unit_blocks(
    client: Option<&DiecutClient>,
    unit: u32,
    free_blocks: Option<&mut MaybeUninit<u32>>,
    all_blocks: Option<&mut MaybeUninit<u32>>,
) -> c_int {
    guard(|| {
        let (free, all) = there(client, "client")?.client.blocks_of_unit(unit_index(unit)?)?;
        tell(free_blocks, free);
        tell(all_blocks, all);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_begin_append(
    client: Option<&DiecutClient>,
    block: DiecutBlock,
    bytes: *const c_void,
    length: usize,
    operation: Option<&mut MaybeUninit<Box<DiecutOperation>>>,
) -> c_int {
    guard(|| {
        let client = there(client, "client")?;
        let operation = there(operation, "operation")?;
        // SAFETY: `length` bytes, says the header.
        let bytes = unsafe { slice(bytes.cast::<u8>(), length, "bytes")? };
        let ticket = client.client.begin_append_shared(block.name()?, bytes)?;
        operation.write(Box::new(DiecutOperation { ticket, read_bytes: 0, device: client.device.clone() }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_begin_read(
    client: Option<&DiecutClient>,
    block: DiecutBlock,
    offset: u64,
    length: usize,
    operation: Option<&mut MaybeUninit<Box<DiecutOperation>>>,
) -> c_int {
    guard(|| {
        let client = there(client, "client")?;
        let operation = there(operation, "operation")?;
        let ticket = client.client.begin_read_shared(block.name()?, offset, length)?;
        let device = client.device.clone();
        operation.write(Box::new(DiecutOperation { ticket, read_bytes: length, device }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_poll(operation: Option<&DiecutOperation>) -> c_int {
    let mut over = true;
    guard(|| {
        over = operation.is_none_or(|operation| operation.ticket.poll());
        Ok(())
    });
    over.into()
}

#[unsafe(no_mangle)]
extern "C" fn diecut_finish_append(
    operation: Option<Box<DiecutOperation>>,
    offset: Option<&mut MaybeUninit<u64>>,
) -> c_int {
    guard(|| {
        let DiecutOperation { ticket, device, .. } = *there(operation, "operation")?;
        let outcome = ticket.wait();
        // Its last handle waits until its clients are gone.
        drop(device);
        tell(offset, outcome?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_finish_read(
    operation: Option<Box<DiecutOperation>>,
    bytes: *mut c_void,
    length: usize,
) -> c_int {
    guard(|| {
        let operation = there(operation, "operation")?;
        // SAFETY: `length` bytes, says the header.
        let bytes = unsafe { slice_mut(bytes.cast::<u8>(), length, "bytes")? };
        if length > operation.read_bytes || !length.is_multiple_of(8) {
            return Err(Failure::argument("more bytes than the read asked for, or not a multiple of 8"));
        }
        let DiecutOperation { ticket, device, .. } = *operation;
        let outcome = ticket.wait_for(bytes);
        // Its last handle waits until its clients are gone.
        drop(device);
        Ok(outcome?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_forget(operation: Option<Box<DiecutOperation>>) {
    guard(|| {
        drop(operation);
        Ok(())
    });
}

#[unsafe(no_mangle)]
unsafe extern "C" fn diecut_embedded_create(
    profile: *const c_char,
    embedded: Option<&mut MaybeUninit<Box<DiecutEmbedded>>>,
) -> c_int {
    guard(|| {
        let embedded = there(embedded, "embedded")?;
        // SAFETY: a string, says the header.
        let profile = unsafe { string(profile, "profile")? };
        embedded.write(Box::new(DiecutEmbedded { device: Arc::new(Embedded::new(profile)?) }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_embedded_attach(
    embedded: Option<&DiecutEmbedded>,
    client: Option<&mut MaybeUninit<Box<DiecutClient>>>,
) -> c_int {
    guard(|| {
        let device = Arc::clone(&there(embedded, "embedded")?.device);
        let client = there(client, "client")?;
        let attached = Arc::new(device.attach()?);
        client.write(Box::new(DiecutClient { client: attached, device: Some(device) }));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn diecut_embedded_destroy(embedded: Option<Box<DiecutEmbedded>>) {
    guard(|| {
        drop(embedded);
        Ok(())
    });
}
