//! A server to be killed, with erase blocks for applications: the test program started again, over a device in a file.
//! Shared by tests of several crates, which use parts of it.
#![allow(dead_code, reason = "each test program uses a part")]

use diecut_api::setup::Setup;
use diecut_blockspace::wire::Status;
use diecut_blockspace::{Attach, AttachError, Client};
use diecut_testing::wait::wait_for;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A server process; killed when it is dropped.
pub struct Server {
    pub child: Child,
    folder: PathBuf,
    /// Where it takes hosts, as HOST:PORT.
    pub address: String,
}

impl Server {
    pub fn start(folder: &Path, shards: u16) -> Server {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "block_server::server_to_be_killed", "--nocapture"])
            .env("DIECUT_TEST_SERVER", folder)
            .env("DIECUT_TEST_SHARDS", shards.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("the server says where it listens").unwrap();
            if let Some(rest) = line.strip_prefix("listening ") {
                break rest.trim_start().split(',').next().unwrap_or_default().to_owned();
            }
        };
        // Nobody reads the rest, but the pipe has room for it.
        std::mem::forget(lines);
        Server { child, folder: folder.to_owned(), address }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("blocks.sock")
    }

    pub fn try_attach(&self, vssd: &str) -> Result<Client, AttachError> {
        Client::attach(Attach { socket: &self.socket(), vssd })
    }

    /// Attaches as soon as whoever was there before is gone.
    pub fn attach(&self, vssd: &str) -> Client {
        wait_for(
            || format!("a dead client holds {vssd}"),
            || match self.try_attach(vssd) {
                Err(AttachError::Refused { status: Status::Held, .. }) => None,
                other => Some(other.unwrap()),
            },
        )
    }

    /// A request of an administrator: status line, headers and body of the answer.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut socket = UnixStream::connect(self.folder.join("control.sock")).unwrap();
        let length = body.len();
        write!(
            socket,
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test by itself: the server that tests start and kill.
#[test]
fn server_to_be_killed() {
    let Ok(folder) = std::env::var("DIECUT_TEST_SERVER") else { return };
    let folder = PathBuf::from(folder);
    let text = std::fs::read_to_string(folder.join("setup.toml")).unwrap();
    let mut setup = Setup::from_toml(&text).unwrap();
    setup.devices.set_profile(&folder.join("small.toml").display().to_string()).unwrap();
    setup.server.listen = vec!["127.0.0.1:0".to_owned()];
    setup.server.data = folder;
    setup.server.shards = std::env::var("DIECUT_TEST_SHARDS").unwrap().parse().unwrap();
    let options = diecut_daemon::serve::ServeOptions::default();
    diecut_daemon::serve::serve(&setup, options, |text| println!("\n{text}")).unwrap();
}

/// A small device with two tenants, whose vSSDs `blocks-a` and `blocks-b` serve erase blocks.
pub fn write_setup(folder: &Path) {
    write_setup_of(folder, 100);
}

/// The same with so many erase blocks per plane; a vSSD has twice as many, of 256 KiB.
pub fn write_setup_of(folder: &Path, blocks_per_plane: u32) {
    let mut setup = write_device(folder, blocks_per_plane);
    for name in ["a", "b"] {
        setup += &format!(
            "[[tenant]]\nname = \"{name}\"\n\
             [[vssd]]\nname = \"blocks-{name}\"\ntenant = \"{name}\"\nisolation = \"channel\"\ncapacity = \"1 MiB\"\n\
             use = \"blocks\"\nuid = 4242\n"
        );
    }
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
}

/// The NQN of the subsystem of [`write_zones_setup`].
pub const ZONES_NQN: &str = "nqn.2026-11.org.diecut:zones";

/// A small device with a zoned namespace of `zones` zones of two erase blocks of 256 KiB.
pub fn write_zones_setup(folder: &Path, zones: u32) {
    // Blocks that fail, and the journal.
    let mut setup = write_device(folder, zones + 30);
    setup += &format!(
        "[[tenant]]\nname = \"a\"\n\
         [[vssd]]\nname = \"flash\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"{} KiB\"\nuse = \"zones\"\n\
         [[volume]]\nname = \"files\"\nvssd = \"flash\"\nsize = \"{} KiB\"\n\
         zones = {{ active = 10, extension = 64 }}\n\
         [[subsystem]]\nnqn = \"{ZONES_NQN}\"\ntenant = \"a\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, volume = \"files\" }}]\n",
        zones * 512,
        zones * 512,
    );
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
}

/// The device's profile; says what a set-up file begins with.
fn write_device(folder: &Path, blocks_per_plane: u32) -> String {
    let tiny = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../crates/emulator/profiles/tiny.toml"
    ))
    .unwrap();
    let own = tiny
        .replace("channels = 2\n", "channels = 4\n")
        .replace("blocks_per_plane = 40\n", &format!("blocks_per_plane = {blocks_per_plane}\n"));
    assert_ne!(own, tiny);
    std::fs::write(folder.join("small.toml"), own).unwrap();
    "[device]\nprofile = \"small.toml\"\nprotected_memory = \"64 MiB\"\n".to_owned()
}
