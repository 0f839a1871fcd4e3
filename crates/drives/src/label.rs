//! Label of a device: whose it is and how it is cut. Two copies of 4 KiB, at 64 KiB and at the beginning of the last whole MiB, where no
//! erase block lies. Little endian.
//!
//! | offset | size | field           | meaning                                                             |
//! |-------:|-----:|-----------------|---------------------------------------------------------------------|
//! |      0 |    8 | magic           | "DIECUTLB"                                                          |
//! |      8 |    4 | version         | 1; a reader takes no other                                          |
//! |     12 |    4 | check           | CRC-32C of all other bytes                                          |
//! |     16 |    8 | features        | what a reader must understand, a bit each: 1 erase blocks are zones, 2 lanes have several dies, 4 lanes are apart |
//! |     24 |    8 | number          | rises with each change; the newer copy counts                       |
//! |     32 |   16 | server          | UUID of the server                                                  |
//! |     48 |   16 | device          | UUID of this device                                                 |
//! |     64 |    8 | epoch           | of the pool: rises when a device joins, is lost, or leaves          |
//! |     72 |    8 | view            | random bytes of the epoch: of two views of one epoch one is right   |
//! |     80 |   16 | secret          | of nonces; the same on all devices of the pool                      |
//! |     96 |    2 | lanes           | the shape; it never changes                                         |
//! |     98 |    2 | device_count    | devices that follow, 64 at most                                     |
//! |    100 |    4 | blocks_per_lane | erase blocks of a lane                                              |
//! |    104 |    8 | block_size      | bytes of an erase block                                             |
//! |    112 |    8 | system_first    | of each die the first erase block of catalog and block states       |
//! |    120 |    8 | system_blocks   | how many of them each die has                                       |
//! |    128 | 32*n | devices         | UUID (16), state (1: 0 there, 1 joining, 2 lost, 3 leaving, 4 removed), zeros (7), epoch since when (8) |
//! |   2176 |    8 | zone_size       | with feature 1: bytes from a zone to the next one                   |
//! |   2184 |    4 | first_zone      | with feature 1: the zone that is the first erase block; with feature 2, of each die |
//! |   2188 |    4 | dies_per_lane   | with feature 2: dies of each lane                                   |
//! |   2192 |    4 | die_zones       | with feature 2: zones of each die                                   |
//! |   2196 |    4 | program_unit    | with feature 2: pages that are programmed at once                   |
//! |   2200 |    8 | lane_stride     | with feature 4: bytes from a lane to the next one; lanes were measured not to disturb each other |
//!
//! The rest is zero. A change overwrites the older copy first; the other one follows when a flush has covered that
//! (R11 in `docs/design/one-format.md`), so that a cut leaves one of them.

use crate::shape::{DieCut, DriveShape, MARGIN_BYTES};
use crate::zoning::ZoneCut;
use diecut_units::{checksum, checksum_append};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: [u8; 8] = *b"DIECUTLB";
const VERSION: u32 = 1;
/// Erase blocks are zones.
const FEATURE_ZONES: u64 = 1;
/// Lanes have several dies, whose zones are chunks.
const FEATURE_DIES: u64 = 2;
/// Lanes are parts of the drive with room between them.
const FEATURE_APART: u64 = 4;
/// Features that this reader understands.
const FEATURES_KNOWN: u64 = FEATURE_ZONES | FEATURE_DIES | FEATURE_APART;
/// Most devices of a pool.
pub const DEVICES_MAX: usize = 64;
/// Where the first copy lies.
const FIRST_OFFSET: u64 = 64 << 10;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Stored {
    magic: [u8; 8],
    version: U32,
    check: U32,
    features: U64,
    number: U64,
    server: [u8; 16],
    device: [u8; 16],
    epoch: U64,
    view: [u8; 8],
    secret: [u8; 16],
    lanes: U16,
    device_count: U16,
    blocks_per_lane: U32,
    block_size: U64,
    system_first: U64,
    system_blocks: U64,
    devices: [StoredDevice; DEVICES_MAX],
    cut: StoredCut,
    rest: [u8; Label::SIZE_BYTES - 160 - DEVICES_MAX * size_of::<StoredDevice>()],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredDevice {
    device: [u8; 16],
    state: u8,
    zeros: [u8; 7],
    since: U64,
}

/// What features add to the shape.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct StoredCut {
    zone_size: U64,
    first_zone: U32,
    dies_per_lane: U32,
    die_zones: U32,
    program_unit: U32,
    lane_stride: U64,
}

