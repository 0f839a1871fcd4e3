//! Servers whose namespaces other servers lie on.
#![allow(dead_code, reason = "each test program uses a part")]

use super::served::{Server, command};
use std::net::TcpListener;
use std::path::{Path, PathBuf};

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
capacity = "200M"
[[volume]]
name = "disk"
vssd = "flash"
size = "120M"
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

/// A server that is a target: [`POOL`] has a namespace of 120 MiB (1) and one of 1 MiB (2).
pub struct Target {
    folder: PathBuf,
    port: u16,
}

impl Target {
    /// One that was not started yet. It has its port for itself, so that it comes back where it was.
    pub fn new(folder: PathBuf) -> Target {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::create_dir_all(&folder).unwrap();
        let tiny =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../emulator/profiles/tiny.toml"));
        let own = tiny.unwrap().replace("channels = 2\n", "channels = 5\n");
        let own = own.replace("blocks_per_plane = 40\n", "blocks_per_plane = 700\n");
        std::fs::write(folder.join("small.toml"), own).unwrap();
        std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
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
