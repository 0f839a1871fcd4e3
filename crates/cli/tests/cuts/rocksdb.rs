//! RocksDB, on whose every sixteenth write a sync waits. The load is that of the plug-ins (`ledger.hpp`), on RocksDB's own files.

use super::Stranger;
use super::rig::{Rig, limited, said, words};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What was acknowledged: the number of a write that is synced, and all before it.
#[derive(Default)]
pub struct Store {
    acknowledged: u64,
}

/// The load, built once.
fn program() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuts");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("power-rocksdb");
        let mut compile = Command::new("c++");
        compile.args(["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror"]);
        compile.arg(format!("-I{tests}/../../../../apps/blockfile-abi/tests/ledger"));
        compile.arg("-o").arg(&program).arg(format!("{tests}/rocksdb.cc")).arg("-lrocksdb");
        said(&mut compile).unwrap();
        program
    })
}

fn load(rig: &Rig, what: &str, is_direct: bool) -> Command {
    let mut load = limited(program());
    load.arg(rig.files()).arg(what);
    if is_direct {
        load.env("LEDGER_DIRECT", "1");
    }
    load
}

/// The number behind the last such word.
fn last(said: &str, word: &str) -> Option<u64> {
    said.lines().rev().find_map(|line| line.strip_prefix(word)).map(|number| number.parse().unwrap())
}

impl Stranger for Store {
    const HAS_FILES: bool = true;

    fn check(&mut self, rig: &Rig, what: &str) -> Result<(), String> {
        let said = said(&mut load(rig, "check", false)).map_err(|error| format!("{what}: {error}"))?;
        let found = last(&said, "found ").unwrap();
        let acknowledged = self.acknowledged;
        assert!(found >= acknowledged, "{what}: {found} writes, {acknowledged} were acknowledged");
        Ok(())
    }

    fn work(&mut self, rig: &mut Rig, cut: u32) {
        rig.make_trouble(1500);
        let output = load(rig, "run", cut % 3 == 2).output().unwrap();
        // It says the error, or an assertion of RocksDB's ends it.
        assert!(rig.has_trouble(), "life {cut}: it ends by itself: {}", words(&output));
        let said = String::from_utf8(output.stdout).unwrap();
        self.acknowledged = last(&said, "acked ").unwrap_or(self.acknowledged);
        let status = output.status.to_string();
        let end = said.lines().find_map(|line| line.strip_prefix("ended ")).unwrap_or(&status);
        println!("life {cut}: {} writes, then {end}", self.acknowledged);
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}
