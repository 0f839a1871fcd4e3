//! Programs that nobody here wrote, a journal, and the medium of drives, over disks that lose power: what was flushed is never missing. Where
//! flushes do nothing, that is seen within five cuts.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_media::{Intent, IntentDone, Media, MediaError, MediaToken, Operation, conformance};
use diecut_power::{Disks, FailedFlush, Mounted, Options};
use diecut_reactor::{DriveRing, PageCache};
use diecut_testing::Random;
use diecut_testing::driven::{CarryOut, Driven};
use diecut_testing::needs::{self, Need};
use diecut_testing::planted::is_noticed;
use diecut_units::{BlockIndex, BufferPool, DieAddress, Time};
use rusqlite::{Connection, params};
use rustix::fs::OFlags;
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Cuts that a program must live through.
const CUTS: u32 = 50;
/// Cuts within which it is seen that flushes do nothing.
const CUTS_TO_NOTICE: u32 = 5;
const SIZE_BYTES: u64 = 40 << 20;

/// Disks on a folder that goes with them: a drive `drive`, and files. Fields go in their order.
struct Bench {
    mounted: Mounted,
    _folder: TempDir,
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let drives = vec![("drive".to_owned(), SIZE_BYTES)];
        let options = Options { drives, has_files: true, seed, ..Options::default() };
        println!("disks with seed {seed}");
        Bench { mounted: Mounted::new(folder.path(), &options).unwrap(), _folder: folder }
    }

    fn disks(&self) -> &Disks {
        self.mounted.disks()
    }

    /// Takes the power away, where it is not gone already, and gives it back.
    fn cut(&self) {
        if self.disks().is_on() {
            self.disks().cut(None).unwrap();
        }
        self.disks().power_on();
    }
}

/// Whether a run misses something, which it says with a panic.
fn misses(run: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
}

fn open(path: &Path, flags: OFlags) -> File {
    File::options().read(true).write(true).custom_flags(flags.bits() as i32).open(path).unwrap()
}

const RECORD_BYTES: usize = 4096;

/// A journal in a file: a record is acknowledged when it is flushed, and begins with its number, which fills it.
fn journal(bench: &Bench, flags: OFlags, cuts: u32, flushes: bool) {
    let mut random = Random::of(bench.disks().seed());
    let path = bench.mounted.path_of("drive");
    let mut buffer = BufferPool::new().take(RECORD_BYTES);
    let (mut acknowledged, mut answered) = (0u64, 0);
    for cut in 1..=cuts {
        let file = open(&path, flags);
        // A record that is not as a whole there ends it; those before are checked, too.
        let mut end = 0;
        loop {
            file.read_exact_at(&mut buffer, end * RECORD_BYTES as u64).unwrap();
            if !buffer.chunks(8).all(|word| word == (end + 1).to_le_bytes()) {
                break;
            }
            end += 1;
        }
        assert!(end >= acknowledged, "cut {cut}: {end} records are there, {acknowledged} were acknowledged");
        bench.disks().cut_after(random.below(60));
        loop {
            let number = end + 1;
            buffer.chunks_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
            let written = file.write_all_at(&buffer, end * RECORD_BYTES as u64);
            if written.and_then(|()| if flushes { file.sync_data() } else { Ok(()) }).is_err() {
                break;
            }
            (end, acknowledged, answered) = (number, number, answered + 1);
        }
        drop(file);
        bench.cut();
    }
    assert!(answered > cuts * 5, "{answered} records were acknowledged");
}

/// Goal: a journal loses nothing that it acknowledged; one that does not flush does, and one on a disk that lies. Method: cuts at commands that a
/// seed says, with the kernel's page cache and past it.
#[test]
fn a_journal_loses_nothing() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    for flags in [OFlags::empty(), OFlags::DIRECT] {
        journal(&Bench::new(11), flags, CUTS, true);
        let lying = Bench::new(12);
        lying.disks().lie(true);
        assert!(misses(|| journal(&lying, flags, CUTS_TO_NOTICE, true)), "{flags:?}: a lie");
    }
    let careless = || journal(&Bench::new(13), OFlags::DIRECT, CUTS_TO_NOTICE, false);
    assert!(misses(careless), "no flush");
}

