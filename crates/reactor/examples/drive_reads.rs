//! How fast a drive answers random 4 KiB reads through the medium of drives and the ring of a shard, without a network:
//!
//! ```text
//! drive_reads FILE DEPTH SECONDS
//! ```
//!
//! The file is as large as what is read; nothing is written. It prints reads per second, and processor time of a read. What to compare
//! with is `fio --name=r --filename=FILE --direct=1 --ioengine=io_uring --rw=randread --bs=4k --iodepth=DEPTH --time_based --runtime=SECONDS`.

use diecut_drives::{DriveMedium, DriveShape};
use diecut_media::{Command, Media, MediaToken, Operation};
use diecut_reactor::{DriveRing, PageCache};
use diecut_units::{BlockIndex, BufferPool, DieAddress, IU_SIZE_BYTES, Time};
use rustix::time::{ClockId, clock_gettime};
use std::fs::File;

fn seconds(clock: ClockId) -> f64 {
    let now = clock_gettime(clock);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, depth, duration] = &arguments[..] else { panic!("drive_reads FILE DEPTH SECONDS") };
    let (depth, duration): (u64, f64) =
        (depth.parse().expect("a number"), duration.parse().expect("a number"));
    let file = File::options().read(true).write(true).open(path).expect("the file can be opened");
    let size_bytes = file.metadata().expect("it is a file").len();
    let shape = DriveShape::plan(size_bytes, 4, None).expect("it is large enough");
    let (mut medium, mut pool) = (DriveMedium::new(shape, true, false), BufferPool::new());
    let mut ring = DriveRing::new(&file, PageCache::Bypassed).expect("a ring");
    let ius = (shape.block_size_bytes / IU_SIZE_BYTES as u64) as u32;
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |limit: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((state >> 32) * u64::from(limit)) >> 32) as u32
    };
    let (mut intents, mut done, mut completions) = (Vec::new(), Vec::new(), Vec::new());
    let (begin, cpu_begin) = (seconds(ClockId::Monotonic), seconds(ClockId::ProcessCPUTime));
    let (mut reads, mut under_way, mut token) = (0u64, 0, 0);
    while seconds(ClockId::Monotonic) - begin < duration {
        while under_way < depth {
            let block =
                DieAddress::new(below(4) as u16, 0).erase_block(BlockIndex(below(shape.blocks_per_lane)));
            let destination = pool.take(IU_SIZE_BYTES);
            let operation =
                Operation::Read { block, first_iu: below(ius), iu_count: 1, destination, oob: None };
            token += 1;
            medium.submit(Command { token: MediaToken(token), operation }, Time::ZERO);
            under_way += 1;
        }
        medium.take_intents(&mut intents);
        intents.drain(..).for_each(|intent| ring.push(intent));
        ring.submit_and_wait();
        ring.take_done(&mut done);
        done.drain(..).for_each(|done| medium.intent_done(done, Time::ZERO));
        medium.advance(Time::ZERO, &mut completions);
        for completion in completions.drain(..) {
            completion.result.expect("a read that works");
            under_way -= 1;
            reads += 1;
        }
    }
    let (wall, cpu) = (seconds(ClockId::Monotonic) - begin, seconds(ClockId::ProcessCPUTime) - cpu_begin);
    println!("{:.0} reads/s, {:.2} us of processor time each", reads as f64 / wall, cpu * 1e6 / reads as f64);
}
