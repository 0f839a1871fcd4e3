//! A database's files in zones, as ZenFS keeps them: files of one expected lifetime share zones, a zone is reset when no file needs it, and a
//! zone that little of is needed is emptied by copies when there are few empty ones.
//!
//! The database below names blocks of a volume. A table's place becomes a list of extents in zones; how long it is thought to live
//! is the level of the tree that it belongs to.

use super::lsm::Database;
use super::stage::{Io, Kind, Workload};
use diecut_units::Time;
use std::collections::{BTreeMap, VecDeque};

/// The zones of a namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zones {
    pub count: u64,
    /// That each holds.
    pub lbas: u64,
}

impl Zones {
    fn start(self, zone: usize) -> u64 {
        zone as u64 * self.lbas.next_power_of_two()
    }
}

/// Copies are begun with so few empty zones, and only they may take the last one.
const EMPTY_MIN: usize = 3;
/// Extents that are copied at a time.
const COPIES: usize = 4;
/// The lifetime of what was copied; those before it are the levels', and the log's.
const COLD: usize = 15;
const LOG: usize = 14;

/// A part of a table's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// First block of the place.
    at: u64,
    zone: usize,
    /// First block of the zone.
    first: u64,
    blocks: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Use {
    written: u64,
    live: u64,
    /// Reads under way.
    reads: u32,
    resets: bool,
}

/// What a command to the device is a part of.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Of the database's command of this number.
    Write(u64),
    Read(u64, usize),
    CopyRead(usize),
    CopyWrite(usize),
    Reset(usize),
}

/// An extent that is copied.
#[derive(Clone, Debug)]
struct Move {
    place: u64,
    from: Extent,
    to: Vec<Extent>,
    parts: usize,
    is_over: bool,
}

/// See the module.
pub(super) struct ZoneFiles {
    pub database: Database,
    zones: Zones,
    place_blocks: u64,
    uses: Vec<Use>,
    empty: VecDeque<usize>,
    open: [Option<usize>; COLD + 1],
    tables: Vec<Vec<Extent>>,
    /// Writes of the database that wait for an empty zone.
    held: VecDeque<Io>,
    outbox: VecDeque<Io>,
    under_way: BTreeMap<u64, Part>,
    next_tag: u64,
    /// By the number of a command of the database: its tag, and how many parts are under way.
    commands: BTreeMap<u64, (u64, usize)>,
    next_command: u64,
    victim: Option<usize>,
    moves: Vec<Move>,
    /// Blocks that copies wrote.
    pub copied_blocks: u64,
    /// Tables that are written first.
    loading: bool,
}

/// The tag of writes that fill the tables of a new database.
const TAG_LOAD: u64 = u64::MAX;

impl ZoneFiles {
    /// A database whose tables are not written yet: [`ZoneFiles::is_loaded`] says when they are. Its clients begin after that.
    pub fn new(database: Database, zones: Zones) -> ZoneFiles {
        let place_blocks = u64::from(database.table_blocks());
        let mut files = ZoneFiles {
            zones,
            place_blocks,
            uses: vec![Use::default(); zones.count as usize],
            empty: (0..zones.count as usize).collect(),
            open: [None; COLD + 1],
            tables: vec![Vec::new(); database.places() as usize],
            held: VecDeque::new(),
            outbox: VecDeque::new(),
            under_way: BTreeMap::new(),
            next_tag: 0,
            commands: BTreeMap::new(),
            next_command: 0,
            victim: None,
            moves: Vec::new(),
            copied_blocks: 0,
            loading: true,
            database,
        };
        for place in files.database.tables() {
            for at in (0..place_blocks).step_by(64) {
                let lba_count = 64.min(place_blocks - at) as u32;
                let first_lba = place * place_blocks + at;
                files.held.push_back(Io { kind: Kind::Write, first_lba, lba_count, tag: TAG_LOAD });
            }
        }
        files
    }

    pub fn is_loaded(&self) -> bool {
        self.held.is_empty() && self.under_way.is_empty() && self.outbox.is_empty()
    }

