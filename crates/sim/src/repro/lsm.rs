//! A database on a log-structured merge tree as its device sees it, driven by YCSB's workloads in a closed loop.
//!
//! Clients do one operation after the other. A point read costs the device one block, unless the block is in memory; an
//! update goes to the memtable and to the write-ahead log (written behind, in larger pieces, as LevelDB does it); a full
//! memtable becomes a table of level 0; levels that are too large are compacted: tables are read, merged and written
//! sequentially in large commands, and their old places deallocated. Clients that write wait a millisecond, once, while level 0
//! falls behind, and until there is room while the memtable is full and the one before it is not yet on the device, or level 0
//! has far too many runs: LevelDB's rules (`db_impl.cc`, `MakeRoomForWrite`), with its sizes in `ycsb.rs`.
//!
//! Tables are counted, not filled: which keys they hold does not matter to the device, only how large they are, where they
//! lie, and how often blocks are read.

use super::loads::Meter;
use super::stage::{Io, Kind, Workload};
use diecut_units::{Span, Time};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// One of YCSB's workloads, in percent of operations. D reads what was written last most; to the device that is a hot part in
/// memory like the others' hot part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mix {
    pub name: &'static str,
    pub reads: u32,
    pub updates: u32,
    pub inserts: u32,
    pub scans: u32,
    pub read_modify_writes: u32,
}

const fn mix(name: &'static str, reads: u32, updates: u32) -> Mix {
    Mix { name, reads, updates, inserts: 0, scans: 0, read_modify_writes: 0 }
}

/// Nothing but updates.
pub(super) const OVERWRITE: Mix = mix("overwrite", 0, 100);

/// YCSB's core workloads.
pub(super) const MIXES: [Mix; 6] = [
    mix("A", 50, 50),
    mix("B", 95, 5),
    mix("C", 100, 0),
    Mix { inserts: 5, ..mix("D", 95, 0) },
    Mix { inserts: 5, scans: 95, ..mix("E", 0, 0) },
    Mix { read_modify_writes: 50, ..mix("F", 50, 0) },
];

/// Size of the tree and its device, in logical blocks of 4 KiB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Blocks of the volume.
    pub lbas: u64,
    /// Blocks of a table.
    pub table_blocks: u32,
    /// The memtable, in tables: one run of level 0 (LevelDB: 4 MiB, and 2 MiB a table).
    pub memtable_tables: usize,
    pub clients: usize,
    /// Large commands of a flush, and of a compaction, that are under way.
    pub large_depth: usize,
    /// Tables of level 1 when it is full; each level below has [`LEVEL_RATIO`] times as many.
    pub level_1_tables: usize,
    /// Tables that the data fills; `None`: [`FILL_PERCENT`] of the places.
    pub data_tables: Option<u64>,
    /// Clients that only write, the last ones, while all others only read; 0: all do what the mix says.
    pub writers: usize,
}

/// Records of 1 KiB in a block.
const RECORDS_PER_BLOCK: u64 = 4;
/// Share of the volume's table places that the data takes, in percent: the rest is room for compactions, as LevelDB needs it.
const FILL_PERCENT: u64 = 55;
/// Share of the records whose blocks are in memory, in percent: the hottest.
const CACHED_PERCENT: u64 = 10;
/// YCSB's default.
const ZIPF_THETA: f64 = 0.99;
/// Runs of level 0 that start a compaction, that slow writers down, and that stop them (LevelDB: 4, 8 and 12).
const LEVEL_0_START: usize = 4;
const LEVEL_0_SLOW: usize = 8;
const LEVEL_0_STOP: usize = 12;
/// How long a write is put off once while level 0 has [`LEVEL_0_SLOW`] runs (LevelDB: 1 ms).
const SLOW_NS: u64 = 1_000_000;
/// Tables of level 1 (LevelDB: 10 MiB), and by what each level below is larger (10).
pub(super) const LEVEL_1_TABLES: usize = 5;
const LEVEL_RATIO: usize = 10;
/// Blocks of a command of a flush or compaction: 256 KiB.
const LARGE_BLOCKS: u32 = 64;
/// Commands of a flush or compaction under way at a time.
pub(super) const LARGE_DEPTH: usize = 4;
/// Blocks after which the write-ahead log is written: 64 KiB.
const LOG_BLOCKS: u32 = 16;
/// Processor time of an operation in the database.
const OPERATION_NS: u64 = 10_000;
const SCAN_RECORDS_MAX: u64 = 100;

