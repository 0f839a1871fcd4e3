//! A host of zones, and one of a volume beside it. Each knows what it wrote, and judges each answer by that.

use super::losses::Lost;
use diecut_namespace::contract::*;
use diecut_units::{Buffer, BufferMut, TAG_SIZE_BYTES};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// What a host knows of a zone.
#[derive(Clone, Debug, Default)]
struct Zone {
    /// Words that were written, from the start of the zone on.
    words: Vec<u64>,
    /// IUs from the first on whose writes were answered.
    answered: u32,
    is_finished: bool,
    /// Asked for, and not answered.
    resets: bool,
    finishes: bool,
    /// A copy to it is under way: where a write behind it goes is not known before its answer.
    is_copied_to: bool,
    under_way: u32,
}

enum Request {
    Write { zone: u32, first: u32, count: u32 },
    Copy { source: u32, zone: u32, first: u32, count: u32 },
    Read { zone: u32, first: u32, count: u32, before: Zone },
    Reset { zone: u32 },
    Finish { zone: u32 },
    Look,
}

pub const REFUSED: &str = "is refused";
pub const WORN: &str = "it was good";

/// Whether that is what hosts find of zones whose vSSD has no good blocks left.
pub fn is_of_worn_zones(found: &str) -> bool {
    [REFUSED, WORN].iter().any(|what| found.contains(what))
}

/// What the zones of a namespace are like.
#[derive(Clone, Copy)]
pub struct ZonesShape {
    pub zones: u32,
    /// Erase blocks of a zone, and units of the vSSD that zones lie on in turn.
    pub width: u32,
    pub units: u32,
    /// IUs of a zone, and of a program unit.
    pub capacity: u32,
    pub unit_ius: u32,
    /// A write is a multiple of so many IUs.
    pub step: u32,
}

impl ZonesShape {
    /// On which unit of the vSSD a program unit of a zone lies.
    fn place(&self, zone: u32, unit: u32) -> u32 {
        (zone * self.width + unit % self.width) % self.units
    }
}

/// A host of one zoned namespace.
pub struct ZoneHost {
    pub namespace: NamespaceId,
    /// Its number among hosts, from 1.
    pub number: u64,
    pub resets: u64,
    pub written_ius: u64,
    /// Of these, IUs that the server copied.
    pub copied_ius: u64,
    zones: Vec<Zone>,
    shape: ZonesShape,
    size_log2: u32,
    requests: BTreeMap<u64, Request>,
    next: u64,
    pub lost: Lost,
}

impl ZoneHost {
    pub fn new(namespace: NamespaceId, number: u64, shape: ZonesShape) -> ZoneHost {
        ZoneHost {
            namespace,
            number,
            resets: 0,
            written_ius: 0,
            copied_ius: 0,
            zones: vec![Zone::default(); shape.zones as usize],
            shape,
            size_log2: shape.capacity.next_power_of_two().trailing_zeros(),
            requests: BTreeMap::new(),
            next: 0,
            lost: Lost::default(),
        }
    }

    pub fn is_quiet(&self) -> bool {
        self.requests.is_empty()
    }

    /// Reads of what lies beside IUs that are lost.
    pub fn read_again(&mut self) -> Vec<(u64, NamespaceOperation)> {
        let beside = self.lost.take_beside();
        beside.into_iter().map(|(zone, first, count)| self.read(zone, first, count)).collect()
    }

    /// A zone is as if nothing had been written to it.
    fn begin_again(&mut self, zone: u32) {
        self.zones[zone as usize] = Zone::default();
        self.lost.forget(zone);
    }

    fn token(&mut self, request: Request) -> u64 {
        self.next += 1;
        self.requests.insert(self.next, request);
        self.next
    }

    fn start(&self, zone: u32) -> u64 {
        u64::from(zone) << self.size_log2
    }

    fn words(&mut self, zone: u32, first: u32, count: u32) -> Vec<u64> {
        let words = (first..first + count).map(|iu| {
            self.next += 1;
            self.number << 60 | u64::from(zone) << 48 | u64::from(iu) << 28 | (self.next & 0xfff_ffff)
        });
        words.collect()
    }