const _: () = {
    assert!(size_of::<Stored>() == Label::SIZE_BYTES && size_of::<StoredDevice>() == 32);
    assert!(offset_of!(Stored, lanes) == 96 && offset_of!(Stored, devices) == 128);
};

/// What a label says.
#[derive(Clone, PartialEq, Eq)]
pub struct Label {
    /// Rises with each change.
    pub number: u64,
    /// UUID of the server.
    pub server: [u8; 16],
    /// UUID of this device.
    pub device: [u8; 16],
    /// Epoch of the pool.
    pub epoch: u64,
    /// Which view of that epoch this is.
    pub view: [u8; 8],
    /// Secret of nonces.
    pub secret: [u8; 16],
    /// How the device is cut.
    pub shape: DriveShape,
    /// Of each lane: the first erase block of catalog and block states, and how many there are.
    pub system: (u64, u64),
    /// All devices of the pool, this one too.
    pub devices: Vec<LabelDevice>,
}

/// A device of the pool, as a label knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelDevice {
    /// UUID.
    pub device: [u8; 16],
    /// What is known of it.
    pub membership: Membership,
    /// Epoch in which that came to be.
    pub since: u64,
}

/// How a device belongs to its pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It is there.
    There,
    /// It is being added, and has no voice yet.
    Joining,
    /// It is lost: what it holds counts only as far as an anchor names it.
    Lost,
    /// It is being evacuated.
    Leaving,
    /// It was taken out of the pool, for good.
    Removed,
}

const MEMBERSHIPS: [Membership; 5] =
    [Membership::There, Membership::Joining, Membership::Lost, Membership::Leaving, Membership::Removed];

/// One of the two copies of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelCopy {
    /// At 64 KiB.
    First,
    /// At the beginning of the last whole MiB.
    Second,
}

/// Why there is no label to go by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// There is none.
    #[error("no label of diecut is on it")]
    Missing,
    /// There was one.
    #[error("its label is damaged, in both copies")]
    Damaged,
    /// It is of a later program.
    #[error("its label has version {0}; this program knows version 1")]
    Version(u32),
    /// It needs a later program.
    #[error("its label needs features {0:#x} that this program does not know")]
    Features(u64),
    /// It is whole, and says something that no label says.
    #[error("its label is whole but makes no sense: {0}")]
    Senseless(&'static str),
}

impl LabelCopy {
    /// Where it lies on a drive of so many bytes, which are 3 MiB at least.
    pub fn offset(self, size_bytes: u64) -> u64 {
        match self {
            LabelCopy::First => FIRST_OFFSET,
            LabelCopy::Second => size_bytes / MARGIN_BYTES * MARGIN_BYTES - MARGIN_BYTES,
        }
    }

    /// The other one.
    pub fn other(self) -> LabelCopy {
        match self {
            LabelCopy::First => LabelCopy::Second,
            LabelCopy::Second => LabelCopy::First,
        }
    }
}

/// Checksum of a label with its own field left out.
fn check_of(bytes: &[u8]) -> u32 {
    let at = offset_of!(Stored, check);
    checksum_append(checksum(&bytes[..at]), &bytes[at + 4..])
}