/// Ranks by zipf's law, by inversion of the generalized harmonic numbers' integral: rank 0 is drawn most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Zipf {
    total: f64,
}

impl Zipf {
    pub fn new(items: u64) -> Zipf {
        Zipf { total: Zipf::mass(items as f64) }
    }
    /// Integral of x^-theta from 1 to `rank + 1`.
    fn mass(rank: f64) -> f64 {
        ((rank + 1.0).powf(1.0 - ZIPF_THETA) - 1.0) / (1.0 - ZIPF_THETA)
    }
    pub fn draw(&self, uniform: f64) -> u64 {
        let mass = uniform * self.total;
        ((mass * (1.0 - ZIPF_THETA) + 1.0).powf(1.0 / (1.0 - ZIPF_THETA)) - 1.0) as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Read,
    Update,
    Scan,
    ReadModifyWrite,
}

#[derive(Clone, Copy, Debug)]
struct Client {
    began: Time,
    operation: Operation,
    /// When its processor time is over and it goes on; `None`: it waits for the device or for room in the memtable.
    ready: Option<Time>,
    /// Reads of the device under way.
    reads: u32,
    waits_for_room: bool,
    /// Its write was put off once.
    was_slowed: bool,
    /// It has read what it wanted and writes next, or is done.
    has_read: bool,
}

/// A flush or compaction: reads, then writes, then gives places back.
#[derive(Clone, Debug, Default)]
struct Job {
    reads: VecDeque<(u64, u32)>,
    writes: VecDeque<(u64, u32)>,
    under_way: usize,
    deallocates: VecDeque<u64>,
    /// Tables that it makes, and the level they belong to.
    makes: Vec<u64>,
    level: usize,
    active: bool,
}

const TAG_FLUSH: u64 = 1 << 32;
const TAG_COMPACTION: u64 = 2 << 32;
const TAG_LOG: u64 = 3 << 32;

/// See the module.
pub(super) struct Database {
    mix: Mix,
    shape: Shape,
    random: Xoshiro256PlusPlus,
    zipf: Zipf,
    records: u64,
    clients: Vec<Client>,
    /// Records in the memtable.
    memtable: u64,
    /// Places of tables by level; a place is a run of `table_blocks` blocks.
    levels: Vec<Vec<u64>>,
    free: VecDeque<u64>,
    flush: Job,
    compaction: Job,
    log_records: u64,
    log_cursor: u64,
    log_under_way: usize,
    log_due: u32,
    outbox: VecDeque<Io>,
    /// Operations of clients; those of clients that only write are in the other one.
    pub meter: Meter,
    pub write_meter: Meter,
    /// Writes per second of clients that only write, in all; `None`: each goes on at once.
    pub writes_per_s: Option<f64>,
    next_write: Time,
    /// Records written by clients, and blocks by flushes and compactions, since the beginning.
    pub records_written: u64,
    pub table_blocks_written: u64,
    /// Time that clients waited for room in the memtable, over all of them, in nanoseconds.
    pub stalled_ns: u64,
    /// Time that their writes were put off for level 0, likewise.
    pub slowed_ns: u64,
    stall_began: Vec<Time>,
}

impl Database {
    /// The tree right after a load: all data in its lowest levels. The volume must have been written from end to end.
    pub fn new(mix: Mix, shape: Shape, seed: u64) -> Database {
        // The first places are the write-ahead log's: of the memtable and of the one before it.
        let log_places = 2 * shape.memtable_tables as u64;
        let places = shape.lbas / u64::from(shape.table_blocks);
        let data_tables = shape.data_tables.unwrap_or((places - log_places) * FILL_PERCENT / 100);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut free: Vec<u64> = (log_places..places).collect();
        for index in (1..free.len()).rev() {
            free.swap(index, random.random_range(0..=index));
        }
        let mut free: VecDeque<u64> = free.into();
        let mut levels = vec![Vec::new(); 2];
        let mut left = data_tables as usize;
        // Level 1 and those below it are full, the last one takes the rest.
        let mut target = shape.level_1_tables;
        let mut level = 1;
        while left > 0 {
            let tables = if left > target * LEVEL_RATIO / 2 && left > target { target } else { left };
            if levels.len() <= level {
                levels.push(Vec::new());
            }
            levels[level] = free.drain(..tables).collect();
            left -= tables;
            target *= LEVEL_RATIO;
            level += 1;
        }
        let records = data_tables * u64::from(shape.table_blocks) * RECORDS_PER_BLOCK;
        let idle = Client {
            began: Time::ZERO,
            operation: Operation::Read,
            ready: Some(Time::ZERO),
            reads: 0,
            waits_for_room: false,
            was_slowed: false,
            has_read: true,
        };
        let mut database = Database {
            mix,
            shape,
            random,
            zipf: Zipf::new(records),
            records,
            clients: vec![idle; shape.clients],
            memtable: 0,
            levels,
            free,
            flush: Job::default(),
            compaction: Job::default(),
            log_records: 0,
            log_cursor: 0,
            log_under_way: 0,
            log_due: 0,
            outbox: VecDeque::new(),
            meter: Meter::new(),
            write_meter: Meter::new(),
            writes_per_s: None,
            next_write: Time::ZERO,
            records_written: 0,
            table_blocks_written: 0,
            stalled_ns: 0,
            slowed_ns: 0,
            stall_began: vec![Time::ZERO; shape.clients],
        };
        for place in database.free.clone() {
            database.deallocate(place);
        }
        database
    }

