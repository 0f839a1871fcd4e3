//! For applications: attach to a vSSD and use its erase blocks, from as many threads as they like.
//!
//! A blocking call waits on a futex in its own thread. [`Client::begin_append`] and [`Client::begin_read`] start an
//! operation and return at once; [`Ticket::poll`] asks for it, [`Ticket::wait`] waits.

use crate::ring::{Bell, ClientEnd, Layout, Words};
use crate::system;
use crate::wire::{
    Completion, HELD_SIZE_BYTES, HELLO_SIZE_BYTES, HeldRecord, Hello, NAME_SIZE_BYTES, Opcode, Shape, Status,
    Submission, VERSION, WELCOME_SIZE_BYTES, Welcome, encode_name,
};
use diecut_units::{IU_SIZE_BYTES, sync::Ordering};
use diecut_vssd::{LogicalBlock, Purpose, UnitIndex};
use std::io::{self, Write};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long a waiting thread sleeps before it looks whether the server is still there.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// Why an operation did not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// The server says no.
    #[error("{}", .0.text())]
    Status(Status),
    /// The server is gone; attach again when it is back.
    #[error("the server is gone")]
    ServerGone,
}

/// Why a vSSD cannot be attached to.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The server says no, and why.
    #[error("{message}")]
    Refused {
        /// The reason, for programs.
        status: Status,
        /// The reason, for people.
        message: String,
    },
    /// The socket, or shared memory.
    #[error("cannot attach: {0}; is the server running, and is this its socket?")]
    System(#[from] io::Error),
    /// The other end speaks another language.
    #[error("the other end of the socket is no diecut server of this version")]
    NoServer,
}

/// Where a vSSD is served.
#[derive(Clone, Copy, Debug)]
pub struct Attach<'a> {
    /// The server's socket, `blocks.sock` in its data folder.
    pub socket: &'a Path,
    /// Name of the vSSD.
    pub vssd: &'a str,
}

#[derive(Clone, Copy)]
enum Place {
    Free,
    Waiting,
    Answered(Completion),
    /// Nobody waits any more.
    Abandoned,
}

struct State {
    end: ClientEnd,
    /// One for each entry; it has the slot of its number.
    places: Vec<Place>,
    free: Vec<u32>,
    gone: bool,
}

/// A vSSD that this process holds until it drops this.
pub struct Client {
    state: Mutex<State>,
    bell: Bell,
    doorbell: OwnedFd,
    /// Without one: the embedded mode, where the server cannot die alone.
    socket: Option<UnixStream>,
    shape: Shape,
    slot_size_bytes: u32,
}

/// An operation under way. Dropped, its answer is thrown away. It borrows the client, or shares it ([`SharedTicket`]).
#[must_use]
pub struct Ticket<C: Deref<Target = Client>> {
    client: C,
    place: u32,
    is_over: bool,
}

/// An operation under way that keeps its client alive.
pub type SharedTicket = Ticket<Arc<Client>>;

impl Client {
    /// Attaches. What to keep must be said with [`Client::keep`] before anything is changed.
    ///
    /// # Errors
    /// See [`AttachError`].
    pub fn attach(attach: Attach<'_>) -> Result<Client, AttachError> {
        let mut socket = UnixStream::connect(attach.socket)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let hello = Hello { version: VERSION, vssd: attach.vssd.to_owned() };
        let refused = || AttachError::Refused {
            status: Status::Refused,
            message: format!("\"{}\" is too long for the name of a vSSD", attach.vssd),
        };
        let hello: [u8; HELLO_SIZE_BYTES] = hello.encode().ok_or_else(refused)?;
        socket.write_all(&hello)?;
        let mut bytes = [0; WELCOME_SIZE_BYTES];
        let (mut len, mut descriptors) = (0, Vec::new());
        while len < bytes.len() {
            let (more, with) = system::receive_with(&socket, &mut bytes[len..])?;
            if more == 0 {
                return Err(AttachError::NoServer);
            }
            len += more;
            descriptors.extend(with);
        }
        let welcome = Welcome::decode(&bytes).ok_or(AttachError::NoServer)?;
        if welcome.status != Status::Done {
            return Err(AttachError::Refused { status: welcome.status, message: welcome.message });
        }
        let layout = Layout {
            entries: welcome.entries,
            slots: welcome.slots,
            slot_size_bytes: welcome.slot_size_bytes,
        };
        let [memory, doorbell] = <[OwnedFd; 2]>::try_from(descriptors).map_err(|_| AttachError::NoServer)?;
        if !layout.is_sound() || layout.slots < layout.entries {
            return Err(AttachError::NoServer);
        }
        let words = system::map_memory(&memory, layout.size_bytes())?;
        Client::over(words, layout, welcome.shape, doorbell, Some(socket))
    }