/// What a row has beside its number: it tells whether it is the row's.
fn content(number: i64) -> Vec<u8> {
    let len = 100 + (number as usize * 37) % 3000;
    number.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn connect(bench: &Bench, mode: &str) -> rusqlite::Result<Connection> {
    let connection = Connection::open(bench.mounted.path_of("database"))?;
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", 16)?;
    connection.execute_batch("CREATE TABLE IF NOT EXISTS t (number INTEGER PRIMARY KEY, content BLOB)")?;
    Ok(connection)
}

/// Transactions of several rows until an error. The number of the last row that was committed.
fn transact(connection: &mut Connection, mut last: i64, acknowledged: &mut i64) -> rusqlite::Result<()> {
    loop {
        let transaction = connection.transaction()?;
        for _ in 0..1 + last % 4 {
            last += 1;
            transaction.execute("INSERT INTO t VALUES (?, ?)", params![last, content(last)])?;
        }
        transaction.execute("UPDATE t SET content = content WHERE number % 7 = 0", [])?;
        transaction.commit()?;
        *acknowledged = last;
    }
}

fn sqlite(bench: &Bench, cuts: u32) {
    let mut random = Random::of(bench.disks().seed());
    let mut acknowledged = 0;
    for cut in 1..=cuts {
        let mode = ["DELETE", "WAL", "TRUNCATE", "PERSIST"][(cut as usize / 4) % 4];
        let mut connection = connect(bench, mode).unwrap();
        let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok", "cut {cut}");
        let mut last = 0;
        {
            let mut statement = connection.prepare("SELECT number, content FROM t ORDER BY number").unwrap();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                last += 1;
                let (number, bytes): (i64, Vec<u8>) = (row.get(0).unwrap(), row.get(1).unwrap());
                assert!(number == last && bytes == content(number), "cut {cut}: row {last}");
            }
        }
        assert!(last >= acknowledged, "cut {cut}: {last} rows, {acknowledged} were committed");
        bench.disks().cut_after(20 + random.below(250));
        transact(&mut connection, last, &mut acknowledged).unwrap_err();
        drop(connection);
        bench.cut();
    }
    assert!(acknowledged > i64::from(cuts), "{acknowledged} rows were committed");
}

/// Goal: SQLite's transactions with `synchronous = FULL` are there after cuts, and the database is whole, in each of its journal modes; not so
/// on a disk that lies.
#[test]
fn sqlite_loses_nothing() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    sqlite(&Bench::new(21), CUTS);
    let lying = Bench::new(22);
    lying.disks().lie(true);
    assert!(misses(|| sqlite(&lying, CUTS_TO_NOTICE)), "a lie");
}

/// Whether fio says that all is as it wrote it.
fn fio(bench: &Bench, more: &[&str]) -> bool {
    let mut fio = Command::new("fio");
    fio.arg(format!("--filename={}", bench.mounted.path_of("drive").display()));
    fio.args(["--name=verified", "--direct=1", "--ioengine=io_uring", "--iodepth=16", "--size=16m"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]).args(more);
    let output = fio.output().unwrap();
    println!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    output.status.success()
}

/// Goal: fio finds what it wrote, at once and, where it flushed at the end, after cuts; not so on a disk that lies.
#[test]
fn fio_finds_what_it_wrote() {
    if !needs::are_there(&[needs::fuse(), vec![Need::Program("fio")]].concat()) {
        return;
    }
    let bench = Bench::new(31);
    assert!(fio(&bench, &["--rw=randwrite", "--bsrange=4k-64k", "--fsync=32", "--do_verify=1"]));
    let round = |bench: &Bench, number: u32| {
        let seed = format!("--randseed={number}");
        let work = [&seed[..], "--rw=randwrite", "--bs=16k"];
        assert!(fio(bench, &[&work[..], &["--do_verify=0", "--end_fsync=1"]].concat()));
        bench.cut();
        fio(bench, &[&work[..], &["--verify_only=1"]].concat())
    };
    assert!((0..5).all(|number| round(&bench, number)), "something that was flushed is missing");
    let lying = Bench::new(32);
    lying.disks().lie(true);
    assert!(!(0..CUTS_TO_NOTICE).all(|number| round(&lying, number)), "a lie");
}