    /// Clients begin now.
    pub fn begin(&mut self, now: Time) {
        self.next_write = now;
        for client in 0..self.clients.len() {
            self.begin_operation(client, now);
        }
    }

    /// Clients go on with another mix, or in other roles.
    pub fn change(&mut self, mix: Mix, writers: usize, writes_per_s: Option<f64>, now: Time) {
        (self.mix, self.shape.writers, self.writes_per_s, self.next_write) =
            (mix, writers, writes_per_s, now);
    }

    /// Blocks written by flushes and compactions over blocks of records.
    pub fn write_amplification(&self) -> f64 {
        let blocks = self.records_written as f64 / RECORDS_PER_BLOCK as f64;
        if blocks == 0.0 { 1.0 } else { self.table_blocks_written as f64 / blocks }
    }

    /// Blocks of a table.
    pub fn table_blocks(&self) -> u32 {
        self.shape.table_blocks
    }

    /// Places for tables and for the log.
    pub fn places(&self) -> u64 {
        self.shape.lbas / u64::from(self.shape.table_blocks)
    }

    /// Places of all tables, those of the lowest level last.
    pub fn tables(&self) -> Vec<u64> {
        self.levels.iter().flatten().copied().collect()
    }

    /// The level of the table that is, or is being, written to a place; `None`: the place is the log's.
    pub fn level_of(&self, place: u64) -> Option<usize> {
        let made = [&self.flush, &self.compaction].into_iter().find(|job| job.makes.contains(&place));
        made.map(|job| job.level).or_else(|| self.levels.iter().position(|level| level.contains(&place)))
    }

    fn is_writer(&self, client: usize) -> bool {
        client + self.shape.writers >= self.shape.clients
    }

    fn deallocate(&mut self, place: u64) {
        let first_lba = place * u64::from(self.shape.table_blocks);
        let io = Io { kind: Kind::Deallocate, first_lba, lba_count: self.shape.table_blocks, tag: TAG_LOG };
        self.log_under_way += 1;
        self.outbox.push_back(io);
    }

