//! `diecut device identify` says what a file is, without a server, and writes nothing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn file(folder: &Path, name: &str, size: u64, content: &[(u64, &[u8])]) -> PathBuf {
    let path = folder.join(name);
    let file = File::create(&path).unwrap();
    file.set_len(size).unwrap();
    for (offset, bytes) in content {
        file.write_all_at(bytes, *offset).unwrap();
    }
    path
}

fn identify(arguments: &[&str], paths: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diecut"));
    command.args(["device", "identify"]).args(arguments).args(paths).output().unwrap()
}

#[test]
fn files_are_identified_and_not_written() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let free = file(folder.path(), "free", 2 << 30, &[]);
    let taken = file(folder.path(), "taken", 2 << 30, &[(0, b"XFSB"), (4086, b"SWAPSPACE2")]);
    let small = file(folder.path(), "small", 1 << 20, &[(5000, b"?")]);
    let output = identify(&["--json"], &[&free, &taken, &small]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let known: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let [free_is, taken_is, small_is] = [0, 1, 2].map(|at| &known[at]);
    assert_eq!(free_is["fits"], true, "{free_is}");
    assert_eq!(free_is["shape"]["lanes"], 1);
    assert_eq!(free_is["shape"]["block_size_bytes"], 16 << 20);
    assert_eq!(free_is["shape"]["blocks_per_lane"], 127);
    assert_eq!(free_is["properties"]["size_bytes"], 2u64 << 30);
    assert_eq!(taken_is["fits"], false);
    let kinds = taken_is["contents"]["found"].as_array().unwrap();
    let kinds: Vec<&str> = kinds.iter().map(|found| found["kind"].as_str().unwrap()).collect();
    assert!(kinds.contains(&"xfs") && kinds.contains(&"swap"), "{kinds:?}");
    assert_eq!((&small_is["fits"], &small_is["shape"]), (&false.into(), &serde_json::Value::Null));
    assert_eq!(small_is["contents"]["unknown_at"], 5000);

    let output = identify(&["--lanes", "4"], &[&free, &taken, &folder.path().join("none")]);
    assert!(!output.status.success(), "one of them is not there");
    assert!(String::from_utf8_lossy(&output.stderr).contains("none cannot be examined"));
    let text = String::from_utf8_lossy(&output.stdout);
    // Cells are broken into lines where they must.
    let text: Vec<&str> = text.split_whitespace().filter(|word| word.is_ascii()).collect();
    let text = text.join(" ");
    for what in [
        "4 lanes of 31 erase blocks of 16 MiB",
        "nothing that is known, and zeros",
        "an XFS file system at byte 0",
        "swap space at byte 4086",
        "Nothing was written. `diecut device format DRIVE`",
        "would be taken yes",
        "would be taken no: it holds",
    ] {
        assert!(text.contains(what), "{what}: {text}");
    }
    assert_eq!(std::fs::metadata(&taken).unwrap().len(), 2 << 30);
}

#[test]
fn a_server_is_not_asked() {
    let output = Command::new(env!("CARGO_BIN_EXE_diecut"))
        .args(["device", "--socket", "x", "identify", "y"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("--socket does nothing for `diecut device`"), "{said}");
}
