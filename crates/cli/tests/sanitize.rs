//! Goal: a sanitize that was begun goes on in the next process, after `kill -9` and after a stop, erases volumes and zones of its subsystem alone, and
//! is told to administrators. Method: the real binary with two shards over a file; hosts over real sockets.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::{host, served};
use diecut_initiator::{Collect, Token};
use diecut_nvme::log_page::lid;
use diecut_nvme::sanitize::{Sanitize, SanitizeLog, action};
use diecut_nvme::{Status, SubmissionEntry, opcode};
use diecut_testing::wait;
use diecut_units::Buffer;
use host::Host;
use served::{Server, command, done, write_profile};
use std::path::Path;
use zerocopy::FromBytes;

const LBAS: u64 = 32;
const NQN: &str = "nqn.2026-11.org.diecut:a";

fn serve(folder: &Path) -> Server {
    write_profile(folder);
    let setup = "[server]\nshards = 2\n[device]\nprofile = \"small.toml\"\nprotected_memory = \"64 MiB\"\n\
         [[tenant]]\nname = \"a\"\n[[tenant]]\nname = \"b\"\n\
         [[vssd]]\nname = \"flash\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"24 MiB\"\n\
         [[vssd]]\nname = \"other\"\ntenant = \"b\"\nisolation = \"channel\"\ncapacity = \"24 MiB\"\n\
         [[volume]]\nname = \"one\"\nvssd = \"flash\"\nsize = \"1 MiB\"\n\
         [[volume]]\nname = \"two\"\nvssd = \"flash\"\nsize = \"1 MiB\"\n\
         [[volume]]\nname = \"three\"\nvssd = \"other\"\nsize = \"1 MiB\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:a\"\ntenant = \"a\"\nallow_any_host = true\n\
         namespaces = [{ nsid = 1, volume = \"one\" }, { nsid = 2, volume = \"two\" }]\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:b\"\ntenant = \"b\"\nallow_any_host = true\n\
         namespaces = [{ nsid = 1, volume = \"three\" }]\n";
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    let mut serve = command(folder);
    serve.args(["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", "."]);
    Server::start_as(folder, serve)
}

fn connect(server: &Server, tenant: &str) -> Host {
    let address = server.socket_address();
    wait::wait_for(|| "not let in".to_owned(), || Host::connect(address, tenant).ok())
}

fn io(host: &mut Host, code: u8, nsid: u32, lba: u64, data: Option<&[u8]>) -> (Status, Vec<u8>) {
    let mut entry = SubmissionEntry { opcode: code, nsid: nsid.into(), ..Default::default() };
    diecut_nvme::io::LbaRange::plain(lba, 1).encode(&mut entry);
    let room = if data.is_none() { 4096 } else { 0 };
    host.queue.submit_entry(Token(1), entry, data.map(Buffer::copy_from), room);
    let mut sink = Collect::default();
    while sink.completions.is_empty() {
        host.exchange(&mut sink).unwrap();
    }
    (sink.completions[0].status, sink.data.remove(&Token(1)).unwrap_or_default())
}

fn fill(host: &mut Host, nsid: u32, byte: u8) {
    for lba in 0..LBAS {
        assert_eq!(io(host, opcode::io::WRITE, nsid, lba, Some(&[byte; 4096])).0, Status::SUCCESS);
    }
}

fn look(host: &mut Host, nsid: u32, byte: u8, what: &str) {
    for lba in 0..LBAS {
        let (status, data) = io(host, opcode::io::READ, nsid, lba, None);
        assert!(status == Status::SUCCESS && data == [byte; 4096], "{what}: {nsid}, {lba}, {status}");
    }
}

fn begin(host: &mut Host) {
    let mut entry = SubmissionEntry { opcode: opcode::admin::SANITIZE, ..Default::default() };
    Sanitize { action: action::BLOCK_ERASE, ..Default::default() }.encode(&mut entry);
    assert_eq!(host.ask(entry, 0).unwrap().0, Status::SUCCESS);
}

/// SSTAT.
fn status(host: &mut Host) -> u16 {
    let mut entry = SubmissionEntry { opcode: opcode::admin::GET_LOG_PAGE, ..Default::default() };
    diecut_nvme::admin::GetLogPage::of(lid::SANITIZE_STATUS, 512).encode(&mut entry);
    let (status, page) = host.ask(entry, 512).unwrap();
    assert_eq!(status, Status::SUCCESS);
    SanitizeLog::read_from_bytes(&page).unwrap().sstat.get()
}

/// Waits until it is over.
fn is_erased(server: &Server, what: &str) {
    let mut a = connect(server, "a");
    let ended = |a: &mut Host| Some(status(a)).filter(|status| status & 7 != 2);
    let status = wait::wait_for(|| format!("{what}: it never ends"), || ended(&mut a));
    // Whether something was written since is not known after a restart.
    assert!(matches!(status, 1 | 0x101), "{what}: {status:#x}");
    look(&mut a, 1, 0, what);
    look(&mut a, 2, 0, what);
    look(&mut connect(server, "b"), 1, 0xB0, what);
}

#[test]
fn a_sanitize_goes_on_in_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = serve(folder.path());
    fill(&mut connect(&server, "b"), 1, 0xB0);
    let show = ["--socket", "control.sock", "subsystem", "show", NQN];
    assert!(!done(folder.path(), &show).contains("sanitize"));
    for is_killed in [true, false] {
        let mut a = connect(&server, "a");
        fill(&mut a, 1, 0xA1);
        fill(&mut a, 2, 0xA2);
        begin(&mut a);
        if is_killed {
            server.kill()
        } else {
            drop(server.stop())
        }
        server = serve(folder.path());
        is_erased(&server, if is_killed { "after kill -9" } else { "after a stop" });
        let told = done(folder.path(), &show);
        assert!(told.contains("most recent sanitize: completed"), "{told}");
    }
    server.stop();
}