    fn begin_operation(&mut self, client: usize, now: Time) {
        let mut draw = self.random.random_range(0..100);
        let mut is = |percent: u32| {
            let hit = draw < percent;
            draw = draw.wrapping_sub(percent);
            hit
        };
        let operation = if self.shape.writers > 0 {
            if self.is_writer(client) { Operation::Update } else { Operation::Read }
        } else if is(self.mix.reads) {
            Operation::Read
        } else if is(self.mix.updates + self.mix.inserts) {
            Operation::Update
        } else if is(self.mix.scans) {
            Operation::Scan
        } else {
            Operation::ReadModifyWrite
        };
        // A write that is due waits for its client, so its latency begins when it was due.
        let mut began = now;
        if let Some(rate) = self.writes_per_s.filter(|_| self.shape.writers > 0 && self.is_writer(client)) {
            began = self.next_write;
            self.next_write += Span((1e9 / rate) as u64);
        }
        self.clients[client] = Client {
            began,
            operation,
            ready: Some(now.max(began) + Span(OPERATION_NS)),
            reads: 0,
            waits_for_room: false,
            was_slowed: false,
            has_read: operation == Operation::Update,
        };
    }

    /// A client goes on after its processor time.
    fn go_on(&mut self, client: usize, now: Time) {
        self.clients[client].ready = None;
        if !self.clients[client].has_read {
            self.clients[client].has_read = true;
            let operation = self.clients[client].operation;
            match operation {
                Operation::Scan => {
                    let records = self.random.random_range(1..=SCAN_RECORDS_MAX);
                    // The lowest level gives most of a scan; those above it give a block each.
                    self.read(client, records.div_ceil(RECORDS_PER_BLOCK) as u32);
                    for _ in 2..self.levels.len() {
                        self.read(client, 1);
                    }
                }
                _ if self.is_cached() => {}
                _ => self.read(client, 1),
            }
            if self.clients[client].reads > 0 {
                return;
            }
        }
        self.write_or_finish(client, now);
    }

    fn is_cached(&mut self) -> bool {
        let rank = self.zipf.draw(self.random.random_range(0.0..1.0));
        rank < self.records * CACHED_PERCENT / 100
    }

    fn read(&mut self, client: usize, blocks: u32) {
        // Most data lies in the lowest level: a table anywhere, weighted by size.
        let tables: usize = self.levels.iter().map(Vec::len).sum();
        if tables == 0 {
            // A small tree may be under compaction as a whole: what is merged is in memory.
            return;
        }
        let mut chosen = self.random.random_range(0..tables);
        let mut place = 0;
        for level in &self.levels {
            if chosen < level.len() {
                place = level[chosen];
                break;
            }
            chosen -= level.len();
        }
        let lba_count = blocks.min(self.shape.table_blocks);
        let start = self.random.random_range(0..=self.shape.table_blocks - lba_count);
        let first_lba = place * u64::from(self.shape.table_blocks) + u64::from(start);
        self.outbox.push_back(Io { kind: Kind::Read, first_lba, lba_count, tag: client as u64 });
        self.clients[client].reads += 1;
    }

    fn write_or_finish(&mut self, client: usize, now: Time) {
        let writes = matches!(self.clients[client].operation, Operation::Update | Operation::ReadModifyWrite);
        if writes && self.level_0_runs() >= LEVEL_0_SLOW && !self.clients[client].was_slowed {
            self.clients[client].was_slowed = true;
            self.clients[client].ready = Some(now + Span(SLOW_NS));
            self.slowed_ns += SLOW_NS;
            return;
        }
        if writes && !self.put() {
            self.clients[client].waits_for_room = true;
            self.stall_began[client] = now;
            return;
        }
        let is_write = self.shape.writers > 0 && self.is_writer(client);
        let meter = if is_write { &mut self.write_meter } else { &mut self.meter };
        meter.count(now.since(self.clients[client].began), 0);
        self.begin_operation(client, now);
    }

