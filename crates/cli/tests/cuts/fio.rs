//! fio on the namespace itself: two halves of it, of which one is as fio flushed it, while fio writes to the other one.

use super::Stranger;
use super::rig::{Rig, limited, words};
use std::process::Command;

const HALF_MIB: u32 = 16;
const BLOCK_KIB: u32 = 16;

/// What was flushed.
#[derive(Default)]
pub struct Halves {
    /// The half that is right, and the seed that it was written with.
    right: Option<(u32, u32)>,
    flushed_blocks: u64,
}

fn fio(rig: &Rig, half: u32, seed: u32, more: &[&str]) -> Command {
    let mut fio = limited("fio");
    fio.arg(format!("--filename={}", rig.file().display()));
    fio.args(["--name=verified", "--direct=1", "--ioengine=io_uring", "--iodepth=16", "--rw=randwrite"]);
    fio.args(["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"]);
    fio.arg(format!("--bs={BLOCK_KIB}k")).arg(format!("--size={HALF_MIB}m"));
    fio.arg(format!("--offset={}m", half * HALF_MIB)).arg(format!("--randseed={seed}")).args(more);
    fio
}

impl Stranger for Halves {
    const HAS_FILES: bool = false;

    fn check(&mut self, rig: &Rig, what: &str) -> Result<(), String> {
        let Some((half, seed)) = self.right else { return Ok(()) };
        let output = fio(rig, half, seed, &["--verify_only=1"]).output().unwrap();
        if output.status.success() { Ok(()) } else { Err(format!("{what}: {}", words(&output))) }
    }

    /// A flush at the end, and some before, covers a half. Two of three times the power goes before.
    fn work(&mut self, rig: &mut Rig, cut: u32) {
        let half = self.right.map_or(0, |(half, _)| 1 - half);
        if cut % 3 != 1 {
            rig.make_trouble(700);
        }
        let work = ["--do_verify=0", "--fsync=64", "--end_fsync=1"];
        let output = fio(rig, half, cut, &work).output().unwrap();
        let has_flushed = output.status.success();
        assert!(has_flushed || rig.has_trouble(), "life {cut}: {}", words(&output));
        if has_flushed {
            self.right = Some((half, cut));
            self.flushed_blocks += u64::from(HALF_MIB * 1024 / BLOCK_KIB);
        }
        println!("life {cut}: {}", if has_flushed { "a half is flushed" } else { "the power goes before" });
    }

    fn acknowledged(&self) -> u64 {
        self.flushed_blocks
    }
}
