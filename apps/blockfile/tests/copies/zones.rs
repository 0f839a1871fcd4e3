//! Zones in memory that copy by themselves: whoever attaches to them loses the power at an operation of choice, and copies fail as the
//! test wants it.

use diecut_blockfile::medium::{Append, Medium, Span};
use diecut_blockspace::wire::{HeldRecord, Shape, Status};
use diecut_blockspace::{BlockError, LogicalBlock, Purpose, UnitIndex};
use diecut_testing::Random;
use std::sync::{Arc, Mutex, MutexGuard};

pub const IU: usize = 4096;
const UNIT_IUS: u32 = 4;
const ZONE_IUS: u32 = 64;
/// Of one command.
const APPEND_IUS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    Empty,
    Open,
    /// Where its writes ended is not known any more: what is behind reads as zeros.
    Full,
    ReadOnly,
}

struct Zone {
    is: Use,
    purpose: u8,
    bytes: Vec<u8>,
}

/// How the device copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    Never,
    Well,
    /// One of so many fails, with a part of it written.
    Fails(u64),
}

/// What crossed the border between host and device, and what did not.
#[derive(Clone, Copy, Debug, Default)]
pub struct Traffic {
    pub read_bytes: u64,
    pub appended_bytes: u64,
    pub copied_bytes: u64,
    pub failed_copies: u64,
    pub failed_appends: u64,
}

struct State {
    zones: Vec<Zone>,
    next: usize,
    copying: Copying,
    /// One of so many appends fails, with a part of it written; none of 0.
    failing_appends: u64,
    random: Random,
    traffic: Traffic,
    /// Operations until the power goes.
    left: Option<u64>,
    is_off: bool,
}

/// The device.
pub struct Zones(Mutex<State>);

/// An attachment.
pub struct Attached(Arc<Zones>);

const GONE: BlockError = BlockError::ServerGone;

fn failed(status: Status) -> BlockError {
    BlockError::Status(status)
}

impl Zones {
    pub fn new(zones: u32, copying: Copying, seed: u64) -> Arc<Zones> {
        let zone = |_| Zone { is: Use::Empty, purpose: 0, bytes: Vec::new() };
        Arc::new(Zones(Mutex::new(State {
            zones: (0..zones).map(zone).collect(),
            next: 0,
            copying,
            failing_appends: 0,
            random: Random::of(seed),
            traffic: Traffic::default(),
            left: None,
            is_off: false,
        })))
    }

    /// With the power up to so many operations that change something; `None` for ever.
    pub fn attach(self: &Arc<Zones>, left: Option<u64>) -> Arc<Attached> {
        let mut state = self.0.lock().unwrap();
        (state.left, state.is_off) = (left, false);
        drop(state);
        Arc::new(Attached(Arc::clone(self)))
    }

    /// From now on one of so many appends fails; none of 0.
    pub fn fail_appends(&self, one_of: u64) {
        self.0.lock().unwrap().failing_appends = one_of;
    }

    pub fn traffic(&self) -> Traffic {
        self.0.lock().unwrap().traffic
    }
}

impl State {
    /// Whether the power lasts over one operation more.
    fn lasts(&mut self) -> bool {
        assert!(!self.is_off, "I-F4: nothing is written after an error");
        self.is_off = self.left == Some(0);
        self.left = self.left.map(|left| left.saturating_sub(1));
        !self.is_off
    }

    fn zone(&mut self, block: LogicalBlock) -> &mut Zone {
        &mut self.zones[block.index as usize]
    }

    /// Some program units, from none up to all.
    fn part(&mut self, bytes: &[u8]) -> usize {
        let unit = UNIT_IUS as usize * IU;
        self.random.below((bytes.len() / unit) as u64 + 1) as usize * unit
    }

    fn read(&self, block: LogicalBlock, offset: usize, bytes: &mut [u8]) -> Result<(), BlockError> {
        let zone = &self.zones[block.index as usize];
        let end = offset + bytes.len();
        let is_told = matches!(zone.is, Use::Full | Use::ReadOnly) && end <= ZONE_IUS as usize * IU;
        if zone.is == Use::Empty || (end > zone.bytes.len() && !is_told) {
            return Err(failed(Status::Erased));
        }
        bytes.fill(0);
        let known = zone.bytes.get(offset..end.min(zone.bytes.len())).unwrap_or(&[]);
        bytes[..known.len()].copy_from_slice(known);
        Ok(())
    }
}

impl Attached {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap()
    }

    /// For an operation that changes something.
    fn change(&self) -> Result<MutexGuard<'_, State>, BlockError> {
        let mut state = self.state();
        if state.lasts() { Ok(state) } else { Err(GONE) }
    }
}

impl Medium for Attached {
    fn shape(&self) -> Shape {
        Shape {
            pages: ZONE_IUS,
            page_size_bytes: IU as u32,
            program_unit_pages: UNIT_IUS,
            unsafe_units: 0,
            units: 1,
        }
    }

    fn append_max_bytes(&self) -> usize {
        APPEND_IUS * IU
    }

    fn side_by_side(&self) -> usize {
        4
    }

    fn open_max(&self) -> usize {
        4
    }

    fn held_blocks(&self) -> Result<Vec<HeldRecord>, BlockError> {
        let state = self.state();
        let held = state.zones.iter().zip(0..).filter(|(zone, _)| zone.is != Use::Empty);
        let record = |(zone, index): (&Zone, u32)| HeldRecord {
            block: LogicalBlock { unit: UnitIndex(0), index },
            purpose: zone.purpose,
            written_pages: (zone.bytes.len() / IU) as u32,
            allocation_sequence: 0,
        };
        Ok(held.map(record).collect())
    }