    /// A record goes to the memtable; `false` if there is no room for it now.
    fn put(&mut self) -> bool {
        if !self.can_put() {
            return false;
        }
        if self.memtable >= self.memtable_records() {
            self.begin_flush();
        }
        self.memtable += 1;
        self.records_written += 1;
        self.log_records += 1;
        if self.log_records == u64::from(LOG_BLOCKS) * RECORDS_PER_BLOCK {
            self.log_records = 0;
            self.log_due += 1;
        }
        true
    }

    fn begin_flush(&mut self) {
        self.memtable = 0;
        let makes: Vec<u64> = self.free.drain(..self.shape.memtable_tables).collect();
        self.flush = Job { level: 0, active: true, ..Job::default() };
        for place in &makes {
            push_large(&mut self.flush.writes, *place, self.shape.table_blocks);
        }
        self.flush.makes = makes;
    }

    /// Levels that need a compaction, the one that needs it most first: by what a level holds over what it may, as LevelDB and RocksDB choose it. With
    /// level 0 always first, level 1 would grow without end, and all of it is merged with each of them.
    fn due_compactions(&self) -> Vec<usize> {
        let mut target = self.shape.level_1_tables;
        let mut due = vec![(self.level_0_runs() as f64 / LEVEL_0_START as f64, 0)];
        for level in 1..self.levels.len() - 1 {
            // A level that holds exactly what it may is left alone.
            due.push((self.levels[level].len() as f64 / (target + 1) as f64, level));
            target *= LEVEL_RATIO;
        }
        due.retain(|(score, _)| *score >= 1.0);
        due.sort_by(|one, other| other.0.total_cmp(&one.0));
        due.into_iter().map(|(_, level)| level).collect()
    }

    /// How many tables of a level are merged, how many of the one below, and how many are made: of level 0 all with all of level 1, else one with as many
    /// as one overlaps on average. `None` if there is no room for what is made.
    fn compaction_of(&self, level: usize) -> Option<(usize, usize, usize)> {
        let (above, below) = (self.levels[level].len(), self.levels[level + 1].len());
        let lower = if level == 0 { below } else { (below.div_ceil(above.max(1)) + 1).min(below) };
        // Of the merged tables as many are left as the lower level grows: none in the lowest, where all are newer versions.
        let grows = level + 2 < self.levels.len();
        let made = |upper: usize| lower + if grows { upper } else { 0 };
        let fits = |upper: usize| made(upper).max(1) < self.free.len();
        let mut upper = if level == 0 { above } else { 1 };
        // Of level 0 the oldest runs if there is no room for all: a tree that is nearly full would stop for ever.
        while !fits(upper) && upper > self.shape.memtable_tables {
            upper -= self.shape.memtable_tables;
        }
        fits(upper).then(|| (upper, lower, made(upper)))
    }

    /// Merges tables of the first level that needs it and for which there is room.
    fn begin_compaction(&mut self) {
        let chosen =
            self.due_compactions().into_iter().find_map(|level| Some((level, self.compaction_of(level)?)));
        let Some((level, (upper, lower, made))) = chosen else { return };
        let mut inputs: Vec<u64> = self.levels[level].drain(..upper).collect();
        for _ in 0..lower {
            let index = self.random.random_range(0..self.levels[level + 1].len());
            inputs.push(self.levels[level + 1].swap_remove(index));
        }
        let makes: Vec<u64> = self.free.drain(..made).collect();
        let mut job = Job { level: level + 1, active: true, ..Job::default() };
        for place in &inputs {
            push_large(&mut job.reads, *place, self.shape.table_blocks);
        }
        for place in &makes {
            push_large(&mut job.writes, *place, self.shape.table_blocks);
        }
        job.deallocates = inputs.into();
        job.makes = makes;
        self.compaction = job;
    }

