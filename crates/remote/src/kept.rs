//! Work that no complete flush covers. A target that dies may lose what lies in its cache, and answers flushes after its next start as if nothing
//! had been there; so what was answered is done again at a target that comes back.

use diecut_media::{Zone, ZoneCondition};
use diecut_units::Buffer;
use std::collections::{BTreeMap, VecDeque};

/// Bytes that work counts beside its data.
const OVERHEAD_BYTES: usize = 64;

/// A write, as it was sent.
#[derive(Clone, Debug)]
pub(crate) struct KeptWrite {
    pub offset: u64,
    pub data: Buffer,
    /// Its placement handle.
    pub handle: u16,
}

impl KeptWrite {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    /// Bytes of it that lie before a write pointer.
    pub fn before(&self, write_pointer: u64) -> usize {
        (write_pointer.clamp(self.offset, self.end()) - self.offset) as usize
    }
}

/// What is done to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZoneChange {
    Reset,
    Finish,
}

/// What was done, and may be done again.
#[derive(Clone, Debug)]
pub(crate) enum KeptWork {
    Write(KeptWrite),
    /// To the zone that begins there.
    Zone(ZoneChange, u64),
}

impl KeptWork {
    fn offset(&self) -> u64 {
        match self {
            KeptWork::Write(write) => write.offset,
            KeptWork::Zone(_, offset) => *offset,
        }
    }

    fn len_bytes(&self) -> usize {
        OVERHEAD_BYTES + if let KeptWork::Write(write) = self { write.data.len() } else { 0 }
    }
}

/// See the module. In the order in which it was answered.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    works: VecDeque<(u64, KeptWork)>,
    bytes: usize,
    /// Number of the last one.
    last: u64,
}

impl Kept {
    pub fn push(&mut self, work: KeptWork) {
        self.last += 1;
        self.bytes += work.len_bytes();
        self.works.push_back((self.last, work));
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// What a flush that begins now covers.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// A flush that began at this number is complete.
    pub fn flushed(&mut self, covers: u64) {
        while let Some((_, work)) = self.works.pop_front_if(|(number, _)| *number <= covers) {
            self.bytes -= work.len_bytes();
        }
    }

    /// All of them, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &KeptWork> {
        self.works.iter().map(|(_, work)| work)
    }
}

/// How zones are, as they were reported, and what is done again to them before anything else.
pub(crate) struct Settled<'a> {
    zones: &'a [Zone],
    zone_size_bytes: u64,
    /// Of zones that are reset again: where the last reset stands in the list.
    resets: BTreeMap<u64, usize>,
}

impl<'a> Settled<'a> {
    /// Takes from the list what the zones have already. Whether all that was answered can be had back: it cannot where a zone takes no writes and does not
    /// have them.
    pub fn new(
        zones: &'a [Zone],
        zone_size_bytes: u64,
        again: &mut VecDeque<KeptWork>,
    ) -> (Settled<'a>, bool) {
        assert!(zone_size_bytes > 0, "zones have a size");
        let number = |work: &KeptWork| work.offset() / zone_size_bytes;
        let all = again.iter().enumerate();
        let resets = all.filter(|(_, work)| matches!(work, KeptWork::Zone(ZoneChange::Reset, _)));
        let resets = resets.map(|(at, work)| (number(work), at)).collect();
        let settled = Settled { zones, zone_size_bytes, resets };
        let mut ends = BTreeMap::new();
        for (at, work) in std::mem::take(again).into_iter().enumerate() {
            // I-Q7.
            match (settled.resets.get(&number(&work)), work) {
                (Some(reset), work) if at >= *reset => again.push_back(work),
                (Some(_), _) => {}
                (None, KeptWork::Write(write)) => {
                    ends.insert(write.offset / zone_size_bytes, write.end());
                    let KeptWrite { offset, data, handle } = &write;
                    let has = write.before(settled.write_pointer(*offset));
                    if has < data.len() {
                        let (offset, data) = (offset + has as u64, data.slice(has..data.len()));
                        again.push_back(KeptWork::Write(KeptWrite { offset, data, handle: *handle }));
                    }
                }
                (None, work) => again.push_back(work),
            }
        }
        let has = |(number, end): (&u64, &u64)| {
            let zone = settled.zones.get(*number as usize);
            zone.is_some_and(|zone| match zone.condition {
                ZoneCondition::Full => *end >= zone.offset + zone.capacity_bytes,
                ZoneCondition::Closed => *end <= zone.write_pointer,
                ZoneCondition::ReadOnly | ZoneCondition::Offline => false,
                _ => true,
            })
        };
        let is_whole = ends.iter().all(has);
        (settled, is_whole)
    }