    /// The next command, if it asks for something now.
    pub fn ask(&mut self, random: &mut Xoshiro256PlusPlus) -> Option<(u64, NamespaceOperation)> {
        let zone = random.random_range(0..self.zones.len() as u32);
        let of = self.zones[zone as usize].clone();
        let written = of.words.len() as u32;
        let start = self.start(zone);
        let ZonesShape { capacity, step, .. } = self.shape;
        // The first write of a zone may be refused because too many are active; those behind it would be, too, for another reason.
        let is_active = of.answered > 0 || written == 0;
        let takes_writes = is_active
            && !of.resets
            && !of.finishes
            && !of.is_finished
            && !of.is_copied_to
            && written < capacity;
        match random.random_range(0..100) {
            0..22 if takes_writes && of.under_way == 0 => self.copy(zone, random),
            0..60 if takes_writes => {
                let most = (capacity - written).div_ceil(step).min(60 / step.min(60));
                let count = random.random_range(1..=most.max(1)) * step;
                let words = self.words(zone, written, count);
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let data = Buffer::copy_from(&bytes);
                let place = &mut self.zones[zone as usize];
                place.words.extend(words);
                place.under_way += 1;
                let token = self.token(Request::Write { zone, first: written, count });
                let operation = if random.random_ratio(1, 2) {
                    NamespaceOperation::Zone(ZoneRequest::Append { zone_lba: start, lba_count: count, data })
                } else {
                    let range = LbaRange { first_lba: start + u64::from(written), lba_count: count };
                    NamespaceOperation::Write {
                        range,
                        data,
                        force_unit_access: false,
                        placement: PlacementTarget::default(),
                    }
                };
                Some((token, operation))
            }
            60..85 => {
                let first = random.random_range(0..capacity);
                let count = random.random_range(1..=(capacity - first).min(70));
                Some(self.read(zone, first, count))
            }
            85..92 if of.under_way == 0 => {
                let place = &mut self.zones[zone as usize];
                (place.resets, place.under_way) = (true, 1);
                let token = self.token(Request::Reset { zone });
                let request = ZoneRequest::Act { zone_lba: Some(start), action: ZoneAction::Reset };
                Some((token, NamespaceOperation::Zone(request)))
            }
            92..96 if of.under_way == 0 => {
                let place = &mut self.zones[zone as usize];
                (place.finishes, place.under_way) = (true, 1);
                let token = self.token(Request::Finish { zone });
                let request = ZoneRequest::Act { zone_lba: Some(start), action: ZoneAction::Finish };
                Some((token, NamespaceOperation::Zone(request)))
            }
            _ => None,
        }
    }

    /// A copy of what some zone holds, behind what another one holds: most often of whole program units that a die can copy, as far as that goes
    /// behind what the last unit lacks. Nothing else is written there before it is answered, and its source is not reset.
    fn copy(&mut self, zone: u32, random: &mut Xoshiro256PlusPlus) -> Option<(u64, NamespaceOperation)> {
        let shape = self.shape;
        let may_be = |source: &u32| {
            let from = &self.zones[*source as usize];
            *source != zone && !from.resets && from.answered >= shape.unit_ius
        };
        let may_be: Vec<u32> = (0..shape.zones).filter(may_be).collect();
        let source = *may_be.get(random.random_range(0..may_be.len().max(1)))?;
        let (from, of) = (&self.zones[source as usize], &self.zones[zone as usize]);
        let written = of.words.len() as u32;
        let room = (shape.capacity - written).min(256);
        let lacks = written.next_multiple_of(shape.unit_ius) - written;
        if room < lacks {
            return None;
        }
        let goal = shape.place(zone, (written + lacks) / shape.unit_ius);
        let near = (0..from.answered / shape.unit_ius).filter(|unit| shape.place(source, *unit) == goal);
        let near: Vec<u32> = near.collect();
        let unit = if random.random_ratio(1, 5) {
            0
        } else {
            *near.get(random.random_range(0..near.len().max(1)))?
        };
        let most = ((room - lacks) / shape.unit_ius).min(from.answered / shape.unit_ius - unit);
        let units = random.random_range(most.min(1)..=most.min(6));
        let ranges = [(0, lacks), (unit * shape.unit_ius, units * shape.unit_ius)];
        let ranges = ranges.into_iter().filter(|(_, count)| *count > 0);
        let words: Vec<u64> = ranges
            .clone()
            .flat_map(|(first, count)| from.words[first as usize..(first + count) as usize].iter().copied())
            .collect();
        if words.is_empty() {
            return None;
        }
        let start = self.start(source);
        let sources =
            ranges.map(|(first, lba_count)| LbaRange { first_lba: start + u64::from(first), lba_count });
        let copy = NamespaceCopy {
            sources: sources.collect(),
            first_lba: self.start(zone) + u64::from(written),
            force_unit_access: false,
            placement: PlacementTarget::default(),
        };
        let count = words.len() as u32;
        self.zones[source as usize].under_way += 1;
        let place = &mut self.zones[zone as usize];
        place.words.extend(words);
        (place.under_way, place.is_copied_to) = (1, true);
        let token = self.token(Request::Copy { source, zone, first: written, count });
        Some((token, NamespaceOperation::Copy(Box::new(copy))))
    }