    /// Clients begin now.
    pub fn begin(&mut self, now: Time) {
        self.loading = false;
        self.database.begin(now);
    }

    fn send(&mut self, part: Part, kind: Kind, zone: usize, first: u64, blocks: u64) {
        self.next_tag += 1;
        self.under_way.insert(self.next_tag, part);
        let (first_lba, tag) = (self.zones.start(zone) + first, self.next_tag);
        self.outbox.push_back(Io { kind, first_lba, lba_count: blocks as u32, tag });
    }

    /// Room for blocks at the write pointers of a lifetime's zone and of the next one; `None` while there is no empty zone for it.
    fn put(&mut self, lifetime: usize, at: u64, blocks: u64) -> Option<Vec<Extent>> {
        let left = self.open[lifetime].map_or(0, |zone| self.zones.lbas - self.uses[zone].written);
        let reserve = if lifetime == COLD { 0 } else { 1 };
        if blocks > left && self.empty.len() <= reserve {
            return None;
        }
        let mut extents = Vec::new();
        let mut done = 0;
        while done < blocks {
            let zone = match self.open[lifetime] {
                Some(zone) => zone,
                None => self.empty.pop_front().expect("counted above; a command is no longer than a zone"),
            };
            let used = &mut self.uses[zone];
            let count = (self.zones.lbas - used.written).min(blocks - done);
            extents.push(Extent { at: at + done, zone, first: used.written, blocks: count });
            used.written += count;
            used.live += count;
            done += count;
            self.open[lifetime] = (used.written < self.zones.lbas).then_some(zone);
        }
        Some(extents)
    }

    fn write(&mut self, io: Io) -> bool {
        let (place, at) = (io.first_lba / self.place_blocks, io.first_lba % self.place_blocks);
        let lifetime = match self.database.level_of(place) {
            Some(level) => level.min(LOG - 1),
            None => LOG,
        };
        if at == 0 && lifetime == LOG {
            // A new log file: nobody needs the one that had this place.
            self.drop_place(place);
        }
        let Some(extents) = self.put(lifetime, at, io.lba_count.into()) else { return false };
        self.next_command += 1;
        let command = self.next_command;
        self.commands.insert(command, (io.tag, extents.len()));
        for extent in extents {
            self.tables[place as usize].push(extent);
            self.send(Part::Write(command), Kind::Write, extent.zone, extent.first, extent.blocks);
        }
        true
    }

    fn read(&mut self, io: Io) {
        let (place, at) = (io.first_lba / self.place_blocks, io.first_lba % self.place_blocks);
        let end = at + u64::from(io.lba_count);
        self.next_command += 1;
        let command = self.next_command;
        let mut parts = Vec::new();
        for extent in &self.tables[place as usize] {
            let (from, to) = (extent.at.max(at), (extent.at + extent.blocks).min(end));
            if from < to {
                parts.push((extent.zone, extent.first + from - extent.at, to - from));
            }
        }
        assert!(!parts.is_empty(), "what is read was written");
        self.commands.insert(command, (io.tag, parts.len()));
        for (zone, first, blocks) in parts {
            self.uses[zone].reads += 1;
            self.send(Part::Read(command, zone), Kind::Read, zone, first, blocks);
        }
    }

    fn drop_place(&mut self, place: u64) {
        for extent in std::mem::take(&mut self.tables[place as usize]) {
            self.lose(extent);
        }
    }

    fn lose(&mut self, extent: Extent) {
        self.uses[extent.zone].live -= extent.blocks;
        self.reset_unneeded(extent.zone);
    }

    fn reset_unneeded(&mut self, zone: usize) {
        let used = &mut self.uses[zone];
        let is_full = used.written == self.zones.lbas;
        if is_full && used.live == 0 && used.reads == 0 && !used.resets && self.victim != Some(zone) {
            used.resets = true;
            self.send(Part::Reset(zone), Kind::ResetZone, zone, 0, 0);
        }
    }