    fn keep(&self, blocks: &[LogicalBlock]) -> Result<(), BlockError> {
        let mut state = self.change()?;
        for (zone, index) in state.zones.iter_mut().zip(0..) {
            let is_kept = blocks.iter().any(|block| block.index == index);
            assert!(!is_kept || zone.is != Use::Empty, "what is kept is held");
            if !is_kept && zone.is != Use::ReadOnly {
                (zone.is, zone.bytes) = (Use::Empty, Vec::new());
            }
        }
        Ok(())
    }

    fn allocate(&self, unit: UnitIndex, purpose: Purpose) -> Result<LogicalBlock, BlockError> {
        let mut state = self.change()?;
        let open = state.zones.iter().filter(|zone| zone.is == Use::Open).count();
        assert!(open <= self.open_max() + 1, "{open} zones are open, of which one may have failed");
        for _ in 0..state.zones.len() {
            let index = state.next;
            state.next = (index + 1) % state.zones.len();
            let zone = &mut state.zones[index];
            if zone.is == Use::Empty {
                (zone.is, zone.purpose) = (Use::Open, purpose.0);
                return Ok(LogicalBlock { unit, index: index as u32 });
            }
        }
        Err(failed(Status::NoFreeBlock))
    }

    fn append_all(&self, appends: &[Append<'_>]) -> Result<Vec<Result<u64, BlockError>>, BlockError> {
        let mut state = self.state();
        let mut ended = Vec::new();
        for append in appends {
            // What follows in the zone of one that failed fails, too.
            let is_refused = state.zone(append.block).is != Use::Open;
            assert!(!is_refused || state.traffic.failed_appends > 0, "a zone that takes no more");
            if is_refused {
                ended.push(Err(failed(Status::AppendFailed)));
                continue;
            }
            let lasts = state.lasts();
            let one_of = state.failing_appends;
            let fails = one_of > 0 && state.random.below(one_of) == 0;
            let count = if lasts && !fails { append.bytes.len() } else { state.part(append.bytes) };
            let is_told = state.random.below(2) == 0;
            let zone = state.zone(append.block);
            let place = zone.bytes.len();
            assert!(append.bytes.len().is_multiple_of(UNIT_IUS as usize * IU));
            assert!(
                place + append.bytes.len() <= ZONE_IUS as usize * IU && append.bytes.len() <= APPEND_IUS * IU
            );
            zone.bytes.extend(&append.bytes[..count]);
            if fails {
                zone.is = if is_told { Use::Full } else { Use::ReadOnly };
            }
            state.traffic.failed_appends += u64::from(fails);
            if !lasts {
                return Err(GONE);
            }
            state.traffic.appended_bytes += count as u64;
            ended.push(if fails { Err(failed(Status::AppendFailed)) } else { Ok(place as u64) });
        }
        Ok(ended)
    }

    fn can_copy(&self) -> bool {
        self.state().copying != Copying::Never
    }

    fn copy(&self, block: LogicalBlock, sources: &[Span]) -> Result<u64, BlockError> {
        let mut state = self.state();
        let mut bytes = Vec::new();
        for source in sources {
            let mut piece = vec![0; source.length_bytes as usize];
            state.read(source.block, source.offset_bytes as usize, &mut piece)?;
            bytes.extend(piece);
        }
        assert!(bytes.len().is_multiple_of(UNIT_IUS as usize * IU) && !bytes.is_empty());
        let lasts = state.lasts();
        let fails = match state.copying {
            Copying::Fails(one_of) => state.random.below(one_of) == 0,
            _ => false,
        };
        let count = if lasts && !fails { bytes.len() } else { state.part(&bytes) };
        // Where a copy that did not come to its end leaves its zone, nothing may depend on.
        let left = match state.random.below(8) {
            0 => Use::ReadOnly,
            1..4 => Use::Full,
            _ => Use::Open,
        };
        let zone = state.zone(block);
        assert!(zone.is == Use::Open && zone.bytes.len() + bytes.len() <= ZONE_IUS as usize * IU);
        zone.bytes.extend(&bytes[..count]);
        if !lasts || fails {
            zone.is = left;
        }
        if !lasts {
            return Err(GONE);
        }
        state.traffic.copied_bytes += count as u64;
        state.traffic.failed_copies += u64::from(fails);
        // All may have been copied and it fails all the same.
        let told = if fails && count == bytes.len() { 0 } else { count };
        Ok(told as u64)
    }

    fn read(&self, block: LogicalBlock, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        let mut state = self.state();
        if state.is_off {
            return Err(GONE);
        }
        state.traffic.read_bytes += bytes.len() as u64;
        state.read(block, offset_bytes as usize, bytes)
    }

    fn close(&self, block: LogicalBlock) -> Result<(), BlockError> {
        let mut state = self.change()?;
        let zone = state.zone(block);
        if zone.is == Use::Open {
            zone.is = Use::Full;
        }
        Ok(())
    }

    fn free(&self, block: LogicalBlock) -> Result<(), BlockError> {
        let mut state = self.change()?;
        let zone = state.zone(block);
        assert!(zone.is != Use::Empty, "what is freed is held");
        if zone.is != Use::ReadOnly {
            (zone.is, zone.bytes) = (Use::Empty, Vec::new());
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), BlockError> {
        Ok(())
    }

    fn blocks_of_unit(&self, _unit: UnitIndex) -> Result<(u32, u32), BlockError> {
        let state = self.state();
        let free = state.zones.iter().filter(|zone| zone.is == Use::Empty).count();
        let good = state.zones.iter().filter(|zone| zone.is != Use::ReadOnly).count();
        Ok((free as u32, good as u32))
    }
}