    fn read(&mut self, zone: u32, first: u32, count: u32) -> (u64, NamespaceOperation) {
        self.zones[zone as usize].under_way += 1;
        let before = self.zones[zone as usize].clone();
        let token = self.token(Request::Read { zone, first, count, before });
        let destination = BufferMut::copy_from(&vec![0xee; count as usize * TAG_SIZE_BYTES]);
        let range = LbaRange { first_lba: self.start(zone) + u64::from(first), lba_count: count };
        (token, NamespaceOperation::Read { range, destination })
    }

    /// Reads of everything.
    pub fn read_all(&mut self) -> Vec<(u64, NamespaceOperation)> {
        let pieces = (0..self.zones.len() as u32).flat_map(|zone| {
            let firsts = (0..self.shape.capacity).step_by(200);
            firsts.map(move |first| (zone, first))
        });
        let pieces: Vec<(u32, u32)> = pieces.collect();
        let capacity = self.shape.capacity;
        pieces.into_iter().map(|(zone, first)| self.read(zone, first, (capacity - first).min(200))).collect()
    }

    /// Asks how zones are.
    pub fn look(&mut self) -> (u64, NamespaceOperation) {
        let token = self.token(Request::Look);
        let request = ReportRequest { first_zone: 0, state: None, count_max: 1000, is_extended: false };
        (token, NamespaceOperation::Zone(ZoneRequest::Report(request)))
    }

    /// The server is gone; what was under way may have happened.
    pub fn crashed(&mut self) {
        self.requests.clear();
        self.lost.take_beside();
        self.zones.iter_mut().for_each(|zone| (zone.under_way, zone.is_copied_to) = (0, false));
    }