/// How the drive is cut, if it makes sense.
fn shape_of(stored: &Stored) -> DriveShape {
    let has = |feature: u64| stored.features.get() & feature != 0;
    DriveShape {
        lanes: stored.lanes.get(),
        block_size_bytes: stored.block_size.get(),
        blocks_per_lane: stored.blocks_per_lane.get(),
        zones: (has(FEATURE_ZONES)).then(|| ZoneCut {
            zone_size_bytes: stored.cut.zone_size.get(),
            first_zone: stored.cut.first_zone.get(),
        }),
        dies: (has(FEATURE_DIES)).then(|| DieCut {
            dies_per_lane: u16::try_from(stored.cut.dies_per_lane.get()).unwrap_or(0),
            die_zones: stored.cut.die_zones.get(),
            program_unit_pages: stored.cut.program_unit.get(),
        }),
        lane_stride_bytes: (has(FEATURE_APART)).then(|| stored.cut.lane_stride.get()),
    }
}

impl Label {
    /// Bytes of a copy.
    pub const SIZE_BYTES: usize = 4096;
    /// Bytes of the smallest drive that has room for both copies.
    pub const DRIVE_BYTES_MIN: u64 = 3 * MARGIN_BYTES;

    /// The bytes of a copy.
    ///
    /// # Panics
    /// If there are more than 64 devices.
    pub fn encode(&self) -> Vec<u8> {
        let mut stored = Stored::new_zeroed();
        stored.magic = MAGIC;
        stored.version = VERSION.into();
        stored.number = self.number.into();
        (stored.server, stored.device) = (self.server, self.device);
        (stored.epoch, stored.view, stored.secret) = (self.epoch.into(), self.view, self.secret);
        stored.lanes = self.shape.lanes.into();
        stored.blocks_per_lane = self.shape.blocks_per_lane.into();
        stored.block_size = self.shape.block_size_bytes.into();
        (stored.system_first, stored.system_blocks) = (self.system.0.into(), self.system.1.into());
        assert!(self.devices.len() <= DEVICES_MAX, "a pool has 64 devices at most");
        stored.device_count = (self.devices.len() as u16).into();
        for (stored, device) in stored.devices.iter_mut().zip(&self.devices) {
            stored.device = device.device;
            stored.state = device.membership as u8;
            stored.since = device.since.into();
        }
        if let Some(cut) = self.shape.zones {
            stored.features = FEATURE_ZONES.into();
            stored.cut.zone_size = cut.zone_size_bytes.into();
            stored.cut.first_zone = cut.first_zone.into();
        }
        if let Some(cut) = self.shape.dies {
            stored.features |= FEATURE_DIES;
            stored.cut.dies_per_lane = u32::from(cut.dies_per_lane).into();
            stored.cut.die_zones = cut.die_zones.into();
            stored.cut.program_unit = cut.program_unit_pages.into();
        }
        if let Some(stride_bytes) = self.shape.lane_stride_bytes {
            stored.features |= FEATURE_APART;
            stored.cut.lane_stride = stride_bytes.into();
        }
        stored.check = check_of(stored.as_bytes()).into();
        stored.as_bytes().to_vec()
    }

    /// Reads a copy.
    ///
    /// # Errors
    /// What is wrong with it. [`LabelError::Damaged`] speaks of this copy.
    pub fn decode(bytes: &[u8]) -> Result<Label, LabelError> {
        let Ok(stored) = Stored::ref_from_bytes(bytes) else { return Err(LabelError::Missing) };
        if stored.magic != MAGIC {
            return Err(LabelError::Missing);
        }
        // The check comes first: a version that is a flipped bit is damage.
        if check_of(bytes) != stored.check.get() {
            return Err(LabelError::Damaged);
        }
        if stored.version.get() != VERSION {
            return Err(LabelError::Version(stored.version.get()));
        }
        let unknown = stored.features.get() & !FEATURES_KNOWN;
        if unknown != 0 {
            return Err(LabelError::Features(unknown));
        }
        let shape = shape_of(stored);
        if !shape.is_sound() {
            return Err(LabelError::Senseless("no drive is cut like that"));
        }
        let system = (stored.system_first.get(), stored.system_blocks.get());
        if system.0.checked_add(system.1).is_none_or(|end| end > u64::from(shape.blocks_per_die())) {
            return Err(LabelError::Senseless("its system area is outside"));
        }
        let count = usize::from(stored.device_count.get());
        let Some(devices) = stored.devices.get(..count) else {
            return Err(LabelError::Senseless("a pool has 64 devices at most"));
        };
        let devices = devices.iter().map(|device| {
            let membership = MEMBERSHIPS.get(usize::from(device.state));
            let membership = *membership.ok_or(LabelError::Senseless("a device has no such state"))?;
            Ok(LabelDevice { device: device.device, membership, since: device.since.get() })
        });
        let devices = devices.collect::<Result<Vec<LabelDevice>, LabelError>>()?;
        if !devices.iter().any(|device| device.device == stored.device) {
            return Err(LabelError::Senseless("its pool does not know it"));
        }
        Ok(Label {
            number: stored.number.get(),
            server: stored.server,
            device: stored.device,
            epoch: stored.epoch.get(),
            view: stored.view,
            secret: stored.secret,
            shape,
            system,
            devices,
        })
    }

