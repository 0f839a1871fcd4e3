//! Goal: LevelDB on erase blocks has every write that was synced, and is whole, after `kill -9` of the application and of the server;
//! a distribution's program that knows nothing of it runs on it. Method: the plug-in and a load (`ledger.cc`) are built as
//! `make leveldb` does it; after each kill the load's check compares all content with what so many writes leave, under LevelDB's
//! checksums. The program is Debian's Python binding. Where LevelDB or the binding cannot be had, they are left out.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

#[path = "../../../crates/daemon/tests/block_server/mod.rs"]
mod block_server;
#[path = "../../blockfile-abi/tests/ledger/mod.rs"]
mod ledger;

use block_server::{Server, write_setup_of};
use diecut_testing::needs::{self, Need};
use ledger::{Load, kill_in_turn, limited, plug_in, run, uri};
use std::path::Path;
use std::process::Command;

const NEEDS: [Need; 2] = [Need::Header("leveldb/db.h"), Need::PythonModule("plyvel")];

/// Linked with the plug-in.
fn ledger_of(server: &Server, what: &str) -> Command {
    let mut command = ledger::ledger("leveldb");
    command.arg(uri(server)).arg(what);
    command
}

/// Debian's Python with a script over its binding of LevelDB, in a folder; it has the plug-in loaded, and `uri` in the variable.
fn python(folder: &Path, uri: Option<&str>, script: &str) -> Command {
    let mut command = limited("/usr/bin/python3");
    command.args(["-c", script]).current_dir(folder).env("LD_PRELOAD", plug_in("leveldb"));
    match uri {
        Some(uri) => command.env("DIECUT_LEVELDB", uri),
        None => command.env_remove("DIECUT_LEVELDB"),
    };
    command
}

#[test]
fn synced_writes_survive_kills_of_the_application_and_of_the_server() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 200);
    let acked = kill_in_turn(
        folder.path(),
        "leveldb",
        ledger_of,
        // It says the error of its write.
        |status| status.code() == Some(3),
        |said| {
            // The info LOG is a file of the vSSD, too, and what it says was synced with the writes.
            let count = said.lines().find_map(|line| line.strip_prefix("compacted ")).unwrap();
            assert!(count.parse::<u64>().unwrap() > 0, "nothing was compacted: {said}");
        },
    );
    assert!(acked > 10_000, "{acked} writes");
}

#[test]
fn files_folders_and_locks_are_what_the_env_promises() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 200);
    let server = Server::start(folder.path(), 1);
    for _ in 0..2 {
        assert!(run(&mut ledger_of(&server, "files")).contains("files ok"));
    }
}

/// One process holds a vSSD; the next one is told so, and may have it afterwards.
#[test]
fn a_second_process_is_refused_while_one_holds_the_vssd() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 200);
    let server = Server::start(folder.path(), 1);
    let mut load = Load::start(&mut ledger_of(&server, "run"));
    load.follow(5);
    let refused = ledger_of(&server, "check").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stdout);
    assert!(
        refused.status.code() == Some(3) && said.contains(&uri(&server)) && said.contains("held"),
        "{said}"
    );
    drop(load);
    assert!(run(&mut ledger_of(&server, "check")).contains("found "));
}

const WRITE: &str = "
import plyvel
db = plyvel.DB('./db', create_if_missing=True, write_buffer_size=1 << 17, max_file_size=1 << 20, compression=None)
for n in range(30000):
    db.put(b'key-%05d' % (n * 7919 % 10000), b'value-%d-' % n * 20)
with db.write_batch() as batch:
    for n in range(0, 10000, 10):
        batch.delete(b'key-%05d' % n)
assert db.get_property(b'leveldb.num-files-at-level1') not in (None, b'0') or db.get_property(b'leveldb.num-files-at-level2') not in (None, b'0')
";

/// Neither closed nor synced, and nothing that LevelDB syncs comes after it.
const LAST: &str = "import plyvel; db = plyvel.DB('db'); db.put(b'last', b'1')";

