//! Header of an erase block on a medium without OOB areas: its first IU, little endian. It says whose content the block has
//! (`docs/design/one-format.md`).
//!
//! | offset | size | field       | meaning                                                          |
//! |-------:|-----:|-------------|------------------------------------------------------------------|
//! |      0 |    4 | magic       | "dblk"                                                           |
//! |      4 |    4 | check       | CRC-32C of all other bytes                                       |
//! |      8 |    2 | version     | 1; a reader refuses others                                       |
//! |     10 |    1 | purpose     | as the holder said                                               |
//! |     11 |    1 | flags       | bit 0: the column is being rebuilt                               |
//! |     12 |    4 | block       | where it was written first, die by die; a block that moves keeps it |
//! |     16 |   16 | device      | UUID of the device                                               |
//! |     32 |    8 | allocation  | allocation sequence of the block                                 |
//! |     40 |    8 | nonce       | SipHash-2-4 of device and allocation, under the secret of the pool |
//! |     48 |    4 | owner       | generation of the vSSD                                           |
//! |     52 |    2 | part        | of the vSSD                                                      |
//! |     54 |    2 | unit        | of the part                                                      |
//! |     56 |    4 | index       | logical block within the unit                                    |
//! |     60 |    4 | erase_count | of the physical block                                            |
//! |     64 | 4032 | holder      | the holder's                                                     |
//!
//! The nonce is why content of an earlier owner, or bytes of a host that look like a header, never count: both would have to guess it. A
//! reader knows the allocation from the block states and computes what must stand there.

use crate::{LogicalBlock, Purpose, UnitIndex, VssdId};
use diecut_units::{IU_SIZE_BYTES, checksum, checksum_append, mutant};
use siphasher::sip::SipHasher24;
use std::hash::Hasher;
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 4] = *b"dblk";
const VERSION: u16 = 1;
const IS_REBUILDING: u8 = 1;
/// Where the holder's bytes begin.
pub const HEADER_HOLDER_AT_BYTES: usize = offset_of!(Stored, holder);
/// Bytes of the holder.
pub const HEADER_HOLDER_SIZE_BYTES: usize = IU_SIZE_BYTES - HEADER_HOLDER_AT_BYTES;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Stored {
    magic: [u8; 4],
    check: U32,
    version: U16,
    purpose: u8,
    flags: u8,
    block: U32,
    device: [u8; 16],
    allocation: U64,
    nonce: [u8; 8],
    owner: U32,
    part: U16,
    unit: U16,
    index: U32,
    erase_count: U32,
    holder: [u8; 4032],
}

const _: () = assert!(size_of::<Stored>() == IU_SIZE_BYTES && offset_of!(Stored, holder) == 64);

/// Computes the nonces of one device.
#[derive(Clone, Copy)]
pub struct Nonces {
    secret: [u8; 16],
    device: [u8; 16],
}

impl Nonces {
    /// With the secret of the pool and the UUID of the device.
    pub fn new(secret: [u8; 16], device: [u8; 16]) -> Nonces {
        Nonces { secret, device }
    }

    /// The UUID of the device.
    pub fn device(&self) -> [u8; 16] {
        self.device
    }

    /// The nonce of an allocation.
    pub fn of(&self, allocation: u64) -> [u8; 8] {
        let mut hasher = SipHasher24::new_with_key(&self.secret);
        hasher.write(&self.device);
        hasher.write(&allocation.to_le_bytes());
        hasher.finish().to_le_bytes()
    }
}

/// The secret is left out.
impl std::fmt::Debug for Nonces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nonces").field("device", &self.device).finish_non_exhaustive()
    }
}

/// What a header says, apart from the holder's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// As the holder said.
    pub purpose: Purpose,
    /// Whether the column is being rebuilt: it counts only as far as an anchor says.
    pub is_rebuilding: bool,
    /// Number of the erase block in which it was written first.
    pub block: u32,
    /// Allocation sequence.
    pub allocation: u64,
    /// Owner generation.
    pub owner: VssdId,
    /// Part of the vSSD.
    pub part: u16,
    /// Logical address.
    pub logical: LogicalBlock,
    /// Erases of the physical block.
    pub erase_count: u32,
}

fn check_of(bytes: &[u8]) -> u32 {
    let at = offset_of!(Stored, check);
    checksum_append(checksum(&bytes[..at]), &bytes[at + 4..])
}

impl BlockHeader {
    /// The IU, with the holder's bytes at its end; zeros follow them.
    ///
    /// # Panics
    /// If the holder has more than 4,032 bytes.
    pub fn encode(&self, nonces: &Nonces, holder: &[u8], iu: &mut [u8]) {
        let mut stored = Stored::new_zeroed();
        stored.magic = MAGIC;
        stored.version = VERSION.into();
        stored.purpose = self.purpose.0;
        stored.flags = if self.is_rebuilding { IS_REBUILDING } else { 0 };
        stored.block = self.block.into();
        stored.device = nonces.device;
        stored.allocation = self.allocation.into();
        stored.nonce = nonces.of(self.allocation);
        stored.owner = self.owner.0.into();
        stored.part = self.part.into();
        stored.unit = self.logical.unit.0.into();
        stored.index = self.logical.index.into();
        stored.erase_count = self.erase_count.into();
        stored.holder[..holder.len()].copy_from_slice(holder);
        iu.copy_from_slice(stored.as_bytes());
        let check = check_of(iu);
        iu[offset_of!(Stored, check)..][..4].copy_from_slice(&check.to_le_bytes());
    }

