//! Programs that nobody here wrote, on a server on a disk that loses power: what they were told is durable is never missing. Where flushes do nothing, that
//! is seen within five cuts. Method: the shipped server, `kind = "file"`, on a disk of `diecut_power`; its namespace is a file through FUSE (`diecut_bridge`), on
//! which fio works, and over a loop device ext4, on which SQLite and RocksDB do. A cut takes the power of the disk, the server, the bridge and the mounts.

mod bridged;
mod fio;
mod moving;
mod rig;
mod rocksdb;
mod sqlite;

use diecut_testing::depth::depth;
use diecut_testing::needs::{self, Need};
use rig::{Liar, PLAIN, Rig, Shape};

/// Cuts within which it is seen that flushes do nothing.
const CUTS_TO_NOTICE: u32 = 5;

/// What is needed to mount what a bridge shows.
fn mounts() -> Vec<Need> {
    [needs::fuse(), needs::ext4()].concat()
}

/// A program, and what it was told.
trait Stranger {
    /// Whether it works on files, not on the namespace itself.
    const HAS_FILES: bool;
    /// Looks at all that is there. An error is one of a disk without power; what is missing is a panic.
    fn check(&mut self, rig: &Rig, what: &str) -> Result<(), String>;
    /// Works until the power goes, or it has done enough.
    fn work(&mut self, rig: &mut Rig, cut: u32);
    /// How much was acknowledged.
    fn acknowledged(&self) -> u64;
}

/// So many cuts, and a look at what is there after the last one. In every fourth life the power may go before the program works.
fn lives<S: Stranger>(rig: &mut Rig, stranger: &mut S, cuts: u32) {
    let mut interrupted = 0;
    for cut in 0..=cuts {
        let is_hasty = cut % 4 == 3 && cut < cuts;
        if is_hasty {
            let order = rig.random.below(8);
            let commands = rig.random.below(4 << order);
            rig.disks().cut_after(commands);
        }
        let begun = begin(rig, stranger, cut);
        match begun {
            Ok(()) if cut < cuts => {
                rig.is_made();
                stranger.work(rig, cut);
            }
            Ok(()) => {}
            Err(error) => {
                assert!(is_hasty && !rig.disks().is_on(), "life {cut}: {error}");
                interrupted += 1;
            }
        }
        rig.end();
    }
    let acknowledged = stranger.acknowledged();
    println!("{cuts} cuts, {interrupted} of them before the program worked; {acknowledged} acknowledged");
    assert!(acknowledged > u64::from(cuts), "{acknowledged} acknowledged in {cuts} cuts");
}

fn begin<S: Stranger>(rig: &mut Rig, stranger: &mut S, cut: u32) -> Result<(), String> {
    rig.start()?;
    if S::HAS_FILES {
        if cut == 0 {
            rig.make_file_system();
        }
        rig.mount(cut % 2 == 1)?;
    }
    stranger.check(rig, &format!("life {cut}"))
}

const GIVES_BACK: Shape = Shape { gives_back: true, ..PLAIN };
const SHARDS: Shape = Shape { shards: &[1, 2], ..PLAIN };
/// Two drives, and one to three shards.
const POOL: Shape = Shape { drives: 2, is_wide: true, shards: &[2, 1, 3], gives_back: true };
/// Two drives, of which one is used.
const TWO: Shape = Shape { drives: 2, is_wide: false, ..PLAIN };

/// A program outlives cuts, and a disk that lies does not go unseen.
fn outlives<S: Stranger + Default>(seed: u64, shape: Shape) {
    lives(&mut Rig::new(seed, shape, Liar::Nobody), &mut S::default(), depth(12, 50));
    assert!(is_seen::<S>(seed + 1, shape, Liar::Drives), "flushes did nothing");
    if depth(false, true) {
        for (at, shape) in (1..).zip([PLAIN, GIVES_BACK, SHARDS, POOL]) {
            lives(&mut Rig::new(seed + at * 100, shape, Liar::Nobody), &mut S::default(), 25);
        }
    }
}

/// Whether a program misses something.
fn is_seen<S: Stranger + Default>(seed: u64, shape: Shape, liar: Liar) -> bool {
    let run = || lives(&mut Rig::new(seed, shape, liar), &mut S::default(), CUTS_TO_NOTICE);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
}

/// Goal: SQLite's transactions with `synchronous = FULL` are there after cuts, whole, and the database is; not so on a disk that lies.
#[test]
fn sqlite_on_a_server_loses_nothing() {
    if needs::are_there(&mounts()) {
        outlives::<sqlite::Database>(61, PLAIN);
    }
}

/// Goal: the same while a drive is emptied in each life: what lies there moves to the other one, or stays, whole.
#[test]
fn sqlite_on_a_server_loses_nothing_while_it_moves() {
    if !needs::are_there(&mounts()) {
        return;
    }
    let mut moving = moving::Moving::default();
    lives(&mut Rig::new(67, TWO, Liar::Nobody), &mut moving, depth(12, 50));
    println!("{} moves", moving.moves());
    assert!(moving.moves() > 0, "no move ended");
}

/// Goal: what RocksDB wrote with a sync is there after cuts, and the database is whole; not so on a disk that lies. The drive is told what is not needed
/// any more.
#[test]
fn rocksdb_on_a_server_loses_nothing() {
    if needs::are_there(&[mounts(), vec![Need::Header("rocksdb/version.h")]].concat()) {
        outlives::<rocksdb::Store>(63, POOL);
    }
}

/// Goal: fio finds what it wrote and flushed, after cuts while it writes elsewhere; not so on a disk that lies.
#[test]
fn fio_on_a_server_finds_what_it_wrote() {
    if needs::are_there(&[needs::fuse(), vec![Need::Program("fio")]].concat()) {
        outlives::<fio::Halves>(65, SHARDS);
    }
}

/// Goal: a build of the server that skips flushes, or answers them early, is seen by each program.
#[test]
fn a_server_that_skips_flushes_is_seen() {
    let needs = [Need::Program("fio"), Need::Header("rocksdb/version.h")];
    if !needs::are_there(&[mounts(), needs.to_vec()].concat()) {
        return;
    }
    for (seed, bug) in (71..).zip(["drives: a flush does nothing", "volume: flush answered early"]) {
        let liar = Liar::Server(bug);
        assert!(is_seen::<sqlite::Database>(seed, PLAIN, liar), "SQLite: {bug}");
        assert!(is_seen::<rocksdb::Store>(seed, PLAIN, liar), "RocksDB: {bug}");
        assert!(is_seen::<fio::Halves>(seed, PLAIN, liar), "fio: {bug}");
    }
}