    pub fn completed(&mut self, completion: NamespaceCompletion) -> Result<(), String> {
        let number = completion.token.0 & ((1 << 56) - 1);
        let Some(request) = self.requests.remove(&number) else {
            return Err(format!("command {number} is answered, and nobody waits for it"));
        };
        let start = |zone: u32| u64::from(zone) << self.size_log2;
        if let Request::Copy { source, zone, .. } = request {
            self.zones[source as usize].under_way -= 1;
            self.zones[zone as usize].is_copied_to = false;
        }
        match (&completion.result, &request) {
            (Err(NamespaceError::Unrecovered { lba }), Request::Copy { source, zone, first, .. }) => {
                // Nothing was written.
                let place = &mut self.zones[*zone as usize];
                place.words.truncate(*first as usize);
                place.under_way -= 1;
                let answered = self.zones[*source as usize].answered;
                let lost = lba.wrapping_sub(self.start(*source));
                self.lost.found(*source, 0, answered, lost)?;
                self.lost.take_beside();
                return Ok(());
            }
            (Err(NamespaceError::Unrecovered { lba }), Request::Read { zone, first, count, .. }) => {
                self.zones[*zone as usize].under_way -= 1;
                return self.lost.found(*zone, *first, *count, lba.wrapping_sub(self.start(*zone)));
            }
            (Err(error), _) => return self.refused(&request, error),
            (Ok(()), _) => {}
        }
        match request {
            Request::Write { zone, first, count } | Request::Copy { zone, first, count, .. } => {
                let is_copy = matches!(request, Request::Copy { .. });
                if let Some(ZoneOutcome::Appended(lba)) = completion.zones
                    && lba != start(zone) + u64::from(first)
                {
                    return Err(format!(
                        "zone {zone}: an append is told at {lba:#x}, and belongs at IU {first}"
                    ));
                }
                let zone_state = &mut self.zones[zone as usize];
                zone_state.under_way -= 1;
                if zone_state.answered > first {
                    return Err(format!("zone {zone}: a write at {first} is answered after one behind it"));
                }
                zone_state.answered = first + count;
                self.written_ius += u64::from(count);
                self.copied_ius += if is_copy { u64::from(count) } else { 0 };
            }
            Request::Read { zone, first, count, before } => {
                let data = completion.data.ok_or("a read gives content")?;
                let now = &mut self.zones[zone as usize];
                now.under_way -= 1;
                if data.len() != count as usize * TAG_SIZE_BYTES {
                    return Err(format!("zone {zone}: a read of {count} IUs gives {} bytes", data.len()));
                }
                for (iu, content) in (first..).zip(data.chunks_exact(TAG_SIZE_BYTES)) {
                    let word = u64::from_le_bytes(content.try_into().expect("8 bytes"));
                    let written = before.words.get(iu as usize).or(now.words.get(iu as usize)).copied();
                    let may_be_zero = iu >= before.answered || before.resets;
                    if Some(word) != written && !(word == 0 && may_be_zero) {
                        return Err(format!(
                            "zone {zone} IU {iu} reads as {word:x}, and {written:x?} was written"
                        ));
                    }
                }
            }
            Request::Reset { zone } => {
                self.resets += 1;
                self.begin_again(zone);
            }
            Request::Finish { zone } => {
                let zone = &mut self.zones[zone as usize];
                (zone.is_finished, zone.finishes, zone.under_way) = (true, false, zone.under_way - 1);
            }
            Request::Look => {
                let Some(ZoneOutcome::Report(report)) = completion.zones else {
                    return Err("a report says nothing".to_owned());
                };
                if report.zones.len() != self.zones.len() {
                    return Err(format!("{} zones are reported of {}", report.zones.len(), self.zones.len()));
                }
                report.zones.iter().try_for_each(|found| self.compare(found))?;
            }
        }
        Ok(())
    }

    /// What a zone is after a restart.
    fn compare(&mut self, found: &ZoneDescriptor) -> Result<(), String> {
        let capacity = self.shape.capacity;
        if found.state == ZoneState::Empty && self.zones[found.zone as usize].resets {
            self.begin_again(found.zone);
            return Ok(());
        }
        let zone = &mut self.zones[found.zone as usize];
        let wrong = |what: &str| Err(format!("zone {} is {found:?}: {what}; {zone:?}", found.zone));
        if found.state.is_open() {
            return wrong("it is open");
        }
        if !(zone.answered..=zone.words.len() as u32).contains(&found.written_ius) {
            return wrong("its write pointer is not where it may be");
        }
        if found.state == ZoneState::ReadOnly {
            return wrong(WORN);
        }
        let is_full = found.state == ZoneState::Full;
        if zone.is_finished && !is_full {
            return wrong("it was finished");
        }
        if is_full && !(zone.is_finished || zone.finishes || found.written_ius == capacity) {
            return wrong("nobody filled it");
        }
        zone.words.truncate(found.written_ius as usize);
        zone.answered = found.written_ius;
        (zone.is_finished, zone.resets, zone.finishes) = (is_full, false, false);
        Ok(())
    }