    pub(crate) fn over(
        words: Words,
        layout: Layout,
        shape: Shape,
        doorbell: OwnedFd,
        socket: Option<UnixStream>,
    ) -> Result<Client, AttachError> {
        let end = ClientEnd::new(words, layout);
        if !end.is_server() {
            return Err(AttachError::NoServer);
        }
        let bell = Bell::of(&end);
        let places = vec![Place::Free; layout.entries as usize];
        let free = (0..layout.entries).rev().collect();
        let state = Mutex::new(State { end, places, free, gone: false });
        let slot_size_bytes = layout.slot_size_bytes;
        Ok(Client { state, bell, doorbell, socket, shape, slot_size_bytes })
    }

    /// Shape of every erase block, and how many independent units there are.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Operations that can be under way: each has its entry of the ring until its ticket was waited for or dropped, so who begins
    /// more of them than this before it waits for one waits for ever.
    pub fn entries(&self) -> u32 {
        self.lock().places.len() as u32
    }

    /// Most bytes of one [`Client::begin_append`]: whole program units.
    pub fn append_max_bytes(&self) -> usize {
        let unit = self.shape.unit_of_append_bytes();
        (self.slot_size_bytes / unit * unit) as usize
    }

    /// Most bytes of one [`Client::begin_read`].
    pub fn read_max_bytes(&self) -> usize {
        self.slot_size_bytes as usize
    }

    /// All erase blocks that the vSSD holds for this application, to find its own records after a start.
    ///
    /// # Errors
    /// If the server is gone.
    pub fn held_blocks(&self) -> Result<Vec<HeldRecord>, BlockError> {
        let mut records = Vec::new();
        let most = self.slot_size_bytes / HELD_SIZE_BYTES as u32;
        loop {
            let mut entry = Submission::new(Opcode::Held, LogicalBlock::default());
            (entry.first, entry.count) = (records.len() as u32, most);
            let mut ticket = self.begin(entry, &[])?;
            let completion = ticket.finish()?;
            let mut bytes = vec![0; (completion.value.min(most) as usize) * HELD_SIZE_BYTES];
            ticket.take_data(&mut bytes);
            records.extend(bytes.as_chunks::<HELD_SIZE_BYTES>().0.iter().map(HeldRecord::decode));
            if completion.value == 0 || records.len() as u32 >= completion.total {
                return Ok(records);
            }
        }
    }

    /// Says, once after attaching, which erase blocks this application still needs. All others are freed, durably;
    /// returns how many.
    ///
    /// # Errors
    /// If one of them is not held (nothing is freed then), or the server is gone.
    pub fn keep(&self, blocks: &[LogicalBlock]) -> Result<u32, BlockError> {
        let most = self.slot_size_bytes as usize / NAME_SIZE_BYTES;
        let mut left = blocks;
        loop {
            let (part, rest) = left.split_at(left.len().min(most));
            let names: Vec<u8> = part.iter().flat_map(|block| encode_name(*block)).collect();
            let mut entry = Submission::new(Opcode::Keep, LogicalBlock::default());
            (entry.count, entry.flag) = (part.len() as u32, u8::from(rest.is_empty()));
            let freed = self.begin(entry, &names)?.finish()?.value;
            if rest.is_empty() {
                return Ok(freed);
            }
            left = rest;
        }
    }

    /// Takes an erase block of a unit. Durable with the first append to it, or the next [`Client::sync`].
    ///
    /// # Errors
    /// [`Status::NoFreeBlock`], [`Status::ReadOnly`], or the server is gone.
    pub fn allocate(&self, unit: UnitIndex, purpose: Purpose) -> Result<LogicalBlock, BlockError> {
        let mut entry = Submission::new(Opcode::Allocate, LogicalBlock { unit, index: 0 });
        entry.flag = purpose.0;
        Ok(self.begin(entry, &[])?.finish()?.block)
    }

    /// Appends whole program units; durable when it returns. Returns the first byte's place in the erase block.
    ///
    /// # Errors
    /// [`Status::AppendFailed`], [`Status::BlockFull`] and others; what was appended before the error stays.
    pub fn append(&self, block: LogicalBlock, bytes: &[u8]) -> Result<u64, BlockError> {
        let mut first = None;
        if bytes.is_empty() {
            return Err(BlockError::Status(Status::Invalid));
        }
        for piece in bytes.chunks(self.append_max_bytes()) {
            // One after the other: a piece must not be appended behind one that was not.
            let place = self.begin_append(block, piece)?.wait()?;
            first.get_or_insert(place);
        }
        Ok(first.expect("there was a piece"))
    }

