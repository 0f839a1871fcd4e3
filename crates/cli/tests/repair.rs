//! Goal: an operator learns why a vSSD takes no writes, brings it back when the cause is gone, and can give up what is lost; and a
//! server whose stores became empty starts any number of times. Method: the real binary on a small device in a file; chunk heads
//! in the file are damaged and put right again.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::{host, served};
use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_nvme::Status;
use diecut_units::Buffer;
use host::Host;
use served::{Server, diecut, done, refused};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// LBAs of 4 KiB.
const LBAS: u64 = 1024;
const IU_SIZE_BYTES: usize = 4096;

const SETUP: &str = r#"
[device]
profile = "small.toml"
protected_memory = "64M"
[[tenant]]
name = "a"
[[vssd]]
name = "flash"
tenant = "a"
isolation = "channel"
capacity = "24M"
[[volume]]
name = "disk"
vssd = "flash"
size = "4M"
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:a"
tenant = "a"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "disk" }]
"#;

fn serve(folder: &Path) -> Server {
    Server::start(folder, &["--setup", "setup.toml"])
}

fn run(server: &Server, command: Command) -> (Status, Option<Vec<u8>>) {
    let mut host = Host::connect(server.address().parse().unwrap(), "a").unwrap();
    host.queue.submit(Token(1), command);
    let mut sink = Collect::default();
    while sink.completions.is_empty() {
        host.exchange(&mut sink).unwrap();
    }
    (sink.completions[0].status, sink.data.remove(&Token(1)))
}

fn content(lba: u64, version: u64) -> Vec<u8> {
    [lba, version].iter().flat_map(|word| word.to_le_bytes()).cycle().take(IU_SIZE_BYTES).collect()
}

fn write(server: &Server, first: u64, count: u64, version: u64) -> Status {
    let data: Vec<u8> = (first..first + count).flat_map(|lba| content(lba, version)).collect();
    let span = LbaSpan { nsid: 1, first, count: count as u32 };
    run(server, Command::Write { span, data: Buffer::copy_from(&data), force_unit_access: false }).0
}

/// Writes all of it.
fn fill(server: &Server, version: u64) {
    for first in (0..LBAS).step_by(16) {
        assert_eq!(write(server, first, 16, version), Status::SUCCESS);
    }
}

/// The versions of all LBAs; `None` where the read fails.
fn versions(server: &Server) -> Vec<Option<u64>> {
    let read = |first: u64| {
        let span = LbaSpan { nsid: 1, first, count: 16 };
        let (status, data) = run(server, Command::Read { span, length_bytes: 16 * IU_SIZE_BYTES as u32 });
        let data = data.filter(|_| status == Status::SUCCESS);
        (0..16).map(move |at| {
            let data = &data.as_ref()?[at * IU_SIZE_BYTES..][..IU_SIZE_BYTES];
            let version = u64::from_le_bytes(data[8..16].try_into().unwrap());
            assert!(version == 0 || data == content(first + at as u64, version), "LBA {}", first + at as u64);
            Some(version)
        })
    };
    (0..LBAS).step_by(16).flat_map(read).collect()
}

/// Where the chunk head of the user stream with the lowest sequence lies in the image, and its bytes.
fn oldest_head(image: &std::fs::File) -> (u64, Vec<u8>) {
    let mut found: Option<(u64, u64, Vec<u8>)> = None;
    let mut page = vec![0; IU_SIZE_BYTES];
    for offset in (0..image.metadata().unwrap().len()).step_by(IU_SIZE_BYTES) {
        if image.read_at(&mut page, offset).unwrap() < IU_SIZE_BYTES || !page.starts_with(b"dchk") {
            continue;
        }
        // As in crates/log/src/format/head.rs.
        let stream = u16::from_le_bytes(page[10..12].try_into().unwrap());
        let data_count = u16::from_le_bytes(page[24..26].try_into().unwrap());
        let sequence = u64::from_le_bytes(page[32..40].try_into().unwrap());
        if stream == 0 && data_count > 0 && found.as_ref().is_none_or(|(least, ..)| sequence < *least) {
            found = Some((sequence, offset, page.clone()));
        }
    }
    let (_, offset, bytes) = found.expect("something was programmed");
    (offset, bytes)
}