const READ: &str = "
import plyvel
db = plyvel.DB('/db', paranoid_checks=True)
last = {n * 7919 % 10000: n for n in range(30000)}
expected = [(b'key-%05d' % k, b'value-%d-' % n * 20) for k, n in sorted(last.items()) if k % 10 != 0]
expected.append((b'last', b'1'))
assert list(db.iterator(verify_checksums=True)) == expected
try:
    plyvel.DB('/db')
    assert False, 'opened twice'
except plyvel.IOError as error:
    assert 'already held' in str(error), error
db.close()
plyvel.repair_db('/db')
db = plyvel.DB('/db')
assert list(db) == expected
db.close()
plyvel.destroy_db('/db')
try:
    plyvel.DB('/db', create_if_missing=False)
    assert False, 'destroyed, and there'
except plyvel.Error as error:
    assert 'does not exist' in str(error), error
print('as expected')
";

/// Debian's Python binding, which is linked with Debian's LevelDB, writes, ends, reads, repairs and destroys.
#[test]
fn a_program_that_knows_nothing_of_it_runs() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 400);
    let server = Server::start(folder.path(), 1);
    let work = tempfile::tempdir().unwrap();
    let wrote = run(python(work.path(), Some(&uri(&server)), WRITE).env("DIECUT_STATISTICS", "1"));
    assert!(wrote.contains("LevelDB wrote") && wrote.contains("write amplification"), "{wrote}");
    // The end of a process that is not killed takes nothing away.
    run(&mut python(work.path(), Some(&uri(&server)), LAST));
    assert!(run(&mut python(work.path(), Some(&uri(&server)), READ)).contains("as expected"));
    assert!(work.path().read_dir().unwrap().next().is_none(), "nothing was written beside the vSSD");
}

const OPEN: &str = "import plyvel; plyvel.DB('db', create_if_missing=True).put(b'key', b'value', sync=True)";

#[test]
fn without_the_variable_all_is_as_without_the_plug_in() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    let work = tempfile::tempdir().unwrap();
    run(&mut python(work.path(), None, OPEN));
    assert!(work.path().join("db/CURRENT").exists());
}

#[test]
fn a_vssd_that_cannot_be_attached_to_is_an_error_that_says_why() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 100);
    let server = Server::start(folder.path(), 1);
    let socket = server.socket().display().to_string();
    let unknown = format!("diecut://nobody@{socket}");
    let cases = [
        ("blocks-a", "diecut://VSSD@SOCKET is what is understood"),
        ("diecut://blocks-a", "diecut://VSSD@SOCKET is what is understood"),
        ("diecut://blocks-a@/nowhere/blocks.sock", "is the server running, and is this its socket?"),
        (&unknown, "nobody"),
    ];
    for (uri, why) in cases {
        let work = tempfile::tempdir().unwrap();
        let output = python(work.path(), Some(uri), OPEN).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let names = ["DIECUT_LEVELDB", uri, why];
        assert!(!output.status.success() && names.iter().all(|name| said.contains(name)), "{uri}: {said}");
        assert!(work.path().read_dir().unwrap().next().is_none(), "{uri}: nothing was written beside it");
    }
}

const AGAIN: &str = "
import plyvel, sys
db = plyvel.DB('db', create_if_missing=True)
db.put(b'before', b'1', sync=True)
print('ready', flush=True)
sys.stdin.readline()
try:
    db.put(b'lost', b'1', sync=True)
    assert False, 'written without a server'
except plyvel.IOError as error:
    pass
db.close()
print('closed', flush=True)
sys.stdin.readline()
db = plyvel.DB('db')
assert db.get(b'before') == b'1'
db.put(b'after', b'1', sync=True)
print('as expected')
";

/// A program may close its database after an error and open it again, when the server is back.
#[test]
fn a_database_opens_again_when_the_server_is_back() {
    if !needs::are_there(&NEEDS) {
        return;
    }
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    let folder = tempfile::tempdir().unwrap();
    write_setup_of(folder.path(), 200);
    let mut server = Server::start(folder.path(), 1);
    let mut command = python(folder.path(), Some(&uri(&server)), AGAIN);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stdin = child.stdin.take().unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    writeln!(stdin).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "closed");
    let _again = Server::start(folder.path(), 1);
    writeln!(stdin).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "as expected");
    assert!(child.wait().unwrap().success());
}