    /// Reads whole IUs (4096 bytes) from `offset_bytes` of the erase block on.
    ///
    /// # Errors
    /// [`Status::Uncorrectable`], [`Status::Erased`] and others.
    pub fn read(&self, block: LogicalBlock, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        let mut offset = offset_bytes;
        for piece in bytes.chunks_mut(self.read_max_bytes()) {
            self.begin_read(block, offset, piece.len())?.wait_for(piece)?;
            offset += piece.len() as u64;
        }
        Ok(())
    }

    /// Gives an erase block back. Until the next [`Client::sync`], a power cut may bring it back with all it held.
    ///
    /// # Errors
    /// [`Status::NotAllocated`], [`Status::BlockBusy`], or the server is gone.
    pub fn free(&self, block: LogicalBlock) -> Result<(), BlockError> {
        self.begin(Submission::new(Opcode::Free, block), &[])?.finish().map(drop)
    }

    /// Waits until all allocations and frees before it are durable.
    ///
    /// # Errors
    /// If the vSSD takes no more writes, or the server is gone.
    pub fn sync(&self) -> Result<(), BlockError> {
        self.begin(Submission::new(Opcode::Sync, LogicalBlock::default()), &[])?.finish().map(drop)
    }

    /// Erase blocks of a unit: free ones, and all.
    ///
    /// # Errors
    /// If there is no such unit, or the server is gone.
    pub fn blocks_of_unit(&self, unit: UnitIndex) -> Result<(u32, u32), BlockError> {
        let completion =
            self.begin(Submission::new(Opcode::Unit, LogicalBlock { unit, index: 0 }), &[])?.finish()?;
        Ok((completion.value, completion.total))
    }

    /// Starts an append of at most [`Client::append_max_bytes`]; appends to one block take effect in the order they are
    /// started. Waits for a place if as many operations are under way as the ring has entries.
    ///
    /// # Errors
    /// [`Status::Invalid`] for too many bytes or not whole IUs; the server is gone.
    pub fn begin_append(&self, block: LogicalBlock, bytes: &[u8]) -> Result<Ticket<&Client>, BlockError> {
        let entry = self.append_entry(block, bytes)?;
        self.begin(entry, bytes)
    }

    /// As [`Client::begin_append`], for callers that cannot borrow.
    ///
    /// # Errors
    /// As [`Client::begin_append`].
    pub fn begin_append_shared(
        self: &Arc<Client>,
        block: LogicalBlock,
        bytes: &[u8],
    ) -> Result<SharedTicket, BlockError> {
        let entry = self.append_entry(block, bytes)?;
        Client::begin_of(Arc::clone(self), entry, bytes)
    }

    /// Starts a read of at most [`Client::read_max_bytes`].
    ///
    /// # Errors
    /// As [`Client::begin_append`].
    pub fn begin_read(
        &self,
        block: LogicalBlock,
        offset_bytes: u64,
        len_bytes: usize,
    ) -> Result<Ticket<&Client>, BlockError> {
        let entry = self.read_entry(block, offset_bytes, len_bytes)?;
        self.begin(entry, &[])
    }

    /// As [`Client::begin_read`], for callers that cannot borrow.
    ///
    /// # Errors
    /// As [`Client::begin_append`].
    pub fn begin_read_shared(
        self: &Arc<Client>,
        block: LogicalBlock,
        offset_bytes: u64,
        len_bytes: usize,
    ) -> Result<SharedTicket, BlockError> {
        let entry = self.read_entry(block, offset_bytes, len_bytes)?;
        Client::begin_of(Arc::clone(self), entry, &[])
    }

    fn append_entry(&self, block: LogicalBlock, bytes: &[u8]) -> Result<Submission, BlockError> {
        let mut entry = Submission::new(Opcode::Append, block);
        if !bytes.len().is_multiple_of(IU_SIZE_BYTES) || bytes.len() > self.slot_size_bytes as usize {
            return Err(BlockError::Status(Status::Invalid));
        }
        entry.count = (bytes.len() / IU_SIZE_BYTES) as u32;
        Ok(entry)
    }