    fn finish_jobs(&mut self, now: Time) {
        if self.flush.active && self.flush.writes.is_empty() && self.flush.under_way == 0 {
            let job = std::mem::take(&mut self.flush);
            self.table_blocks_written += job.makes.len() as u64 * u64::from(self.shape.table_blocks);
            self.levels[0].extend(job.makes);
        }
        let over = self.compaction.reads.is_empty() && self.compaction.writes.is_empty();
        if self.compaction.active && over && self.compaction.under_way == 0 {
            let job = std::mem::take(&mut self.compaction);
            self.table_blocks_written += job.makes.len() as u64 * u64::from(self.shape.table_blocks);
            self.levels[job.level].extend(job.makes);
            for place in job.deallocates {
                self.deallocate(place);
                self.free.push_back(place);
            }
        }
        if !self.compaction.active {
            self.begin_compaction();
        }
        for client in 0..self.clients.len() {
            if self.clients[client].waits_for_room && self.can_put() {
                self.clients[client].waits_for_room = false;
                self.stalled_ns += now.since(self.stall_began[client]).0;
                self.write_or_finish(client, now);
            }
        }
    }

    fn can_put(&self) -> bool {
        let full = self.free.len() < self.shape.memtable_tables || self.level_0_runs() >= LEVEL_0_STOP;
        self.memtable < self.memtable_records() || !(self.flush.active || full)
    }

    fn memtable_records(&self) -> u64 {
        self.shape.memtable_tables as u64 * u64::from(self.shape.table_blocks) * RECORDS_PER_BLOCK
    }

    fn level_0_runs(&self) -> usize {
        self.levels[0].len() / self.shape.memtable_tables
    }

    fn next_of_job(job: &mut Job, depth: usize, tag: u64) -> Option<Io> {
        if job.under_way >= depth {
            return None;
        }
        let (kind, (first_lba, lba_count)) = match job.reads.pop_front() {
            Some(extent) => (Kind::Read, extent),
            None => (Kind::Write, job.writes.pop_front()?),
        };
        job.under_way += 1;
        Some(Io { kind, first_lba, lba_count, tag })
    }
}

fn push_large(extents: &mut VecDeque<(u64, u32)>, place: u64, table_blocks: u32) {
    let first = place * u64::from(table_blocks);
    let mut done = 0;
    while done < table_blocks {
        let blocks = LARGE_BLOCKS.min(table_blocks - done);
        extents.push_back((first + u64::from(done), blocks));
        done += blocks;
    }
}

impl Workload for Database {
    fn next(&mut self, now: Time) -> Option<Io> {
        for client in 0..self.clients.len() {
            if self.clients[client].ready.is_some_and(|ready| ready <= now) {
                self.go_on(client, now);
            }
        }
        if let Some(io) = self.outbox.pop_front() {
            return Some(io);
        }
        // Of the log one piece is under way at a time; it is written behind.
        if self.log_due > 0 && self.log_under_way == 0 {
            self.log_due -= 1;
            self.log_under_way += 1;
            let pieces = self.shape.memtable_tables as u64 * u64::from(self.shape.table_blocks) * 2
                / u64::from(LOG_BLOCKS);
            let first_lba = self.log_cursor % pieces * u64::from(LOG_BLOCKS);
            self.log_cursor += 1;
            return Some(Io { kind: Kind::Write, first_lba, lba_count: LOG_BLOCKS, tag: TAG_LOG });
        }
        let depth = self.shape.large_depth;
        Database::next_of_job(&mut self.flush, depth, TAG_FLUSH)
            .or_else(|| Database::next_of_job(&mut self.compaction, depth, TAG_COMPACTION))
    }

    fn wakes_at(&self) -> Time {
        self.clients.iter().filter_map(|client| client.ready).min().unwrap_or(Time::NEVER)
    }

