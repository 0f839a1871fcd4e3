//! The zones of a namespace, over NVMe/TCP.
//!
//! What a zone is for stands in its descriptor extension, which is set before anything is written. A zone of another
//! application has no extension of this kind.
//!
//! A read behind the write pointer of an open zone brings zeros, not an error. So where appends of each zone ended is kept here: a batch of which a
//! power cut left a part must not look whole.

use super::connection::{Connection, Errand};
use super::copies::Copies;
use super::error::ZonesError;
use super::fence::Fence;
use super::finding::{
    TRANSFER_MAX_BYTES, choose, endpoint, random, report, shape_of, subsystem_of, unit_of_append_bytes,
};
use super::table::{Known, Use, extension_for};
use super::{Append, Medium, Span};
use diecut_blockspace::wire::{HeldRecord, Shape, Status};
use diecut_blockspace::{BlockError, LogicalBlock, Purpose, UnitIndex};
use diecut_initiator::zoned::{ZoneSpan, ZonedNamespace};
use diecut_nvme::Status as NvmeStatus;
use diecut_units::IU_SIZE_BYTES;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Appends that are given to a stream at once.
const SIDE_BY_SIDE: usize = 32;
/// Zones that must be able to be active at once: one of each of two streams, the checkpoint's, and one that failed.
const ACTIVE_MIN: u32 = 4;

/// The zones of a namespace that this process holds until it drops this.
pub struct Zones {
    connection: Connection,
    fence: Option<Fence>,
    namespace: ZonedNamespace,
    shape: Shape,
    copies: Copies,
    transfer_max_bytes: usize,
    open_max: usize,
    zones: Mutex<Vec<Known>>,
    /// Where the next allocation begins to look: zones are used in turn, so that they wear evenly.
    next: Mutex<usize>,
}

