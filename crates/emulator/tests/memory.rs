//! What a device in memory takes of it. In a program of its own: other tests take memory, too.

use crate::rig;
use diecut_emulator::*;
use diecut_media::*;
use diecut_units::*;
use rig::*;

/// Anonymous memory of this process.
fn anonymous_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Blocks are opened in turn, over all of a device, and few of them live: the process takes what they hold, and not what was ever written.
#[test]
fn a_device_in_memory_takes_what_lives() {
    let text = Profile::named("tiny").unwrap().to_toml();
    let profile =
        Profile::from_toml(&text.replace("blocks_per_plane = 40", "blocks_per_plane = 400")).unwrap();
    let options = Options { pacing: Pacing::Unpaced, ..Options::default() };
    let mut rig = Rig::over(Device::create(&profile, options).unwrap());
    let geometry = *rig.device.geometry();
    let all = geometry.all_dies().flat_map(|die| {
        (0..geometry.erase_blocks_per_die()).map(move |index| die.erase_block(BlockIndex(index)))
    });
    let all: Vec<_> = all.filter(|block| !rig.device.is_factory_bad(*block)).collect();
    let before = anonymous_bytes();
    let (live, block_bytes) = (8, u64::from(geometry.erase_block_size_bytes() as u32));
    for (nth, &block) in all.iter().enumerate() {
        assert!(rig.device.make_room(block, rig.now));
        rig.run(Operation::Erase { block }).unwrap();
        rig.run(program(block, 0, 8, nth as u8)).unwrap();
        if nth >= live {
            rig.device.discard(all[nth - live], rig.now);
        }
    }
    let taken = anonymous_bytes() - before;
    let written = all.len() as u64 * block_bytes;
    assert!(written > 300 << 20, "{written} bytes written");
    // Huge pages, and what the test itself holds.
    assert!(taken < 32 << 20, "{taken} bytes taken for {live} blocks of {block_bytes}");
    for (nth, &block) in all.iter().enumerate().skip(all.len() - live) {
        assert_eq!(rig.run(read(block, 0, 64)).unwrap().unwrap()[..], content(nth as u8, 64)[..]);
    }
}