    fn answered(&mut self, tag: u64, now: Time) {
        match tag {
            TAG_FLUSH => self.flush.under_way -= 1,
            TAG_COMPACTION => self.compaction.under_way -= 1,
            TAG_LOG => self.log_under_way -= 1,
            client => {
                let client = client as usize;
                self.clients[client].reads -= 1;
                if self.clients[client].reads == 0 {
                    self.write_or_finish(client, now);
                }
            }
        }
        if tag >= TAG_FLUSH {
            self.finish_jobs(now);
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const SHAPE: Shape = Shape {
        lbas: 64 * 1024,
        table_blocks: 256,
        memtable_tables: 2,
        clients: 8,
        large_depth: LARGE_DEPTH,
        level_1_tables: LEVEL_1_TABLES,
        data_tables: None,
        writers: 0,
    };

    /// Answers everything after a fixed time.
    fn play(mix: Mix, length: Span) -> (Database, Time, Vec<Io>) {
        let mut database = Database::new(mix, SHAPE, 1);
        let (mut now, mut given, mut answers) = (Time::ZERO, Vec::new(), VecDeque::new());
        database.begin(now);
        database.meter.restart(now);
        while now < Time::ZERO + length {
            while let Some(io) = database.next(now) {
                assert!(io.first_lba + u64::from(io.lba_count) <= SHAPE.lbas, "{io:?}");
                given.push(io);
                answers.push_back((now + Span::from_micros(100), io.tag));
            }
            let next = answers.front().map_or(Time::NEVER, |(at, _)| *at);
            now = database.wakes_at().min(next);
            while answers.front().is_some_and(|(at, _)| *at <= now) {
                let (_, tag) = answers.pop_front().unwrap();
                database.answered(tag, now);
            }
        }
        (database, now, given)
    }

    /// No place belongs to two tables, and none is lost.
    #[test]
    fn places_are_kept_apart() {
        let (mut database, _, _) = play(MIXES[0], Span::from_millis(2_000));
        let mut places: Vec<u64> = database.levels.concat();
        places.extend(&database.free);
        for job in [&mut database.flush, &mut database.compaction] {
            places.extend(&job.makes);
            places.extend(&job.deallocates);
        }
        places.sort_unstable();
        let all: Vec<u64> = (4..SHAPE.lbas / u64::from(SHAPE.table_blocks)).collect();
        assert_eq!(places, all);
        assert!(database.table_blocks_written > 20 * 256, "it compacts: {}", database.table_blocks_written);
        assert!((2.0..30.0).contains(&database.write_amplification()), "{}", database.write_amplification());
    }

    /// What is asked for is what the mix says: C writes nothing, A and F write as much as they update, E reads far.
    #[test]
    fn mixes_ask_for_what_they_say() {
        let blocks = |given: &[Io], kind| -> u64 {
            given.iter().filter(|io| io.kind == kind).map(|io| u64::from(io.lba_count)).sum()
        };
        for mix in MIXES {
            let (database, now, given) = play(mix, Span::from_millis(300));
            let operations = database.meter.per_s(now) * now.since(Time::ZERO).as_secs_f64();
            let updates = f64::from(mix.updates + mix.inserts + mix.read_modify_writes) / 100.0;
            let share = database.records_written as f64 / operations;
            assert!((share - updates).abs() < 0.03, "{}: {share}", mix.name);
            assert_eq!(blocks(&given, Kind::Write) == 0, mix.name == "C", "{}", mix.name);
            let reads = given.iter().filter(|io| io.kind == Kind::Read && io.tag < TAG_FLUSH).count() as f64;
            if mix.name == "E" {
                assert!(reads / operations > 1.5, "each scan reads from each level");
            } else {
                let misses = reads / operations / (f64::from(mix.reads + mix.read_modify_writes) / 100.0);
                assert!((0.05..0.5).contains(&misses), "{}: {misses}", mix.name);
            }
        }
    }

    #[test]
    fn ranks_follow_zipf() {
        let zipf = Zipf::new(1_000_000);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let draws: Vec<u64> = (0..100_000).map(|_| zipf.draw(random.random_range(0.0..1.0))).collect();
        assert!(draws.iter().all(|rank| *rank <= 1_000_000));
        // The first tenth of a million has 84 % of the mass at theta 0.99.
        let hot = draws.iter().filter(|rank| **rank < 100_000).count() as f64 / 1e5;
        assert!((hot - 0.84).abs() < 0.02, "{hot}");
    }
}