#[test]
fn a_vssd_that_lost_something_is_explained_and_repaired() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    served::write_profile(folder);
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    let server = serve(folder);
    fill(&server, 1);
    fill(&server, 2);
    let said = done(folder, &["vssd", "repair", "flash"]);
    assert!(said.contains("takes writes; there is nothing to repair"), "{said}");
    assert!(refused(folder, &["vssd", "repair", "none"]).contains("\"none\""));
    server.kill();

    // A chunk head becomes zeros.
    let image = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(folder.join("diecut-data/device.img"))
        .unwrap();
    let (offset, sound) = oldest_head(&image);
    image.write_all_at(&[0; IU_SIZE_BYTES], offset).unwrap();
    let server = serve(folder);
    let logged = server.said();
    assert!(
        logged.contains("lost records of writes") && logged.contains("diecut vssd repair flash"),
        "{logged}"
    );
    let status = done(folder, &["status"]);
    assert!(!status.contains("loss was accepted"), "{status}");
    assert!(status.contains("read-only") && status.contains("lost records of writes"), "{status}");
    assert_ne!(write(&server, 5, 1, 3), Status::SUCCESS);
    let output = diecut(folder, &["vssd", "repair", "flash"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("chunk head at program unit") && said.contains("--accept-loss"), "{said}");
    let report = diecut(folder, &["--json", "vssd", "repair", "flash"]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    assert_eq!((&report["outcome"], &report["lost_records"]), (&"read-only".into(), &1.into()), "{report}");

    // The head comes back: nothing was lost, and the running server takes writes again.
    image.write_all_at(&sound, offset).unwrap();
    let said = done(folder, &["vssd", "repair", "flash"]);
    assert!(said.contains("takes writes again: nothing was lost"), "{said}");
    assert_eq!(versions(&server), vec![Some(2); LBAS as usize]);
    assert_eq!(write(&server, 0, 16, 3), Status::SUCCESS);
    server.kill();

    // It is gone for good.
    let (offset, _) = oldest_head(&image);
    image.write_all_at(&[0; IU_SIZE_BYTES], offset).unwrap();
    let server = serve(folder);
    assert!(refused(folder, &["vssd", "repair", "flash", "--accept-loss"]).contains("--yes"));
    let said = done(folder, &["vssd", "repair", "flash", "--accept-loss", "--yes"]);
    assert!(said.contains("takes writes again, without what is lost"), "{said}");
    assert!(said.contains("records of writes are lost"), "{said}");
    let found = versions(&server);
    assert!(found.iter().all(|version| version.is_none_or(|version| version <= 3)));
    let status = done(folder, &["status"]);
    assert!(
        status.contains("vSSD flash: loss was accepted: ") && status.contains("a record of writes lost"),
        "{status}"
    );
    fill(&server, 4);
    server.kill();
    for life in 0..3 {
        let server = serve(folder);
        let status = done(folder, &["status"]);
        assert!(!status.contains("read-only"), "life {life}: {status}");
        assert!(status.contains("loss was accepted"), "life {life}: {status}");
        let told: serde_json::Value = serde_json::from_str(&done(folder, &["--json", "status"])).unwrap();
        assert_eq!(told["vssds"][0]["accepted_loss"]["records"], 1, "life {life}: {told}");
        assert_eq!(versions(&server), vec![Some(4); LBAS as usize], "life {life}");
        let said = done(folder, &["vssd", "repair", "flash"]);
        assert!(said.contains("records of writes were lost and that was accepted"), "{said}");
        if life == 1 { server.kill() } else { drop(server.stop()) }
    }
}

/// Seen to fail, in its volume's own test, while recovery looked for what nobody needed any more: the second start said that
/// records of writes were lost.
#[test]
fn a_server_whose_volumes_were_deleted_starts_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    served::write_profile(folder);
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    for round in 0..2 {
        let server = serve(folder);
        if round > 0 {
            done(folder, &["apply", "setup.toml"]);
        }
        for version in 1..6 {
            fill(&server, version);
        }
        done(folder, &["subsystem", "delete", "nqn.2026-11.org.diecut:a", "--yes"]);
        done(folder, &["volume", "delete", "disk", "--yes"]);
        server.kill();
        for life in 0..4 {
            let server = serve(folder);
            let status = done(folder, &["status"]);
            assert!(!status.contains("read-only"), "round {round}, start {life}: {status}");
            if life % 2 == 0 { server.kill() } else { drop(server.stop()) }
        }
    }
}
