//! Servers whose namespaces other servers lie on.
#![allow(dead_code, reason = "each test program uses a part")]

use super::host::Host;
use super::host::known::Known;
use super::served::{Server, command, done};
use diecut_testing::Random;
use diecut_testing::wait::wait_for;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Its subsystem that any host may use.
pub const POOL: &str = "nqn.2026-11.org.diecut:pool";
/// One with a zoned namespace of 120 MiB, in zones of 512 KiB.
pub const ZONED: &str = "nqn.2026-11.org.diecut:zoned";
/// One with a namespace of 120 MiB that has eight placement handles.
pub const PLACED: &str = "nqn.2026-11.org.diecut:placed";
/// One that this host may use only.
pub const CLOSED: &str = "nqn.2026-11.org.diecut:closed";
pub const ALLOWED: &str = "nqn.2026-11.example:somebody";

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
capacity = "400M"
[[volume]]
name = "disk"
vssd = "flash"
size = "240M"
[[volume]]
name = "little"
vssd = "flash"
size = "1M"
[[volume]]
name = "own"
vssd = "flash"
size = "8M"
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:pool"
tenant = "a"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "disk" }, { nsid = 2, volume = "little" }]
[[vssd]]
name = "zoned"
tenant = "a"
isolation = "channel"
capacity = "200M"
use = "zones"
[[volume]]
name = "zones"
vssd = "zoned"
size = "120M"
zones = { units = 2 }
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:zoned"
tenant = "a"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "zones" }]
[[vssd]]
name = "placed"
tenant = "a"
isolation = "channel"
capacity = "130M"
placement_handles = 8
[[volume]]
name = "handles"
vssd = "placed"
size = "120M"
placement = [0, 1, 2, 3, 4, 5, 6, 7]
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:placed"
tenant = "a"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "handles" }]
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:closed"
tenant = "a"
allowed_hosts = ["nqn.2026-11.example:somebody"]
namespaces = [{ nsid = 1, volume = "own" }]
"#;

/// One with a namespace of chunks: five groups of two parallel units, of which each has 192 MiB.
pub const CHUNKED: &str = "nqn.2026-11.org.diecut:chunked";

const CHUNKED_SETUP: &str = r#"
[device]
profile = "small.toml"
protected_memory = "64M"
[[tenant]]
name = "a"
[[vssd]]
name = "flash"
tenant = "a"
isolation = "channel"
capacity = "2000M"
use = "open-channel"
[[volume]]
name = "chunks"
vssd = "flash"
size = "1920M"
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:chunked"
tenant = "a"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "chunks" }]
"#;

/// A server that is a target: [`POOL`] has a namespace of 240 MiB (1) and one of 1 MiB (2).
pub struct Target {
    folder: PathBuf,
    port: u16,
}

impl Target {
    /// One that was not started yet. It has its port for itself, so that it comes back where it was.
    pub fn new(folder: PathBuf) -> Target {
        let tiny = include_str!("../../../emulator/profiles/tiny.toml");
        let own = tiny.replace("channels = 2\n", "channels = 5\n");
        Target::of(folder, &own.replace("blocks_per_plane = 40\n", "blocks_per_plane = 700\n"), SETUP)
    }

    /// One whose chunks are a subsystem ([`CHUNKED`]), and nothing else.
    pub fn chunked(folder: PathBuf) -> Target {
        let tiny = include_str!("../../../emulator/profiles/tiny-one-shot.toml");
        let own = tiny.replace("channels = 2\n", "channels = 6\n");
        // Erase blocks of 3 MiB, 32 program units of 96 KiB.
        let own = own.replace("pages_per_block = 12 ", "pages_per_block = 96 ");
        Target::of(folder, &own.replace("blocks_per_plane = 40\n", "blocks_per_plane = 90\n"), CHUNKED_SETUP)
    }

    fn of(folder: PathBuf, profile: &str, setup: &str) -> Target {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("small.toml"), profile).unwrap();
        std::fs::write(folder.join("setup.toml"), setup).unwrap();
        Target { folder, port }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Its namespace 1, in one word.
    pub fn place(&self) -> String {
        format!("{}/{POOL}/1", self.address())
    }

    pub fn start(&self) -> Server {
        let mut serve = command(&self.folder);
        serve.args(["serve", "--listen", &self.address(), "--setup", "setup.toml", "--data", "."]);
        Server::start_as(&self.folder, serve)
    }
}

