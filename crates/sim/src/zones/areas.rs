//! A host of zones with random write areas: it writes anywhere in the area and beyond it, commits, and knows of each IU what it may hold. What it
//! asks of one zone it asks one at a time, so write pointers are known to the IU.

use super::losses::Lost;
use diecut_namespace::contract::*;
use diecut_units::{Buffer, BufferMut, TAG_SIZE_BYTES};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// Its number among hosts.
pub const NUMBER: u64 = 3;

/// What a host knows of a zone.
#[derive(Clone, Debug, Default)]
struct Zone {
    /// Words that each IU may hold, the newest one last. An IU that is not named holds zeros.
    words: BTreeMap<u32, Vec<u64>>,
    /// IUs before the write pointer, as answered, and as they may be after a restart.
    committed: u32,
    committed_max: u32,
    has_area: bool,
    is_open: bool,
    /// A host asked for it: only a host closes it.
    is_explicit: bool,
    /// Its area is gone, or it is full: it takes a reset only.
    is_over: bool,
    is_finished: bool,
    /// Asked for, and not answered.
    resets: bool,
    finishes: bool,
    opens: bool,
    under_way: bool,
    /// Reads under way, and how often something was asked that changes it.
    reads: u32,
    changes: u32,
    /// Resets so far.
    lives: u32,
}

impl Zone {
    fn may_hold(&self, iu: u32, word: u64) -> bool {
        self.words.get(&iu).map_or(word == 0, |words| words.contains(&word))
    }
}

enum Request {
    Write { zone: u32, first: u32, words: Vec<u64>, to: u32 },
    Commit { zone: u32, to: u32 },
    Read { zone: u32, first: u32, count: u32, before: Zone },
    Open { zone: u32 },
    Close { zone: u32 },
    Finish { zone: u32 },
    Reset { zone: u32 },
    Look,
}

/// See the module.
pub struct AreaHost {
    pub namespace: NamespaceId,
    pub lost: Lost,
    pub written_ius: u64,
    /// Commits that were asked for, and that writes beyond the area made.
    pub commits: [u64; 2],
    zones: Vec<Zone>,
    capacity: u32,
    size_log2: u32,
    area: u32,
    unit: u32,
    requests: BTreeMap<u64, Request>,
    next: u64,
}