    /// Reads the header of a block that the states say has this allocation, and the holder's bytes. `None` if it is not of that
    /// allocation: never written, torn, of an earlier owner, or made up.
    pub fn decode<'a>(iu: &'a [u8], nonces: &Nonces, allocation: u64) -> Option<(BlockHeader, &'a [u8])> {
        let stored = Stored::ref_from_bytes(iu).ok()?;
        let is_of_allocation = stored.allocation == allocation && stored.nonce == nonces.of(allocation);
        let is_of = stored.magic == MAGIC
            && stored.version == VERSION
            && stored.device == nonces.device
            && (is_of_allocation || mutant!("vssd: a header of another allocation counts"));
        if !is_of || stored.flags & !IS_REBUILDING != 0 || stored.check != check_of(iu) {
            return None;
        }
        let header = BlockHeader {
            purpose: Purpose(stored.purpose),
            is_rebuilding: stored.flags & IS_REBUILDING != 0,
            block: stored.block.get(),
            allocation,
            owner: VssdId(stored.owner.get()),
            part: stored.part.get(),
            logical: LogicalBlock { unit: UnitIndex(stored.unit.get()), index: stored.index.get() },
            erase_count: stored.erase_count.get(),
        };
        Some((header, &stored.holder))
    }
}

/// Whether an IU is the header of the block that the states say has this allocation, owner and logical address.
pub(crate) fn is_header_of(
    iu: &[u8],
    nonces: &Nonces,
    allocation: u64,
    owner: VssdId,
    logical: LogicalBlock,
) -> bool {
    let found = BlockHeader::decode(iu, nonces, allocation);
    found.is_some_and(|(header, _)| header.owner == owner && header.logical == logical)
}

#[cfg(test)]
mod test {
    use super::*;

    const NONCES: Nonces = Nonces { secret: [0x5e; 16], device: [0xd1; 16] };

    fn header() -> BlockHeader {
        BlockHeader {
            purpose: Purpose(7),
            is_rebuilding: true,
            block: 0x0403_0201,
            allocation: 0x1817_1615_1413_1211,
            owner: VssdId(0x2423_2221),
            part: 0x3231,
            logical: LogicalBlock { unit: UnitIndex(0x4241), index: 0x5453_5251 },
            erase_count: 0x6463_6261,
        }
    }

    fn encoded(header: &BlockHeader, holder: &[u8]) -> Vec<u8> {
        let mut iu = vec![0xee; IU_SIZE_BYTES];
        header.encode(&NONCES, holder, &mut iu);
        iu
    }

    /// Goal: the layout is pinned. Method: bytes written by hand; the first word of the hash is the reference vector of SipHash-2-4.
    #[test]
    fn the_bytes_of_a_header() {
        let iu = encoded(&header(), &[0x71, 0x72]);
        let mut golden = vec![0u8; IU_SIZE_BYTES];
        golden[..4].copy_from_slice(b"dblk");
        golden[8..16].copy_from_slice(&[1, 0, 7, 1, 1, 2, 3, 4]);
        golden[16..32].fill(0xd1);
        golden[32..40].copy_from_slice(&[0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18]);
        golden[40..48].copy_from_slice(&NONCES.of(header().allocation));
        golden[48..64].copy_from_slice(&[
            0x21, 0x22, 0x23, 0x24, 0x31, 0x32, 0x41, 0x42, 0x51, 0x52, 0x53, 0x54, 0x61, 0x62, 0x63, 0x64,
        ]);
        golden[64..66].copy_from_slice(&[0x71, 0x72]);
        let check = check_of(&golden).to_le_bytes();
        golden[4..8].copy_from_slice(&check);
        assert!(iu == golden);
        // Appendix A of the paper on SipHash: key 00..0f, message 00..0e. Ours has 24 bytes; this pins which hash it is.
        let key: [u8; 16] = std::array::from_fn(|at| at as u8);
        let mut hasher = SipHasher24::new_with_key(&key);
        hasher.write(&(0..15).collect::<Vec<u8>>());
        assert_eq!(hasher.finish(), 0xa129_ca61_49be_45e5);
    }

    /// Goal: only the header of this device, pool and allocation counts, and no flipped bit passes.
    #[test]
    fn a_header_of_another_allocation_does_not_count() {
        let iu = encoded(&header(), &[1; HEADER_HOLDER_SIZE_BYTES]);
        let allocation = header().allocation;
        let (found, holder) = BlockHeader::decode(&iu, &NONCES, allocation).unwrap();
        assert_eq!((found, holder.len(), holder[4031]), (header(), 4032, 1));
        assert_eq!(BlockHeader::decode(&iu, &NONCES, allocation + 1), None);
        for other in [Nonces { secret: [0x5f; 16], ..NONCES }, Nonces { device: [0xd2; 16], ..NONCES }] {
            assert_eq!(BlockHeader::decode(&iu, &other, allocation), None, "{other:?}");
        }
        for at in 0..IU_SIZE_BYTES {
            let mut bad = iu.clone();
            bad[at] ^= 0x40;
            assert_eq!(BlockHeader::decode(&bad, &NONCES, allocation), None, "byte {at}");
        }
        assert!(!format!("{NONCES:?}").contains("94"), "the secret is not shown");
        assert_eq!(BlockHeader::decode(&iu[..4095], &NONCES, allocation), None);
    }

    /// Goal: a host that knows everything but the secret cannot make a header. Method: one with the nonce of another secret.
    #[test]
    fn a_header_that_is_made_up_does_not_count() {
        let forger = Nonces { secret: [0; 16], ..NONCES };
        let mut iu = vec![0; IU_SIZE_BYTES];
        header().encode(&forger, &[], &mut iu);
        assert_eq!(BlockHeader::decode(&iu, &NONCES, header().allocation), None);
    }
}