    /// Only what limits allow is refused; nothing changed then.
    fn refused(&mut self, request: &Request, error: &NamespaceError) -> Result<(), String> {
        let limits = [ZoneRefusal::TooManyActive, ZoneRefusal::TooManyOpen];
        let is_limit = matches!(error, NamespaceError::Zone(refusal) if limits.contains(refusal));
        let zone = match request {
            Request::Write { zone, first, .. } | Request::Copy { zone, first, .. } if is_limit => {
                self.zones[*zone as usize].words.truncate(*first as usize);
                *zone
            }
            Request::Finish { zone } if is_limit => {
                self.zones[*zone as usize].finishes = false;
                *zone
            }
            Request::Write { zone, first, count } | Request::Copy { zone, first, count, .. } => {
                let of = &self.zones[*zone as usize];
                return Err(format!(
                    "zone {zone}: a write of {count} at {first} {REFUSED}: {error}; answered {}, finished {}",
                    of.answered, of.is_finished
                ));
            }
            Request::Finish { zone } => {
                let of = &self.zones[*zone as usize];
                return Err(format!(
                    "zone {zone}: its finish {REFUSED}: {error}; answered {}, finished {}",
                    of.answered, of.is_finished
                ));
            }
            _ => return Err(format!("a command {REFUSED}: {error}")),
        };
        self.zones[zone as usize].under_way -= 1;
        Ok(())
    }
}

/// Blocks of the neighbour's volume.
const NEIGHBOUR_BLOCKS: u64 = 200;

/// A host of a volume beside the zones: what it wrote and was answered stays, whatever happens to those.
pub struct NeighbourHost {
    pub namespace: NamespaceId,
    /// Words that each block may hold.
    blocks: Vec<Vec<u64>>,
    /// Writes and reads under way: first block, number of blocks, word.
    requests: BTreeMap<u64, (u64, u64, Option<u64>)>,
    next: u64,
}

impl NeighbourHost {
    pub fn new() -> NeighbourHost {
        NeighbourHost {
            namespace: NamespaceId(0),
            blocks: vec![vec![0]; NEIGHBOUR_BLOCKS as usize],
            requests: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn shown(&mut self, namespace: NamespaceId) {
        self.namespace = namespace;
    }

    pub fn is_quiet(&self) -> bool {
        self.requests.is_empty()
    }

    pub fn crashed(&mut self) {
        self.requests.clear();
    }

    pub fn ask(&mut self, random: &mut Xoshiro256PlusPlus) -> Option<(u64, NamespaceOperation)> {
        if !self.requests.is_empty() {
            return None;
        }
        self.next += 1;
        let first = random.random_range(0..NEIGHBOUR_BLOCKS);
        let count = random.random_range(1..=(NEIGHBOUR_BLOCKS - first).min(8));
        let range = LbaRange { first_lba: first, lba_count: count as u32 };
        let word = 0xf << 60 | self.next;
        self.blocks[first as usize..(first + count) as usize].iter_mut().for_each(|block| block.push(word));
        self.requests.insert(self.next, (first, count, Some(word)));
        let data = Buffer::copy_from(&word.to_le_bytes().repeat(count as usize));
        Some((
            self.next,
            NamespaceOperation::Write {
                range,
                data,
                force_unit_access: true,
                placement: PlacementTarget::default(),
            },
        ))
    }

    pub fn read_all(&mut self) -> (u64, NamespaceOperation) {
        self.next += 1;
        self.requests.insert(self.next, (0, NEIGHBOUR_BLOCKS, None));
        let destination = BufferMut::copy_from(&vec![0xee; NEIGHBOUR_BLOCKS as usize * TAG_SIZE_BYTES]);
        let range = LbaRange { first_lba: 0, lba_count: NEIGHBOUR_BLOCKS as u32 };
        (self.next, NamespaceOperation::Read { range, destination })
    }

    pub fn completed(&mut self, completion: NamespaceCompletion) -> Result<(), String> {
        let Some((first, count, word)) = self.requests.remove(&completion.token.0) else {
            return Err("the neighbour is answered, and waits for nothing".to_owned());
        };
        completion.result.map_err(|error| format!("the neighbour of the zones is refused: {error}"))?;
        let blocks = self.blocks[first as usize..(first + count) as usize].iter_mut();
        match word {
            Some(word) => blocks.for_each(|block| block.retain(|other| *other == word)),
            None => {
                let data = completion.data.ok_or("a read gives content")?;
                for ((at, block), content) in (first..).zip(blocks).zip(data.chunks_exact(TAG_SIZE_BYTES)) {
                    let word = u64::from_le_bytes(content.try_into().expect("8 bytes"));
                    if !block.contains(&word) {
                        return Err(format!(
                            "block {at} of the neighbour is {word:x}, and may be {block:x?}"
                        ));
                    }
                    *block = vec![word];
                }
            }
        }
        Ok(())
    }
}