impl AreaHost {
    /// Of `zones` zones of `capacity` IUs, with areas of `area` IUs that are committed in multiples of `unit`.
    pub fn new(namespace: NamespaceId, zones: u32, capacity: u32, area: u32, unit: u32) -> AreaHost {
        AreaHost {
            namespace,
            lost: Lost::default(),
            written_ius: 0,
            commits: [0; 2],
            zones: vec![Zone::default(); zones as usize],
            capacity,
            size_log2: capacity.next_power_of_two().trailing_zeros(),
            area,
            unit,
            requests: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn is_quiet(&self) -> bool {
        self.requests.is_empty()
    }

    fn token(&mut self, request: Request) -> u64 {
        self.next += 1;
        self.requests.insert(self.next, request);
        self.next
    }

    fn start(&self, zone: u32) -> u64 {
        u64::from(zone) << self.size_log2
    }

    /// The next command, if it asks for something now.
    pub fn ask(&mut self, random: &mut Xoshiro256PlusPlus) -> Option<(u64, NamespaceOperation)> {
        let zone = random.random_range(0..self.zones.len() as u32);
        let of = &self.zones[zone as usize];
        let draw = random.random_range(0..100);
        if (70..85).contains(&draw) {
            let first = random.random_range(0..self.capacity);
            let count = random.random_range(1..=(self.capacity - first).min(40));
            return Some(self.read(zone, first, count));
        }
        if of.under_way {
            return None;
        }
        let (has_area, is_over, is_open) = (of.has_area, of.is_over, of.is_open);
        let act =
            |action, start| NamespaceOperation::Zone(ZoneRequest::Act { zone_lba: Some(start), action });
        let start = self.start(zone);
        match draw {
            0..70 if !has_area && !is_over => {
                self.begin(zone).opens = true;
                Some((self.token(Request::Open { zone }), act(ZoneAction::Open { random: true }, start)))
            }
            0..55 if has_area && !is_over => self.write(zone, random),
            55..70 if has_area && !is_over && is_open => self.commit(zone, random),
            55..70 if has_area && !is_over => {
                self.begin(zone);
                Some((self.token(Request::Open { zone }), act(ZoneAction::Open { random: false }, start)))
            }
            85..90 if is_open && !is_over => {
                self.begin(zone);
                Some((self.token(Request::Close { zone }), act(ZoneAction::Close, start)))
            }
            90..92 if has_area && !is_over => {
                self.begin(zone).finishes = true;
                Some((self.token(Request::Finish { zone }), act(ZoneAction::Finish, start)))
            }
            92..96 => {
                self.begin(zone).resets = true;
                Some((self.token(Request::Reset { zone }), act(ZoneAction::Reset, start)))
            }
            _ => None,
        }
    }

    /// Something is asked that changes a zone.
    fn begin(&mut self, zone: u32) -> &mut Zone {
        let zone = &mut self.zones[zone as usize];
        (zone.under_way, zone.changes) = (true, zone.changes + 1);
        zone
    }

    fn write(&mut self, zone: u32, random: &mut Xoshiro256PlusPlus) -> Option<(u64, NamespaceOperation)> {
        let (committed, area, unit) = (self.zones[zone as usize].committed, self.area, self.unit);
        // The area, and its own length beyond.
        let reach = (committed + 2 * area).min(self.capacity);
        let first = random.random_range(committed..reach);
        let count = random.random_range(1..=(reach - first).min(12));
        let words: Vec<u64> = (first..first + count)
            .map(|iu| {
                self.next += 1;
                NUMBER << 60 | u64::from(zone) << 48 | u64::from(iu) << 28 | (self.next & 0xfff_ffff)
            })
            .collect();
        let beyond = (first + count).saturating_sub(committed + area).next_multiple_of(unit);
        let to = (committed + beyond).min(self.capacity);
        let of = self.begin(zone);
        of.committed_max = to;
        for (iu, word) in (first..).zip(&words) {
            of.words.entry(iu).or_insert_with(|| vec![0]).push(*word);
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let range = LbaRange { first_lba: self.start(zone) + u64::from(first), lba_count: count };
        let data = Buffer::copy_from(&bytes);
        let token = self.token(Request::Write { zone, first, words, to });
        Some((
            token,
            NamespaceOperation::Write {
                range,
                data,
                force_unit_access: false,
                placement: PlacementTarget::default(),
            },
        ))
    }

    fn commit(&mut self, zone: u32, random: &mut Xoshiro256PlusPlus) -> Option<(u64, NamespaceOperation)> {
        let units = self.area / self.unit;
        let to = self.zones[zone as usize].committed + random.random_range(1..=units) * self.unit;
        if to > self.capacity {
            return None;
        }
        self.begin(zone).committed_max = to;
        let last_lba = self.start(zone) + u64::from(to) - 1;
        let token = self.token(Request::Commit { zone, to });
        Some((token, NamespaceOperation::Zone(ZoneRequest::Commit { last_lba })))
    }

    fn read(&mut self, zone: u32, first: u32, count: u32) -> (u64, NamespaceOperation) {
        self.zones[zone as usize].reads += 1;
        let before = self.zones[zone as usize].clone();
        let token = self.token(Request::Read { zone, first, count, before });
        let destination = BufferMut::copy_from(&vec![0xee; count as usize * TAG_SIZE_BYTES]);
        let range = LbaRange { first_lba: self.start(zone) + u64::from(first), lba_count: count };
        (token, NamespaceOperation::Read { range, destination })
    }

    /// Reads of everything.
    pub fn read_all(&mut self) -> Vec<(u64, NamespaceOperation)> {
        let capacity = self.capacity;
        (0..self.zones.len() as u32).map(|zone| self.read(zone, 0, capacity)).collect()
    }

    /// Reads of what lies beside IUs that are lost.
    pub fn read_again(&mut self) -> Vec<(u64, NamespaceOperation)> {
        let beside = self.lost.take_beside();
        beside.into_iter().map(|(zone, first, count)| self.read(zone, first, count)).collect()
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
        for zone in &mut self.zones {
            (zone.under_way, zone.reads) = (false, 0);
        }
    }

    pub fn completed(&mut self, completion: NamespaceCompletion) -> Result<(), String> {
        let number = completion.token.0 & ((1 << 56) - 1);
        let Some(request) = self.requests.remove(&number) else {
            return Err(format!("command {number} of areas is answered, and nobody waits for it"));
        };
        match (&completion.result, &request) {
            (Err(NamespaceError::Unrecovered { lba }), Request::Read { zone, first, count, .. }) => {
                self.zones[*zone as usize].reads -= 1;
                return self.lost.found(*zone, *first, *count, lba.wrapping_sub(self.start(*zone)));
            }
            (Err(error), _) => return self.refused(&request, error),
            (Ok(()), _) => {}
        }
        match request {
            Request::Write { zone, first, words, to } => {
                self.written_ius += words.len() as u64;
                let of = &mut self.zones[zone as usize];
                (of.under_way, of.is_open) = (false, true);
                for (iu, word) in (first..).zip(words) {
                    of.words.insert(iu, vec![word]);
                }
                self.commits[1] += u64::from(to > of.committed);
                self.comes_to(zone, to);
            }
            Request::Commit { zone, to } => {
                self.zones[zone as usize].under_way = false;
                self.commits[0] += 1;
                self.comes_to(zone, to);
            }
            Request::Read { zone, first, count, before } => {
                let data = completion.data.ok_or("a read gives content")?;
                self.compare_content(zone, first, count, &before, &data)?;
            }
            Request::Open { zone } => {
                let of = &mut self.zones[zone as usize];
                of.has_area |= of.opens;
                (of.is_open, of.is_explicit, of.opens, of.under_way) = (true, true, false, false);
            }
            Request::Close { zone } => {
                let of = &mut self.zones[zone as usize];
                (of.is_open, of.is_explicit, of.under_way) = (false, false, false);
            }
            Request::Finish { zone } => {
                let of = &mut self.zones[zone as usize];
                (of.is_finished, of.is_over, of.finishes, of.under_way) = (true, true, false, false);
            }
            Request::Reset { zone } => self.begin_again(zone),
            Request::Look => {
                let Some(ZoneOutcome::Report(report)) = completion.zones else {
                    return Err("a report of areas says nothing".to_owned());
                };
                report.zones.iter().try_for_each(|found| self.compare(found))?;
            }
        }
        Ok(())
    }

    /// The write pointer of a zone is there.
    fn comes_to(&mut self, zone: u32, to: u32) {
        let of = &mut self.zones[zone as usize];
        (of.committed, of.committed_max) = (to, to);
        of.is_over |= to == self.capacity;
    }

    fn begin_again(&mut self, zone: u32) {
        let of = &mut self.zones[zone as usize];
        let Zone { reads, changes, lives, .. } = *of;
        *of = Zone { reads, changes: changes + 1, lives: lives + 1, ..Zone::default() };
        self.lost.forget(zone);
    }

    fn compare_content(
        &mut self,
        zone: u32,
        first: u32,
        count: u32,
        before: &Zone,
        data: &[u8],
    ) -> Result<(), String> {
        let now = &mut self.zones[zone as usize];
        now.reads -= 1;
        if data.len() != count as usize * TAG_SIZE_BYTES {
            return Err(format!("area of zone {zone}: a read of {count} IUs gives {} bytes", data.len()));
        }
        for (iu, content) in (first..).zip(data.chunks_exact(TAG_SIZE_BYTES)) {
            let word = u64::from_le_bytes(content.try_into().expect("8 bytes"));
            let is_reset = before.resets || now.resets || now.lives != before.lives;
            let may_be_gone = word == 0 && is_reset;
            if !before.may_hold(iu, word) && !now.may_hold(iu, word) && !may_be_gone {
                let of_now = now.words.get(&iu);
                return Err(format!(
                    "area of zone {zone}: IU {iu} reads as {word:x}, and may be {of_now:x?}"
                ));
            }
            // What was read once is so from then on.
            if !now.under_way && now.changes == before.changes && now.words.contains_key(&iu) {
                now.words.insert(iu, vec![word]);
            }
        }
        Ok(())
    }

    /// What a zone is after a restart.
    fn compare(&mut self, found: &ZoneDescriptor) -> Result<(), String> {
        let of = &self.zones[found.zone as usize];
        let wrong =
            |what: &str| Err(format!("zone {} with an area is {found:?}: {what}; {of:?}", found.zone));
        if found.state == ZoneState::Empty && of.resets {
            self.begin_again(found.zone);
            return Ok(());
        }
        if found.state == ZoneState::ReadOnly {
            return wrong(super::host::WORN);
        }
        if found.state.is_open() {
            return wrong("it is open");
        }
        if !(of.committed..=of.committed_max).contains(&found.written_ius) {
            return wrong("its write pointer is not where it may be");
        }
        let is_full = found.state == ZoneState::Full;
        if of.is_finished && !is_full {
            return wrong("it was finished");
        }
        if is_full && !of.is_finished && !of.finishes && found.written_ius < self.capacity {
            return wrong("nobody filled it");
        }
        let holds_something = of.words.range(found.written_ius..).any(|(_, words)| !words.contains(&0));
        if !found.is_random && !is_full && holds_something {
            return wrong("what lay in its area is lost");
        }
        if found.is_random && !of.has_area && !of.opens {
            return wrong("it had no area");
        }
        let of = &mut self.zones[found.zone as usize];
        if !found.is_random && !is_full {
            of.words.retain(|iu, _| *iu < found.written_ius);
        }
        of.has_area = found.is_random;
        of.is_over = is_full || (!found.is_random && found.state != ZoneState::Empty);
        (of.committed, of.committed_max) = (found.written_ius, found.written_ius);
        (of.is_finished, of.is_open, of.is_explicit) = (is_full, false, false);
        (of.resets, of.finishes, of.opens) = (false, false, false);
        Ok(())
    }

    /// Only what limits allow is refused; nothing changed then.
    fn refused(&mut self, request: &Request, error: &NamespaceError) -> Result<(), String> {
        // A zone that a write opened may be closed again for another one: a cut brought more back than may be open.
        if let Request::Commit { zone, .. } = request
            && *error == NamespaceError::Zone(ZoneRefusal::InvalidTransition)
            && !self.zones[*zone as usize].is_explicit
        {
            let of = &mut self.zones[*zone as usize];
            (of.under_way, of.is_open, of.committed_max) = (false, false, of.committed);
            return Ok(());
        }
        let limits = [ZoneRefusal::TooManyActive, ZoneRefusal::TooManyOpen];
        if !matches!(error, NamespaceError::Zone(refusal) if limits.contains(refusal)) {
            let zone = match request {
                Request::Write { zone, .. }
                | Request::Commit { zone, .. }
                | Request::Read { zone, .. }
                | Request::Open { zone }
                | Request::Close { zone }
                | Request::Finish { zone }
                | Request::Reset { zone } => &self.zones[*zone as usize],
                Request::Look => return Err(format!("a report of areas {}: {error}", super::host::REFUSED)),
            };
            return Err(format!("a command to an area {}: {error}; {zone:?}", super::host::REFUSED));
        }
        match request {
            Request::Open { zone } => {
                let of = &mut self.zones[*zone as usize];
                (of.under_way, of.opens) = (false, false);
            }
            Request::Write { zone, first, words, .. } => {
                let of = &mut self.zones[*zone as usize];
                (of.under_way, of.committed_max) = (false, of.committed);
                for (iu, word) in (*first..).zip(words) {
                    of.words.entry(iu).and_modify(|place| place.retain(|other| other != word));
                }
            }
            _ => return Err(format!("a command to an area {}: {error}", super::host::REFUSED)),
        }
        Ok(())
    }
}