    fn read_entry(
        &self,
        block: LogicalBlock,
        offset_bytes: u64,
        len_bytes: usize,
    ) -> Result<Submission, BlockError> {
        let invalid = BlockError::Status(Status::Invalid);
        let iu = IU_SIZE_BYTES as u64;
        if !len_bytes.is_multiple_of(IU_SIZE_BYTES)
            || len_bytes > self.slot_size_bytes as usize
            || !offset_bytes.is_multiple_of(iu)
        {
            return Err(invalid);
        }
        let mut entry = Submission::new(Opcode::Read, block);
        entry.first = u32::try_from(offset_bytes / iu).map_err(|_| invalid)?;
        entry.count = (len_bytes / IU_SIZE_BYTES) as u32;
        Ok(entry)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked did so outside of the few lines that hold the lock, or in a broken promise of the server.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn begin(&self, entry: Submission, data: &[u8]) -> Result<Ticket<&Client>, BlockError> {
        Client::begin_of(self, entry, data)
    }

    fn begin_of<C: Deref<Target = Client>>(
        client: C,
        entry: Submission,
        data: &[u8],
    ) -> Result<Ticket<C>, BlockError> {
        let place = client.submit(entry, data)?;
        Ok(Ticket { client, place, is_over: false })
    }

    /// Returns the place of the operation.
    fn submit(&self, mut entry: Submission, data: &[u8]) -> Result<u32, BlockError> {
        let mut state = self.lock();
        let place = loop {
            self.reap(&mut state);
            if state.gone {
                return Err(BlockError::ServerGone);
            }
            if let Some(place) = state.free.pop() {
                break place;
            }
            state = self.sleep(state);
        };
        entry.token = u64::from(place);
        entry.data_offset = place * self.slot_size_bytes;
        state.end.put_data(entry.data_offset, data);
        state.places[place as usize] = Place::Waiting;
        // There are as many places as entries, and one that is free was answered, so its entry was taken.
        let ring = state.end.submit(&entry).expect("the ring has an entry for each place");
        drop(state);
        if ring {
            system::ring(&self.doorbell);
        }
        Ok(place)
    }

    fn reap(&self, state: &mut State) {
        let mut any = false;
        while let Some(completion) = state.end.take() {
            any = true;
            let known = completion.and_then(|completion| {
                let place = usize::try_from(completion.token).ok()?;
                Some((completion, place, *state.places.get(place)?))
            });
            match known {
                Some((completion, place, Place::Waiting)) => {
                    state.places[place] = Place::Answered(completion);
                }
                Some((_, place, Place::Abandoned)) => {
                    state.places[place] = Place::Free;
                    state.free.push(place as u32);
                }
                // Not what a server of this version says.
                _ => state.gone = true,
            }
        }
        if any {
            state.end.release();
            if state.end.is_stuck() {
                system::ring(&self.doorbell);
            }
        }
    }

    /// Waits for a completion, or a while.
    fn sleep<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let seen = state.end.seen();
        drop(state);
        self.bell.count(true);
        system::futex_wait(self.bell.futex(), seen, LOOK_AGAIN_AFTER);
        self.bell.count(false);
        let quiet = self.bell.futex().load(Ordering::Acquire) == seen;
        let gone =
            quiet && self.socket.as_ref().is_some_and(|socket| system::has_peer_gone(socket, Duration::ZERO));
        let mut state = self.lock();
        state.gone |= gone;
        state
    }
}

impl<C: Deref<Target = Client>> Ticket<C> {
    /// Whether the operation is over. [`Ticket::wait`] does not wait then.
    pub fn poll(&self) -> bool {
        let mut state = self.client.lock();
        self.client.reap(&mut state);
        state.gone || matches!(state.places[self.place as usize], Place::Answered(_))
    }

    /// Waits. Returns an append's place in its erase block, in bytes.
    ///
    /// # Errors
    /// Of the operation.
    pub fn wait(mut self) -> Result<u64, BlockError> {
        Ok(u64::from(self.finish()?.value) * IU_SIZE_BYTES as u64)
    }

    /// Waits for a read and copies what was read.
    ///
    /// # Errors
    /// Of the operation.
    ///
    /// # Panics
    /// If more bytes are asked for than a read can have.
    pub fn wait_for(mut self, bytes: &mut [u8]) -> Result<(), BlockError> {
        assert!(bytes.len() <= self.client.read_max_bytes(), "more than was read");
        self.finish()?;
        self.take_data(bytes);
        Ok(())
    }

    fn finish(&mut self) -> Result<Completion, BlockError> {
        let mut state = self.client.lock();
        loop {
            self.client.reap(&mut state);
            if let Place::Answered(completion) = state.places[self.place as usize] {
                self.is_over = true;
                return match completion.status {
                    Status::Done => Ok(completion),
                    status => Err(BlockError::Status(status)),
                };
            }
            if state.gone {
                return Err(BlockError::ServerGone);
            }
            state = self.client.sleep(state);
        }
    }

    fn take_data(&self, bytes: &mut [u8]) {
        assert!(self.is_over, "the slot is the server's until then");
        let offset = self.place * self.client.slot_size_bytes;
        self.client.lock().end.take_data(offset, bytes);
    }
}

impl<C: Deref<Target = Client>> Drop for Ticket<C> {
    fn drop(&mut self) {
        let mut state = self.client.lock();
        let place = self.place as usize;
        if matches!(state.places[place], Place::Answered(_)) {
            state.places[place] = Place::Free;
            state.free.push(self.place);
        } else {
            state.places[place] = Place::Abandoned;
        }
    }
}
