//! A real server for tests of the command line: the shipped binary over a small device in a file.
#![allow(dead_code, reason = "each test program uses a part")]

use diecut_testing::wait::{comes, wait_for};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

pub const BINARY: &str = env!("CARGO_BIN_EXE_diecut");
pub const NQN: &str = "nqn.2026-11.org.diecut:a";

/// A server process; killed when it is dropped.
pub struct Server {
    child: Child,
    folder: PathBuf,
    errors: PathBuf,
    /// What it printed until hosts could connect.
    pub announced: String,
}

/// A command of this test's folder, in which sockets have their usual names; variables of whoever runs the test are left out.
pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command
        .current_dir(folder)
        .env_remove("DIECUT_SOCKET")
        .env_remove("RUST_LOG")
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
}

/// A command to its end.
pub fn diecut(folder: &Path, arguments: &[&str]) -> Output {
    command(folder).args(arguments).output().unwrap()
}

/// A command that must succeed; its stdout.
pub fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = diecut(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// A command that must fail, and soon (a server that starts instead would stay); its stderr.
pub fn refused(folder: &Path, arguments: &[&str]) -> String {
    let mut child =
        command(folder).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    if comes(|| child.try_wait().unwrap()).is_none() {
        child.kill().unwrap();
        panic!("{arguments:?} goes on");
    }
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success(), "{arguments:?} succeeds: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

impl Server {
    /// Starts `diecut serve` with `arguments` in `folder`, on a free port.
    pub fn start(folder: &Path, arguments: &[&str]) -> Server {
        let mut serve = command(folder);
        serve.args(["serve", "--listen", "127.0.0.1:0"]).args(arguments);
        Server::start_as(folder, serve)
    }

    /// Starts a command that serves; `Err` holds what it said if it ended instead.
    pub fn try_start(folder: &Path, mut serve: Command) -> Result<Server, String> {
        let errors = folder.join("server.stderr");
        let file = File::create(&errors).unwrap();
        let mut child = serve.stdout(Stdio::piped()).stderr(file).spawn().unwrap();
        let mut announced = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !announced.contains("Ctrl-C stops the server") {
            if lines.read_line(&mut announced).unwrap() == 0 {
                child.wait().unwrap();
                return Err(std::fs::read_to_string(&errors).unwrap());
            }
        }
        Ok(Server { child, folder: folder.to_owned(), errors, announced })
    }

    pub fn start_as(folder: &Path, serve: Command) -> Server {
        Server::try_start(folder, serve).unwrap_or_else(|said| panic!("the server does not start: {said}"))
    }

    /// What it said on stderr until it was there for administrators. The log is written by a thread of its own.
    pub fn said(&self) -> String {
        let is_there = |said: &String| said.contains("listening, administrators");
        wait_for(|| format!("the log does not go on: {}", self.log()), || Some(self.log()).filter(is_there))
    }

    /// The same for hosts of the tests.
    pub fn socket_address(&self) -> SocketAddr {
        self.address().parse().unwrap()
    }

    /// The server of the folder's set-up file, with the device and the sockets in the folder itself.
    pub fn in_folder(folder: &Path, more: &[&str]) -> Server {
        Server::start(folder, &[&["--setup", "setup.toml", "--data", "."], more].concat())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where hosts connect.
    pub fn address(&self) -> &str {
        let line = self.announced.lines().find_map(|line| line.strip_prefix("listening")).unwrap();
        line.split(',').next().unwrap().trim()
    }

    /// As Ctrl-C does, once.
    pub fn interrupt(&self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    }

    /// The code it ended with, if it did.
    pub fn ended(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    /// Where it writes what it says on stderr.
    pub fn errors(&self) -> &Path {
        &self.errors
    }

    /// What it said on stderr so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap()
    }

    /// As Ctrl-C does; gives what it said.
    pub fn stop(mut self) -> String {
        self.interrupt();
        let status = wait(&mut self.child);
        let said = self.said();
        assert!(status, "{said}");
        said
    }

    /// As `kill -9` does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Waits for the end; whether it was a success.
pub fn wait(child: &mut Child) -> bool {
    wait_for(|| "the process goes on", || child.try_wait().unwrap()).success()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn is_served(socket: &Path) -> bool {
    UnixStream::connect(socket).is_ok()
}

/// A small device with room for a cleaner: a set-up file in the folder.
pub fn write_profile(folder: &Path) {
    let tiny =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../emulator/profiles/tiny.toml"))
            .unwrap();
    let own = tiny
        .replace("channels = 2\n", "channels = 4\n")
        .replace("blocks_per_plane = 40\n", "blocks_per_plane = 200\n");
    assert_ne!(own, tiny);
    std::fs::write(folder.join("small.toml"), own).unwrap();
}

/// A set-up file in the folder: tenant `a` with a volume `disk` of 1 MiB.
pub const SETUP: &str = r#"
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
size = "1M"
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:a"
tenant = "a"
allowed_hosts = ["nqn.2026-11.org.diecut:bench"]
namespaces = [{ nsid = 1, volume = "disk" }]
"#;

/// A folder with a profile and a set-up.
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write_profile(folder.path());
    std::fs::write(folder.path().join("setup.toml"), SETUP).unwrap();
    folder
}

/// One of the lines of `text` has all `words`.
pub fn assert_says(text: &str, words: &[&str]) {
    assert!(
        text.lines().any(|line| words.iter().all(|word| line.contains(word))),
        "no line with {words:?} in:\n{text}"
    );
}