    /// Empties the zone of which least is needed, if there are few empty ones.
    fn collect(&mut self) {
        if self.victim.is_none() && self.empty.len() < EMPTY_MIN {
            let full = (0..self.uses.len()).filter(|zone| self.uses[*zone].written == self.zones.lbas);
            let full =
                full.filter(|zone| !self.uses[*zone].resets && self.uses[*zone].live < self.zones.lbas);
            let Some(victim) = full.min_by_key(|zone| self.uses[*zone].live) else { return };
            let left = self.open[COLD].map_or(0, |zone| self.zones.lbas - self.uses[zone].written);
            if self.empty.is_empty() && self.uses[victim].live > left {
                // The zone that was emptied before is still being reset.
                return;
            }
            self.victim = Some(victim);
            let extents = self.tables.iter().zip(0..).flat_map(|(extents, place)| {
                extents.iter().filter(|extent| extent.zone == victim).map(move |extent| (place, *extent))
            });
            let new = |(place, from)| Move { place, from, to: Vec::new(), parts: 0, is_over: false };
            self.moves = extents.map(new).collect();
        }
        let Some(victim) = self.victim else { return };
        let busy = self.moves.iter().filter(|one| one.parts > 0).count();
        let waiting: Vec<usize> = (0..self.moves.len())
            .filter(|number| !self.moves[*number].is_over && self.moves[*number].parts == 0)
            .take(COPIES.saturating_sub(busy))
            .collect();
        for number in waiting {
            let from = self.moves[number].from;
            self.moves[number].parts = 1;
            self.uses[victim].reads += 1;
            self.send(Part::CopyRead(number), Kind::Read, victim, from.first, from.blocks);
        }
        if self.moves.iter().all(|one| one.is_over) {
            self.victim = None;
            self.moves.clear();
            self.reset_unneeded(victim);
        }
    }

    fn copy_was_read(&mut self, number: usize) {
        let Move { from, .. } = self.moves[number];
        self.uses[from.zone].reads -= 1;
        // The reserve is for this: one zone takes what another one held.
        let extents = self.put(COLD, from.at, from.blocks).expect("the last empty zone is for copies");
        self.copied_blocks += from.blocks;
        self.moves[number].parts = extents.len();
        for extent in &extents {
            self.send(Part::CopyWrite(number), Kind::Write, extent.zone, extent.first, extent.blocks);
        }
        self.moves[number].to = extents;
    }

    fn copy_was_written(&mut self, number: usize) {
        self.moves[number].parts -= 1;
        if self.moves[number].parts > 0 {
            return;
        }
        self.moves[number].is_over = true;
        let Move { place, from, to, .. } = self.moves[number].clone();
        let table = &mut self.tables[place as usize];
        match table.iter().position(|extent| *extent == from) {
            Some(at) => {
                table.splice(at..=at, to);
                self.lose(from);
            }
            // It went meanwhile.
            None => to.into_iter().for_each(|extent| self.lose(extent)),
        }
    }

    fn part_of_command(&mut self, command: u64, now: Time) {
        let (tag, left) = self.commands.get_mut(&command).expect("it is under way");
        *left -= 1;
        if *left == 0 {
            let tag = *tag;
            self.commands.remove(&command);
            if tag != TAG_LOAD {
                self.database.answered(tag, now);
            }
        }
    }
}

impl Workload for ZoneFiles {
    fn next(&mut self, now: Time) -> Option<Io> {
        loop {
            self.collect();
            if let Some(io) = self.outbox.pop_front() {
                return Some(io);
            }
            if let Some(io) = self.held.front().copied()
                && self.write(io)
            {
                self.held.pop_front();
                continue;
            }
            if self.loading {
                return None;
            }
            let io = self.database.next(now)?;
            match io.kind {
                Kind::Read => self.read(io),
                // Behind those that wait, so that no file overtakes another one.
                Kind::Write if self.held.is_empty() && self.write(io) => {}
                Kind::Write => self.held.push_back(io),
                Kind::Deallocate => {
                    self.drop_place(io.first_lba / self.place_blocks);
                    self.database.answered(io.tag, now);
                }
                Kind::ResetZone => unreachable!("a database knows no zones"),
            }
        }
    }