/// What a server says, as JSON.
pub fn ask(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    let all = [&["--json", "--socket", "control.sock"], arguments].concat();
    serde_json::from_str(&done(folder, &all)).unwrap()
}

/// A figure of a vSSD, or the sum of several.
pub fn figure(folder: &Path, vssd: &str, keys: &[&str]) -> u64 {
    let shown = ask(folder, &["vssd", "show", vssd]);
    keys.iter().map(|key| shown[*key].as_u64().unwrap_or_else(|| panic!("{key}: {shown}"))).sum()
}

/// All that is programmed for a vSSD.
pub const PROGRAMMED: [&str; 3] = ["programmed_user", "programmed_cleaner", "programmed_metadata"];

/// A server, the target that its pool lies on, and what is known of the volume of one of its tenants.
pub struct Both<'a> {
    far: &'a Target,
    own: &'a Path,
    tenant: &'a str,
    target: Option<Server>,
    server: Option<Server>,
    known: Known,
    random: Random,
    /// Most shards of the server, and how often it was started: each start has another number of them.
    shards_max: u32,
    starts: u32,
}

impl<'a> Both<'a> {
    /// The target is there, and the folder has the set-up of a server.
    pub fn new(
        far: &'a Target,
        target: Server,
        (own, shards_max): (&'a Path, u32),
        tenant: &'a str,
        lbas: u64,
    ) -> Both<'a> {
        let (known, random) = (Known::new(lbas), Random::of(11));
        let target = Some(target);
        let mut both = Both { far, own, tenant, target, server: None, known, random, shards_max, starts: 0 };
        both.start_server();
        both
    }

    fn start_server(&mut self) {
        let shards = self.shards_max - self.starts % self.shards_max;
        self.starts += 1;
        self.server = Some(Server::in_folder(self.own, &["--shards", &shards.to_string()]));
    }

    pub fn server(&self) -> &Server {
        self.server.as_ref().unwrap()
    }

    /// Writes, reads and flushes.
    ///
    /// # Errors
    /// What the host is told.
    pub fn work(&mut self, rounds: u32) -> Result<(), String> {
        let address = self.server().socket_address();
        let mut host = Host::connect(address, self.tenant).map_err(|error| error.to_string())?;
        self.known.work(&mut host, &mut self.random, rounds)
    }

    /// What was flushed is there.
    pub fn check(&mut self, what: &str) {
        let mut host = Host::connect(self.server().socket_address(), self.tenant).unwrap();
        self.known.check(&mut host, what);
    }

    /// Kills the server, and then its target, under load, so many times.
    pub fn kill_in_turns(&mut self, lives: u32) {
        let flushes = self.known.flush_count();
        let flushed = |count| {
            wait_for(|| "hosts do not flush", || (flushes.load(Ordering::Relaxed) >= count).then_some(()));
        };
        for life in 0..lives {
            self.work(20).unwrap();
            let begun = flushes.load(Ordering::Relaxed);
            let pid = self.server().pid().to_string();
            std::thread::scope(|scope| {
                let work = scope.spawn(|| self.work(u32::MAX));
                flushed(begun + 4 + 5 * life);
                assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
                work.join().unwrap().unwrap_err();
            });
            self.start_server();
            self.check(&format!("life {life}, server"));
            // The target comes back before hosts lose patience.
            let begun = flushes.load(Ordering::Relaxed);
            let (far, mut target) = (self.far, self.target.take());
            std::thread::scope(|scope| {
                let work = scope.spawn(|| self.work(150));
                flushed(begun + 5);
                target.take().unwrap().kill();
                target = Some(far.start());
                let worked = work.join().unwrap();
                worked.unwrap_or_else(|error| panic!("life {life}: {error}"));
            });
            self.target = target;
            assert_eq!(flushes.load(Ordering::Relaxed), begun + 150);
            self.check(&format!("life {life}, target"));
        }
    }

    /// The server is stopped and started.
    pub fn restart(&mut self) {
        self.server.take().unwrap().stop();
        self.start_server();
        self.check("stopped and started");
    }

    /// The target goes, and nobody starts it.
    pub fn kill_target(&mut self) {
        self.target.take().unwrap().kill();
    }

    /// And comes back.
    pub fn start_target(&mut self) {
        self.target = Some(self.far.start());
    }
}
