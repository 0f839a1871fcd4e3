//! Goal: a full file system under the device is a write error and a word in `status`, never the end of the server or of reads; a
//! server starts on it; and writes go on as soon as there is room. Method: the real binary on a small tmpfs in a mount namespace of
//! its own, where somebody else takes the room. Needs root; else the test says so and does nothing.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::{host, served};
use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_nvme::Status;
use diecut_testing::mounted::in_small_file_system;
use diecut_testing::wait::wait_until;
use diecut_units::Buffer;
use host::Host;
use served::{Server, done, write_profile};
use std::path::{Path, PathBuf};

const MOUNTED: &str = "DIECUT_TEST_MOUNTED_AT";
const LBAS: u64 = 12 << 10;

/// What it says goes elsewhere: there is no room for it beside the device.
fn serve(elsewhere: &Path, folder: &Path) -> Server {
    let setup = folder.join("setup.toml");
    Server::start(elsewhere, &["--setup", setup.to_str().unwrap(), "--data", folder.to_str().unwrap()])
}

fn status(folder: &Path) -> String {
    done(folder, &["--socket", folder.join("control.sock").to_str().unwrap(), "status"])
}

fn run(host: &mut Host, command: Command) -> (Status, Collect) {
    host.queue.submit(Token(1), command);
    let mut sink = Collect::default();
    while sink.completions.is_empty() {
        host.exchange(&mut sink).unwrap();
    }
    (sink.completions[0].status, sink)
}

fn content(lba: u64, version: u64) -> Vec<u8> {
    [lba, version].iter().flat_map(|word| word.to_le_bytes()).cycle().take(32 << 10).collect()
}

fn write(host: &mut Host, first: u64, version: u64) -> Status {
    let span = LbaSpan { nsid: 1, first, count: 8 };
    let data = Buffer::copy_from(&content(first, version));
    run(host, Command::Write { span, data, force_unit_access: false }).0
}

fn check(host: &mut Host, first: u64, version: u64) {
    let span = LbaSpan { nsid: 1, first, count: 8 };
    let (status, sink) = run(host, Command::Read { span, length_bytes: 32 << 10 });
    assert_eq!(status, Status::SUCCESS, "LBA {first}");
    assert_eq!(sink.data[&Token(1)], content(first, version), "LBA {first}");
}

#[test]
fn a_full_file_system_is_a_write_error() {
    let folder = tempfile::tempdir().unwrap();
    in_small_file_system("full_disk::inside_a_small_file_system", "64m", folder.path(), MOUNTED);
}

/// A device of 400 MiB with a volume of 48 MiB, on 64 MiB of which somebody else and protected memory take 16 each.
#[test]
#[ignore = "run by a_full_file_system_is_a_write_error"]
fn inside_a_small_file_system() {
    let Ok(folder) = std::env::var(MOUNTED) else { return };
    let folder = PathBuf::from(folder);
    write_profile(&folder);
    std::fs::write(
        folder.join("setup.toml"),
        format!(
            "[device]\nprofile = \"small.toml\"\nprotected_memory = \"16 MiB\"\n[[tenant]]\nname = \"a\"\n\
             [[vssd]]\nname = \"vssd-a\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"64 MiB\"\n\
             [[volume]]\nname = \"volume-a\"\nvssd = \"vssd-a\"\nsize = {}\n\
             [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:a\"\ntenant = \"a\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, volume = \"volume-a\" }}]\n",
            LBAS * 4096
        ),
    )
    .unwrap();
    // What somebody else will give back.
    std::fs::write(folder.join("other"), vec![1; 16 << 20]).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let server = serve(elsewhere.path(), &folder);
    let mut host = Host::connect(server.socket_address(), "a").unwrap();
    let (mut written, mut first) = (0, 0);
    let refused = loop {
        match write(&mut host, first, 1) {
            Status::SUCCESS => written = first + 8,
            other => break other,
        }
        first += 8;
        assert!(first < LBAS, "48 MiB do not fit into the rest of 64");
    };
    assert!(refused.same_code(Status::CAPACITY_EXCEEDED), "{refused}");
    assert!(written > 1000, "only {written} LBAs were written");
    let told = status(&folder);
    assert!(told.contains("vssd-a takes no writes") && told.contains("bytes free"), "{told}");
    (0..written).step_by(8).for_each(|first| check(&mut host, first, 1));
    drop(host);
    let said = server.log();
    assert!(said.contains("no room: the vSSD takes no writes until there is some"), "{said}");
    drop(server);
    let server = serve(elsewhere.path(), &folder);
    let mut host = Host::connect(server.socket_address(), "a").unwrap();
    (0..written).step_by(8).for_each(|first| check(&mut host, first, 1));
    let refused =
        (0..64).map(|nth| write(&mut host, written + nth * 8, 2)).find(|status| *status != Status::SUCCESS);
    assert!(refused.is_some_and(|status| status.same_code(Status::CAPACITY_EXCEEDED)), "{refused:?}");
    std::fs::remove_file(folder.join("other")).unwrap();
    // The file system is not asked at every write.
    wait_until(
        || format!("there is room again: {}", status(&folder)),
        || write(&mut host, 0, 3) == Status::SUCCESS,
    );
    (8..800)
        .step_by(8)
        .for_each(|first| assert_eq!(write(&mut host, first, 3), Status::SUCCESS, "LBA {first}"));
    (0..800).step_by(8).for_each(|first| check(&mut host, first, 3));
    (800..written).step_by(8).for_each(|first| check(&mut host, first, 1));
    assert!(!status(&folder).contains("takes no writes"));
    drop(host);
    let said = server.stop();
    assert!(said.contains("there is room again"), "{said}");
}