    /// Up to where the zone of an offset is written, before anything is done again.
    fn write_pointer(&self, offset: u64) -> u64 {
        let zone = self.zones.get((offset / self.zone_size_bytes) as usize);
        zone.map_or(0, |zone| match zone.condition {
            ZoneCondition::Conventional | ZoneCondition::Empty => zone.offset,
            ZoneCondition::Active | ZoneCondition::Closed => zone.write_pointer,
            _ => zone.offset + zone.capacity_bytes,
        })
    }

    /// Bytes of a write that was not answered which its zone has. One that ends before the end of a zone that takes no writes is not what filled it.
    pub fn has(&self, write: &KeptWrite) -> usize {
        let number = write.offset / self.zone_size_bytes;
        let is_out = |zone: &Zone| match zone.condition {
            ZoneCondition::Full => write.end() < zone.offset + zone.capacity_bytes,
            ZoneCondition::ReadOnly | ZoneCondition::Offline => true,
            _ => false,
        };
        if self.resets.contains_key(&number) || self.zones.get(number as usize).is_none_or(is_out) {
            return 0;
        }
        write.before(self.write_pointer(write.offset))
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn write(offset: u64, len: usize) -> KeptWork {
        KeptWork::Write(KeptWrite { offset, data: Buffer::copy_from(&vec![0; len]), handle: 0 })
    }

    #[test]
    fn a_flush_covers_what_was_there_when_it_began() {
        let mut kept = Kept::default();
        kept.push(write(1, 10));
        let covers = kept.last();
        kept.push(write(2, 10));
        kept.flushed(covers);
        assert_eq!((kept.bytes(), kept.all().next().unwrap().offset()), (10 + OVERHEAD_BYTES, 2));
        kept.flushed(kept.last());
        assert_eq!((kept.bytes(), kept.all().count()), (0, 0));
    }

    /// Goal: what a zone has is not written again, what lies before a reset is nobody's, and what cannot be had back is told. Method: zones of 100 bytes
    /// of which 80 can be written, in every condition.
    #[test]
    fn zones_have_some_of_it() {
        use ZoneCondition::{Active, Empty, Full, Offline};
        let zone = |number: u64, write_pointer, condition| Zone {
            offset: number * 100,
            capacity_bytes: 80,
            write_pointer: number * 100 + write_pointer,
            condition,
        };
        let zones = [zone(0, 15, Active), zone(1, 0, Empty), zone(2, 0, Full), zone(3, 5, Active)];
        let list = |works: &[KeptWork]| {
            let mut again: VecDeque<KeptWork> = works.iter().cloned().collect();
            let (_, is_whole) = Settled::new(&zones, 100, &mut again);
            let again: Vec<(u64, usize)> =
                again.iter().map(|work| (work.offset(), work.len_bytes() - OVERHEAD_BYTES)).collect();
            (again, is_whole)
        };
        assert_eq!(list(&[write(0, 10), write(10, 10), write(20, 1)]), (vec![(15, 5), (20, 1)], true));
        assert_eq!(list(&[write(100, 10), write(270, 10)]), (vec![(100, 10)], true), "written to its end");
        assert_eq!(list(&[write(260, 10)]), (vec![], false), "it takes no writes, and lacks some");
        let reset = KeptWork::Zone(ZoneChange::Reset, 300);
        let finish = KeptWork::Zone(ZoneChange::Finish, 300);
        assert_eq!(
            list(&[write(300, 9), finish, reset.clone(), write(0, 20), write(300, 7)]),
            (vec![(300, 0), (15, 5), (300, 7)], true)
        );
        let mut again = [reset].into_iter().collect();
        let (settled, _) = Settled::new(&zones, 100, &mut again);
        let has = |offset, len| match write(offset, len) {
            KeptWork::Write(write) => settled.has(&write),
            KeptWork::Zone(..) => unreachable!(),
        };
        assert_eq!((has(10, 10), has(15, 10), has(100, 10), has(270, 10)), (5, 0, 0, 10));
        assert_eq!((has(300, 10), has(260, 10)), (0, 0), "reset again before, and filled by something else");
        let offline = [zone(0, 0, Offline)];
        assert!(!Settled::new(&offline, 100, &mut [write(0, 10)].into_iter().collect()).1);
    }
}