    /// The label of a drive from its two copies, and the copy that the next change overwrites first.
    ///
    /// # Errors
    /// If no copy is whole, or one is of a later program: then the other one is older than what that program did.
    pub fn choose(first: &[u8], second: &[u8]) -> Result<(Label, LabelCopy), LabelError> {
        match (Label::decode(first), Label::decode(second)) {
            (Ok(first), Ok(second)) if first.number >= second.number => Ok((first, LabelCopy::Second)),
            (Ok(_), Ok(second)) => Ok((second, LabelCopy::First)),
            (Err(error), _) | (_, Err(error)) if error.is_later() => Err(error),
            (Ok(first), Err(_)) => Ok((first, LabelCopy::Second)),
            (Err(_), Ok(second)) => Ok((second, LabelCopy::First)),
            (Err(LabelError::Missing), Err(other)) | (Err(other), Err(_)) => Err(other),
        }
    }
}

impl LabelError {
    /// Whether a later program wrote the label.
    fn is_later(&self) -> bool {
        matches!(self, LabelError::Version(_) | LabelError::Features(_))
    }
}

/// The secret is left out.
impl std::fmt::Debug for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Label")
            .field("number", &self.number)
            .field("server", &self.server)
            .field("device", &self.device)
            .field("epoch", &self.epoch)
            .field("view", &self.view)
            .field("shape", &self.shape)
            .field("system", &self.system)
            .field("devices", &self.devices)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn label() -> Label {
        let device = |byte: u8, membership, since| LabelDevice { device: [byte; 16], membership, since };
        Label {
            number: 7,
            server: [0xa1; 16],
            device: [0xd1; 16],
            epoch: 3,
            view: [1, 2, 3, 4, 5, 6, 7, 8],
            secret: [0x5e; 16],
            shape: DriveShape {
                lanes: 4,
                block_size_bytes: 64 << 20,
                blocks_per_lane: 1023,
                zones: None,
                dies: None,
                lane_stride_bytes: None,
            },
            system: (1021, 2),
            devices: vec![device(0xd1, Membership::There, 1), device(0xd2, Membership::Lost, 3)],
        }
    }

    /// Goal: the bytes are those of the table. Method: by hand.
    #[test]
    fn golden_bytes() {
        let bytes = label().encode();
        let mut expected = vec![0u8; 4096];
        expected[..8].copy_from_slice(b"DIECUTLB");
        expected[8] = 1;
        expected[24] = 7;
        expected[32..48].fill(0xa1);
        expected[48..64].fill(0xd1);
        expected[64] = 3;
        expected[72..80].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        expected[80..96].fill(0x5e);
        expected[96] = 4;
        expected[98] = 2;
        expected[100..104].copy_from_slice(&[0xff, 0x03, 0, 0]);
        expected[107] = 4;
        expected[112..114].copy_from_slice(&[0xfd, 0x03]);
        expected[120] = 2;
        expected[128..144].fill(0xd1);
        expected[152] = 1;
        expected[160..176].fill(0xd2);
        expected[176] = 2;
        expected[184] = 3;
        let check: Vec<u8> = expected[..12].iter().chain(&expected[16..]).copied().collect();
        expected[12..16].copy_from_slice(&checksum(&check).to_le_bytes());
        assert!(bytes == expected);
        assert_eq!(Label::decode(&bytes), Ok(label()));
        assert!(!format!("{:?}", label()).contains("94"), "the secret is not shown");
    }

    /// Goal: no flipped bit passes. Method: each one.
    #[test]
    fn damage_is_found() {
        let bytes = label().encode();
        for at in 0..4096 {
            let mut bad = bytes.clone();
            bad[at] ^= 0x20;
            let expected = if at < 8 { LabelError::Missing } else { LabelError::Damaged };
            assert_eq!(Label::decode(&bad), Err(expected), "byte {at}");
        }
    }

    /// Bytes with a right checksum that say something else.
    fn with(change: impl Fn(&mut Stored)) -> Vec<u8> {
        let mut stored = Stored::read_from_bytes(&label().encode()).unwrap();
        change(&mut stored);
        stored.check = check_of(stored.as_bytes()).into();
        stored.as_bytes().to_vec()
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = |change: &dyn Fn(&mut Stored)| Label::decode(&with(change)).unwrap_err();
        assert_eq!(refused(&|label| label.version = 2.into()), LabelError::Version(2));
        assert_eq!(refused(&|label| label.features = 0x10.into()), LabelError::Features(0x10));
        let senseless: [&dyn Fn(&mut Stored); 8] = [
            &|label| label.lanes = 0.into(),
            &|label| label.block_size = (3 << 20).into(),
            &|label| label.blocks_per_lane = 7.into(),
            &|label| label.blocks_per_lane = u32::MAX.into(),
            &|label| label.system_first = u64::MAX.into(),
            &|label| label.device_count = 65.into(),
            &|label| label.devices[1].state = 5,
            &|label| label.device = [0xd3; 16],
        ];
        for (at, change) in senseless.iter().enumerate() {
            assert!(matches!(refused(change), LabelError::Senseless(_)), "change {at}");
        }
    }

    /// Goal: a label of a zoned drive says where its erase blocks lie, and a program that does not know zones refuses it.
    #[test]
    fn a_label_of_zones() {
        let cut = ZoneCut { zone_size_bytes: 128 << 20, first_zone: 2 };
        let shape = DriveShape { block_size_bytes: 96 << 20, zones: Some(cut), ..label().shape };
        let zoned = Label { shape, ..label() };
        let bytes = zoned.encode();
        assert_eq!((bytes[16], &bytes[2176..2188]), (1, &[0, 0, 0, 8, 0, 0, 0, 0, 2, 0, 0, 0][..]));
        assert_eq!(Label::decode(&bytes), Ok(zoned.clone()));
        let small = ZoneCut { zone_size_bytes: 95 << 20, ..cut };
        let torn = Label { shape: DriveShape { zones: Some(small), ..shape }, ..zoned };
        assert!(
            matches!(Label::decode(&torn.encode()), Err(LabelError::Senseless(_))),
            "a block beyond its zone"
        );
    }

    /// Goal: a label of a drive that shows its dies says how they lie, and a program that does not know dies refuses it.
    #[test]
    fn a_label_of_dies() {
        let zones = ZoneCut { zone_size_bytes: 96 << 20, first_zone: 1 };
        let dies = DieCut { dies_per_lane: 3, die_zones: 342, program_unit_pages: 24 };
        let shape =
            DriveShape { block_size_bytes: 96 << 20, zones: Some(zones), dies: Some(dies), ..label().shape };
        let chunked = Label { shape, system: (0, 3), ..label() };
        let bytes = chunked.encode();
        assert_eq!((bytes[16], &bytes[2188..2200]), (3, &[3, 0, 0, 0, 0x56, 1, 0, 0, 24, 0, 0, 0][..]));
        assert_eq!(Label::decode(&bytes), Ok(chunked.clone()));
        assert_eq!((shape.blocks_per_die(), shape.needed_bytes()), (341, 12 * 342 * (96 << 20)));
        let zone = |lane, block| shape.offset(lane, block) / (96 << 20);
        assert_eq!((zone(0, 0), zone(0, 340), zone(0, 341)), (1, 341, 343), "the first of each die is free");
        assert_eq!((zone(1, 0), zone(3, 1022)), (3 * 342 + 1, 12 * 342 - 1));
        let senseless = [
            DieCut { dies_per_lane: 0, ..dies },
            DieCut { dies_per_lane: 2, ..dies },
            DieCut { die_zones: 341, ..dies },
            DieCut { program_unit_pages: 0, ..dies },
            DieCut { program_unit_pages: 25, ..dies },
        ];
        for (at, dies) in senseless.into_iter().enumerate() {
            let shape = DriveShape { dies: Some(dies), ..shape };
            let label = Label { shape, ..chunked.clone() }.encode();
            assert!(matches!(Label::decode(&label), Err(LabelError::Senseless(_))), "{at}");
        }
    }

    /// Goal: a label of lanes that are apart says so, and a program that does not know of it refuses it.
    #[test]
    fn a_label_of_lanes_that_are_apart() {
        let stride_bytes = 1024 * (64 << 20);
        let shape = DriveShape { lane_stride_bytes: Some(stride_bytes), ..label().shape };
        let apart = Label { shape, ..label() };
        let bytes = apart.encode();
        assert_eq!((bytes[16], &bytes[2200..2208]), (4, &stride_bytes.to_le_bytes()[..]));
        assert_eq!(Label::decode(&bytes), Ok(apart.clone()));
        for senseless in [1023 * (64 << 20) - 4096, stride_bytes + 1, u64::MAX / 4096 * 4096] {
            let shape = DriveShape { lane_stride_bytes: Some(senseless), ..shape };
            let label = Label { shape, ..apart.clone() }.encode();
            assert!(matches!(Label::decode(&label), Err(LabelError::Senseless(_))), "{senseless}");
        }
    }

    /// Goal: R11: whatever a cut leaves of a change, a label is there; and nothing that a later program wrote is taken for old.
    #[test]
    fn the_newer_whole_copy_counts() {
        let old = label().encode();
        // Of a pool so large that its list goes beyond the first sector.
        let many = (0..20).map(|byte| LabelDevice { device: [0xd0 + byte; 16], ..label().devices[0] });
        let new = Label { number: 8, devices: many.collect(), ..label() }.encode();
        let torn = [&new[..512], &old[512..]].concat();
        let later = with(|label| label.version = 2.into());
        let number = |first: &[u8], second: &[u8]| {
            Label::choose(first, second).map(|(label, copy)| (label.number, copy))
        };
        use LabelCopy::{First, Second};
        assert_eq!(number(&old, &old), Ok((7, Second)));
        assert_eq!(number(&old, &torn), Ok((7, Second)));
        assert_eq!(number(&old, &new), Ok((8, First)));
        assert_eq!(number(&new, &old), Ok((8, Second)));
        assert_eq!(number(&torn, &new), Ok((8, First)));
        assert_eq!(number(&torn, &torn), Err(LabelError::Damaged));
        assert_eq!(number(&[0; 4096], &[0; 4096]), Err(LabelError::Missing));
        assert_eq!(number(&[0; 4096], &torn), Err(LabelError::Damaged));
        assert_eq!(number(&later, &old), Err(LabelError::Version(2)));
        assert_eq!(number(&old, &later), Err(LabelError::Version(2)));
    }

    #[test]
    fn copies_lie_in_the_margins() {
        for size in [538_968_064, (1 << 30) + 12345, 3 << 40] {
            let shape = DriveShape::plan(size, 4, None).unwrap();
            let last = shape.offset(3, shape.blocks_per_lane - 1) + shape.block_size_bytes;
            let (first, second) = (LabelCopy::First.offset(size), LabelCopy::Second.offset(size));
            assert!(first + 4096 <= shape.offset(0, 0) && second >= last && second + 4096 <= size, "{size}");
        }
    }
}