/// A ring carries out what a medium asks for.
struct OnRing(DriveRing);

impl CarryOut for OnRing {
    fn begin(&mut self, intents: &mut Vec<Intent>, _now: Time) {
        intents.drain(..).for_each(|intent| self.0.push(intent));
        self.0.submit();
    }
    fn end(&mut self, _now: Time, done: &mut Vec<IntentDone>) {
        self.0.submit_and_wait();
        self.0.take_done(done);
    }
    fn next_event(&self) -> Time {
        if self.0.is_idle() { Time::NEVER } else { Time::ZERO }
    }
}

type OnDrive = Driven<DriveMedium, OnRing>;

fn on_drive(bench: &Bench) -> OnDrive {
    let file = open(&bench.mounted.path_of("drive"), OFlags::empty());
    let ring = DriveRing::new(&file, PageCache::Bypassed).unwrap();
    let shape = DriveShape::plan(SIZE_BYTES, 4, Some(1 << 20)).unwrap();
    Driven::new(DriveMedium::new(shape, true, true), OnRing(ring))
}

/// Programs and flushes, and at least so many cuts amid them. `lies` is what the disk does.
fn medium(seed: u64, cuts: u32, lies: bool) {
    let (bench, mut done) = (Bench::new(seed), 0);
    bench.disks().lie(lies);
    for life in 0.. {
        conformance::flushed_content_survives_cuts(on_drive(&bench), seed * 1000 + life, &mut |medium| {
            // With what the kernel has of it: the ring waits for the answers, which are errors.
            bench.disks().cut(None).unwrap();
            drop(medium);
            bench.disks().power_on();
            done += 1;
            on_drive(&bench)
        });
        if done >= cuts {
            return;
        }
    }
}

/// Goal: the medium of drives and the ring lose nothing that a flush covered, on a disk that the kernel serves. Method: the contract's check with
/// real cuts; a disk that lies, and a medium that answers flushes without asking for any, are seen within four.
#[test]
fn a_medium_on_a_ring_loses_nothing() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    medium(41, CUTS, false);
    assert!(misses(|| medium(42, 1, true)), "a lie");
    is_noticed("drives: a flush does nothing", || medium(43, 1, false));
}

/// Goal: a flush that the disk failed is the last one, although the next would succeed; and that it is not is noticed.
#[test]
fn a_medium_on_a_ring_ends_with_a_failed_flush() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    after_a_failed_flush();
    is_noticed("drives: a flush that failed is asked again", after_a_failed_flush);
}

fn after_a_failed_flush() {
    for how in [FailedFlush::Forgets, FailedFlush::Drops, FailedFlush::Keeps] {
        let bench = Bench::new(51);
        let (mut medium, mut now) = (on_drive(&bench), Time::ZERO);
        let block = DieAddress::new(1, 0).erase_block(BlockIndex(3));
        conformance::execute(&mut medium, &mut now, Operation::Erase { block });
        let operation = conformance::program_of(&medium, block, 0, 1, 1);
        assert_eq!(conformance::execute(&mut medium, &mut now, operation).result, Ok(()));
        bench.disks().fail_next_flush(how);
        for _ in 0..2 {
            medium.flush(MediaToken(9), now);
            let answer = conformance::finish(&mut medium, &mut now, 1).remove(0);
            assert_eq!(answer.result, Err(MediaError::FlushFailed));
        }
        let operation = conformance::program_of(&medium, block, 1, 1, 1);
        let refused = conformance::execute(&mut medium, &mut now, operation).result;
        assert_eq!(refused, Err(MediaError::DieOffline { block }));
        let statistics = bench.disks().statistics();
        assert_eq!((statistics.flushes, statistics.failed_flushes), (0, 1), "{statistics}");
    }
}