impl Zones {
    /// Attaches to the zones of a subsystem's namespace. Whoever held them before can write no more.
    ///
    /// # Errors
    /// See [`ZonesError`].
    pub fn attach(place: &str, name: &str) -> Result<Zones, ZonesError> {
        let (nqn, wanted) = subsystem_of(name);
        let endpoint = endpoint(place, nqn)?;
        let connection = Connection::open(&endpoint)?;
        let namespace = choose(&connection, nqn, wanted)?;
        let nsid = namespace.nsid;
        if namespace.extension_size_bytes == 0 {
            return Err(ZonesError::NoExtension { nsid });
        }
        let limits = [namespace.active_max, namespace.open_max].into_iter().flatten();
        let active = limits.min().unwrap_or(u32::MAX);
        if active < ACTIVE_MIN {
            return Err(ZonesError::TooFewActive { nsid, active, min: ACTIVE_MIN });
        }
        let transfer_max = connection.facts().transfer_bytes_max.min(TRANSFER_MAX_BYTES);
        let unit_bytes = unit_of_append_bytes(&namespace, transfer_max)?;
        let fence = Fence::put_up(&connection, nsid, random() | 1)?;
        let facts = report(&connection, &namespace)?;
        let shape = shape_of(&namespace, &facts, unit_bytes);
        let lba_bytes = namespace.lba_bytes;
        let copies = Copies::new(
            connection.facts().takes.copies,
            namespace.copy_limits,
            unit_bytes as u32 / lba_bytes,
            IU_SIZE_BYTES as u32 / lba_bytes,
        );
        let mut zones = vec![Known::untold(); namespace.zones as usize];
        for zone in &facts {
            zones[zone.zone as usize] = Known::of(zone, &namespace, shape.pages);
        }
        Ok(Zones {
            transfer_max_bytes: transfer_max as usize / unit_bytes as usize * unit_bytes as usize,
            // One stays for a zone in which a write failed, which is not given up before a checkpoint.
            open_max: (active - 1) as usize,
            connection,
            fence,
            namespace,
            shape,
            copies,
            zones: Mutex::new(zones),
            next: Mutex::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Known>> {
        self.zones.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self, block: LogicalBlock) -> Result<Known, BlockError> {
        let known = self.lock().get(block.index as usize).copied();
        known.filter(|_| block.unit.0 == 0).ok_or(BlockError::Status(Status::Invalid))
    }

    fn check_written(&self, block: LogicalBlock, end_bytes: u64) -> Result<(), BlockError> {
        let known = self.known(block)?;
        let is_within = end_bytes <= u64::from(known.written_ius) * IU_SIZE_BYTES as u64;
        if is_within && known.state != Use::Empty { Ok(()) } else { Err(BlockError::Status(Status::Erased)) }
    }

    fn lbas(&self, bytes: u64) -> u64 {
        bytes / u64::from(self.namespace.lba_bytes)
    }

    fn run(&self, errands: Vec<Errand<'_>>) -> Result<Vec<NvmeStatus>, BlockError> {
        self.connection.run(errands).map_err(|_| BlockError::ServerGone)
    }

    /// A zone that does not do what every zone does is looked at: the medium may have ended it.
    fn look_again(&self, zone: u32) -> Result<(), BlockError> {
        let command = self.namespace.report(zone, 1);
        let mut page = vec![0; command.expected_bytes as usize];
        let statuses = self.run(vec![Errand::into(command, &mut page)])?;
        let found = self.namespace.zones_of(&page).into_iter().find(|one| one.zone == zone);
        if let (true, Some(found)) = (statuses[0].is_success(), found) {
            let mut zones = self.lock();
            let before = zones[zone as usize];
            let now = Known::of(&found, &self.namespace, self.shape.pages);
            // Where appends ended is known better here.
            zones[zone as usize] = Known { written_ius: before.written_ius, ..now };
        }
        Ok(())
    }
}

impl Drop for Zones {
    fn drop(&mut self) {
        if let Some(fence) = &self.fence {
            fence.take_down(&self.connection);
        }
    }
}

impl Medium for Zones {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn append_max_bytes(&self) -> usize {
        self.transfer_max_bytes
    }

    fn side_by_side(&self) -> usize {
        SIDE_BY_SIDE
    }

    fn open_max(&self) -> usize {
        self.open_max
    }

    fn held_blocks(&self) -> Result<Vec<HeldRecord>, BlockError> {
        let zones = self.lock();
        let held = zones
            .iter()
            .zip(0..)
            .filter(|(known, _)| matches!(known.state, Use::Held | Use::Full | Use::ReadOnly));
        let records = held.map(|(known, index)| HeldRecord {
            block: LogicalBlock { unit: UnitIndex(0), index },
            purpose: known.purpose,
            written_pages: known.written_ius,
            allocation_sequence: 0,
        });
        Ok(records.collect())
    }

    fn keep(&self, blocks: &[LogicalBlock]) -> Result<(), BlockError> {
        for block in blocks {
            if matches!(self.known(*block)?.state, Use::Empty | Use::Offline) {
                return Err(BlockError::Status(Status::NotAllocated));
            }
        }
        let kept: std::collections::BTreeSet<u32> = blocks.iter().map(|block| block.index).collect();
        let others: Vec<u32> = (0..self.namespace.zones)
            .filter(|zone| !kept.contains(zone))
            .filter(|zone| matches!(self.lock()[*zone as usize].state, Use::Held | Use::Full))
            .collect();
        for zone in others {
            self.free(LogicalBlock { unit: UnitIndex(0), index: zone })?;
        }
        Ok(())
    }

    fn allocate(&self, unit: UnitIndex, purpose: Purpose) -> Result<LogicalBlock, BlockError> {
        if unit.0 != 0 {
            return Err(BlockError::Status(Status::Invalid));
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.namespace.zones as usize;
        for _ in 0..count {
            let zone = *next;
            *next = (zone + 1) % count;
            if self.lock()[zone].state != Use::Empty {
                continue;
            }
            let command = self.namespace.set_extension(zone as u32, &extension_for(purpose.0));
            let status = self.run(vec![Errand::of(command)])?[0];
            if status.is_success() {
                self.lock()[zone] = Known::allocated(purpose.0);
                return Ok(LogicalBlock { unit, index: zone as u32 });
            }
            if status.same_code(NvmeStatus::RESERVATION_CONFLICT) {
                return Err(BlockError::Status(Status::Held));
            }
            if status.same_code(NvmeStatus::TOO_MANY_ACTIVE_ZONES) {
                break;
            }
            self.look_again(zone as u32)?;
        }
        Err(BlockError::Status(Status::NoFreeBlock))
    }

    fn append_all(&self, appends: &[Append<'_>]) -> Result<Vec<Result<u64, BlockError>>, BlockError> {
        let mut places = Vec::with_capacity(appends.len());
        let mut ends = std::collections::BTreeMap::new();
        let mut errands = Vec::with_capacity(appends.len());
        for append in appends {
            let zone = append.block.index;
            let end = match ends.get(&zone) {
                Some(end) => *end,
                None => self.known(append.block)?.written_ius,
            };
            let ius = (append.bytes.len() / IU_SIZE_BYTES) as u32;
            if end + ius > self.shape.pages {
                return Err(BlockError::Status(Status::BlockFull));
            }
            let place = u64::from(end) * IU_SIZE_BYTES as u64;
            let command = self.namespace.write(zone, self.lbas(place), append.bytes);
            // A write is at the write pointer: it waits for the one before.
            errands.push(Errand { in_turn: Some(zone), ..Errand::of(command) });
            places.push(place);
            ends.insert(zone, end + ius);
        }
        let statuses = self.run(errands)?;
        let mut ended = Vec::with_capacity(appends.len());
        let mut failed = std::collections::BTreeSet::new();
        for ((append, place), status) in appends.iter().zip(&places).zip(statuses) {
            let zone = append.block.index;
            if status.is_success() {
                let ius = (append.bytes.len() / IU_SIZE_BYTES) as u32;
                let known = &mut self.lock()[zone as usize];
                assert_eq!(
                    u64::from(known.written_ius) * IU_SIZE_BYTES as u64,
                    *place,
                    "writes of a zone are answered in their turn"
                );
                known.written_ius += ius;
                ended.push(Ok(*place));
                continue;
            }
            failed.insert(zone);
            let is_fenced = status.same_code(NvmeStatus::RESERVATION_CONFLICT);
            let why = if is_fenced { Status::Held } else { Status::AppendFailed };
            ended.push(Err(BlockError::Status(why)));
        }
        for zone in failed {
            self.look_again(zone)?;
        }
        Ok(ended)
    }

    fn can_copy(&self) -> bool {
        self.copies.are_taken()
    }

    fn copy(&self, block: LogicalBlock, sources: &[Span]) -> Result<u64, BlockError> {
        let zone = block.index;
        let begin = u64::from(self.known(block)?.written_ius) * IU_SIZE_BYTES as u64;
        let mut spans = Vec::with_capacity(sources.len());
        for source in sources {
            // What was never written is zeros for a device.
            self.check_written(source.block, source.offset_bytes + source.length_bytes)?;
            let (first, count) = (self.lbas(source.offset_bytes), self.lbas(source.length_bytes) as u32);
            spans.push(ZoneSpan { zone: source.block.index, first, count });
        }
        let (mut errands, mut ends) = (Vec::new(), vec![self.lbas(begin)]);
        for spans in self.copies.commands(spans) {
            let first = ends[errands.len()];
            errands
                .push(Errand { in_turn: Some(zone), ..Errand::of(self.namespace.copy(zone, first, &spans)) });
            ends.push(first + spans.iter().map(|span| u64::from(span.count)).sum::<u64>());
        }
        if ends[errands.len()] > self.lbas(u64::from(self.shape.pages) * IU_SIZE_BYTES as u64) {
            return Err(BlockError::Status(Status::BlockFull));
        }
        let statuses = self.run(errands)?;
        let whole = statuses.iter().take_while(|status| status.is_success()).count();
        let copied = (ends[whole] - ends[0]) * u64::from(self.namespace.lba_bytes);
        self.lock()[zone as usize].written_ius += (copied / IU_SIZE_BYTES as u64) as u32;
        if let Some(status) = statuses.get(whole) {
            if status.same_code(NvmeStatus::RESERVATION_CONFLICT) {
                return Err(BlockError::Status(Status::Held));
            }
            self.copies.note_failure(*status);
            self.look_again(zone)?;
        }
        Ok(copied)
    }

    fn read(&self, block: LogicalBlock, offset_bytes: u64, bytes: &mut [u8]) -> Result<(), BlockError> {
        self.check_written(block, offset_bytes + bytes.len() as u64)?;
        let mut offset = offset_bytes;
        let mut errands = Vec::new();
        for piece in bytes.chunks_mut(self.transfer_max_bytes) {
            let count = self.lbas(piece.len() as u64) as u32;
            let command = self.namespace.read(block.index, self.lbas(offset), count);
            offset += piece.len() as u64;
            errands.push(Errand::into(command, piece));
        }
        if self.run(errands)?.iter().all(|status| status.is_success()) {
            Ok(())
        } else {
            Err(BlockError::Status(Status::Uncorrectable))
        }
    }

    fn close(&self, block: LogicalBlock) -> Result<(), BlockError> {
        // One that the medium said to be full needs no command; at an attach most are.
        if self.known(block)?.state == Use::Held {
            let status = self.run(vec![Errand::of(self.namespace.finish(block.index))])?[0];
            // One that cannot be finished is looked at when it is freed.
            if status.is_success() {
                self.lock()[block.index as usize].state = Use::Full;
            }
        }
        Ok(())
    }

    fn free(&self, block: LogicalBlock) -> Result<(), BlockError> {
        match self.known(block)?.state {
            Use::Empty => return Err(BlockError::Status(Status::NotAllocated)),
            // Nothing of it is needed, and it is of no use any more.
            Use::ReadOnly | Use::Offline => return Ok(()),
            Use::Held | Use::Full => {}
        }
        let status = self.run(vec![Errand::of(self.namespace.reset(block.index))])?[0];
        if status.is_success() {
            self.lock()[block.index as usize] = Known::empty();
            Ok(())
        } else if status.same_code(NvmeStatus::RESERVATION_CONFLICT) {
            Err(BlockError::Status(Status::Held))
        } else {
            self.look_again(block.index)
        }
    }

    fn sync(&self) -> Result<(), BlockError> {
        // A reset is durable when it is answered.
        Ok(())
    }

    fn blocks_of_unit(&self, unit: UnitIndex) -> Result<(u32, u32), BlockError> {
        if unit.0 != 0 {
            return Err(BlockError::Status(Status::Invalid));
        }
        let zones = self.lock();
        let free = zones.iter().filter(|known| known.state == Use::Empty).count();
        let good =
            zones.iter().filter(|known| matches!(known.state, Use::Empty | Use::Held | Use::Full)).count();
        Ok((free as u32, good as u32))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    #[test]
    fn what_cannot_be_attached_to_says_why() {
        let said = |place, name| Zones::attach(place, name).err().expect("nobody is there").to_string();
        assert!(said("nowhere:x", "nqn.2026-11.org.diecut:a").contains("HOST:PORT"));
        assert!(said("127.0.0.1:1", "").contains("subsystem NQN"));
        assert!(said("127.0.0.1:1", "nqn.2026-11.org.diecut:a").contains("is the server running"));
    }
}