    fn wakes_at(&self) -> Time {
        if self.loading { Time::NEVER } else { self.database.wakes_at() }
    }

    fn answered(&mut self, tag: u64, now: Time) {
        match self.under_way.remove(&tag).expect("it was given") {
            Part::Write(command) => self.part_of_command(command, now),
            Part::Read(command, zone) => {
                self.uses[zone].reads -= 1;
                self.reset_unneeded(zone);
                self.part_of_command(command, now);
            }
            Part::CopyRead(number) => self.copy_was_read(number),
            Part::CopyWrite(number) => self.copy_was_written(number),
            Part::Reset(zone) => {
                self.uses[zone] = Use::default();
                self.empty.push_back(zone);
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::super::lsm::{OVERWRITE, Shape};
    use super::*;
    use diecut_units::Span;

    /// A quarter more than the places that the database has.
    const ZONES: Zones = Zones { count: 40, lbas: 200 };

    /// Zones as a device has them; answers everything after a fixed time.
    #[derive(Default)]
    struct Device {
        written: Vec<u64>,
        answers: VecDeque<(Time, u64)>,
    }

    impl Device {
        fn take(&mut self, io: Io, now: Time) {
            let (zone, at) = ((io.first_lba / 256) as usize, io.first_lba % 256);
            let end = at + u64::from(io.lba_count);
            match io.kind {
                Kind::Write => {
                    assert_eq!(self.written[zone], at, "a write is at the write pointer");
                    assert!(end <= ZONES.lbas, "and ends within the zone");
                    self.written[zone] = end;
                }
                Kind::Read => assert!(end <= self.written[zone], "what is read was written"),
                Kind::ResetZone => self.written[zone] = 0,
                Kind::Deallocate => panic!("zones are reset"),
            }
            self.answers.push_back((now + Span::from_micros(100), io.tag));
        }
    }

    /// Goal: files are where their database looks for them, whatever was copied, and zones come back. Method: a database that overwrites more
    /// than the zones hold, on zones that check every command.
    #[test]
    fn a_database_goes_on_in_zones() {
        let shape = Shape {
            lbas: 64 * 100,
            table_blocks: 64,
            memtable_tables: 2,
            clients: 4,
            large_depth: 4,
            level_1_tables: 5,
            data_tables: Some(55),
            writers: 0,
        };
        let mut files = ZoneFiles::new(Database::new(OVERWRITE, shape, 1), ZONES);
        let mut device = Device { written: vec![0; ZONES.count as usize], ..Device::default() };
        let mut now = Time::ZERO;
        let (mut began, mut resets) = (false, 0);
        while now < Time::ZERO + Span::from_millis(3_000) {
            while let Some(io) = files.next(now) {
                resets += u32::from(io.kind == Kind::ResetZone);
                device.take(io, now);
            }
            if !began && files.is_loaded() {
                began = true;
                files.begin(now);
                continue;
            }
            let answer = device.answers.front().map_or(Time::NEVER, |(at, _)| *at);
            now = answer.min(files.wakes_at());
            assert!(now < Time::NEVER, "it goes on: {} empty zones", files.empty.len());
            while let Some((_, tag)) = device.answers.pop_front_if(|(at, _)| *at <= now) {
                files.answered(tag, now);
            }
            let live: u64 = files.tables.iter().flatten().map(|extent| extent.blocks).sum();
            let moved: u64 = files.moves.iter().flat_map(|one| &one.to).map(|extent| extent.blocks).sum();
            let counted: u64 = files.uses.iter().map(|used| used.live).sum();
            assert!(
                counted >= live && counted <= live + moved,
                "{counted} are needed, {live} and {moved} are"
            );
        }
        assert!(began && resets > 100, "{resets} resets");
        assert!(files.copied_blocks > 0, "some zone was emptied");
        assert!(files.database.records_written > 10_000, "{} records", files.database.records_written);
    }
}
