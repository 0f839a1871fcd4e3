//! A server on a disk that loses power, and what programs see of it: a namespace as a file, and a file system on it. All of it ends with the power, and
//! begins again with it.

use crate::served::{Server, command, done};
use diecut_bridge::{FILE_NAME, Mounted, Namespace, Place};
use diecut_nvme::QualifiedName;
use diecut_power::{Disks, FailedFlush, Mounted as MountedDisks, Options};
use diecut_testing::Random;
use diecut_testing::wait::{comes, look_again_later, wait_until};
use diecut_units::marks;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tempfile::TempDir;

const NQN: &str = "nqn.2026-11.org.diecut:strangers";

const DEVICE: &str = r#"
[[device]]
kind = "file"
path = "disks/drive-$"
name = "drive-$"
discard = DISCARD
"#;

const SETUP: &str = r#"
[[tenant]]
name = "strangers"
[[vssd]]
name = "fast"
tenant = "strangers"
DEVICES
isolation = "channel"
capacity = "200 MiB"
[[volume]]
name = "data"
vssd = "fast"
size = "96 MiB"
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:strangers"
tenant = "strangers"
allow_any_host = true
namespaces = [{ nsid = 1, volume = "data" }]
"#;

const DRIVE_BYTES: u64 = 512 << 20;

/// What the server has.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Drives that are one pool.
    pub drives: usize,
    /// The vSSD has a part on each of them; else it lies on some one.
    pub is_wide: bool,
    /// Shards, from life to life.
    pub shards: &'static [u32],
    /// Drives are told what is not needed any more.
    pub gives_back: bool,
}

/// Who says that what was flushed is durable, and it is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liar {
    Nobody,
    /// The drives.
    Drives,
    /// The server, which has this bug.
    Server(&'static str),
}

/// One drive, one shard.
pub const PLAIN: Shape = Shape { drives: 1, is_wide: true, shards: &[1], gives_back: false };

/// Disks, the folder of a server on them, and in it the folders `bridge`, with the namespace, and `files`, with a file system on it.
pub struct Rig {
    life: Option<Life>,
    pub random: Random,
    shape: Shape,
    liar: Liar,
    lives: usize,
    /// Flushes that had failed when the life began.
    failed_flushes: u64,
    disks: MountedDisks,
    folder: TempDir,
}

/// From a start to a cut. Fields go in their order: who uses something, before that.
struct Life {
    files: Option<Files>,
    bridge: Option<Bridge>,
    server: Server,
    watch: Watch,
}

/// What a program that must be there said, for two minutes at most.
pub fn limited(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "1", "120"]).arg(program).stdin(Stdio::null());
    command
}

pub fn words(output: &Output) -> String {
    format!(
        "{}: {}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// What a program says that succeeds.
pub fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap().trim().to_owned()),
        false => Err(format!("{command:?}: {}", words(&output))),
    }
}

impl Rig {
    /// Formatted drives.
    pub fn new(seed: u64, shape: Shape, liar: Liar) -> Rig {
        println!("disks with seed {seed}, {shape:?}, liar: {liar:?}");
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        for name in ["disks", "bridge", "files"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let names: Vec<String> = (0..shape.drives).map(|at| format!("drive-{at}")).collect();
        let drives = names.iter().map(|name| (name.clone(), DRIVE_BYTES)).collect();
        let options = Options { drives, seed, ..Options::default() };
        let disks = MountedDisks::new(&folder.path().join("disks"), &options).unwrap();
        let device = DEVICE.replace("DISCARD", &shape.gives_back.to_string());
        let devices = (0..shape.drives).map(|at| device.replace('$', &at.to_string()));
        let on = if shape.is_wide { format!("device = {names:?}") } else { String::new() };
        let vssd = SETUP.replace("DEVICES", &on);
        std::fs::write(folder.path().join("setup.toml"), devices.collect::<String>() + &vssd).unwrap();
        let paths: Vec<String> = names.iter().map(|name| format!("disks/{name}")).collect();
        let mut format = vec!["device", "format", "--erase-block", "1M", "--lanes", "3"];
        format.extend(paths.iter().map(String::as_str));
        done(folder.path(), &format);
        Rig { life: None, random: Random::of(seed), shape, liar, lives: 0, failed_flushes: 0, disks, folder }
    }

    pub fn disks(&self) -> &Disks {
        self.disks.disks()
    }

    /// The namespace.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("bridge").join(FILE_NAME)
    }

    /// Where the file system is mounted.
    pub fn files(&self) -> PathBuf {
        self.folder.path().join("files")
    }

    /// A new life: the server starts, and the namespace is a file. From then on the server dies when the power goes, as what has no power.
    pub fn start(&mut self) -> Result<(), String> {
        let mut serve = command(self.folder.path());
        serve.args(["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", "."]);
        serve.args(["--shards", &self.shape.shards[self.lives % self.shape.shards.len()].to_string()]);
        // Not before all that is needed is there.
        if let Liar::Server(bug) = self.liar
            && self.lives > 0
        {
            serve.env(marks::PLANTED, bug);
        }
        self.lives += 1;
        self.failed_flushes = self.disks().statistics().failed_flushes;
        let server = Server::try_start(self.folder.path(), serve)?;
        let watch = Watch::start(self.disks().clone(), server.pid());
        let address = server.address().to_owned();
        let life = self.life.insert(Life { files: None, bridge: None, server, watch });
        life.bridge = Some(Bridge::start(&address, &self.folder.path().join("bridge"))?);
        Ok(())
    }

    /// All that is needed is there: who lies does so from now on.
    pub fn is_made(&self) {
        self.disks().lie(self.liar == Liar::Drives);
    }

    /// From now on, trouble is on its way: the power goes after up to so many commands to disks, or, in a fifth of all lives, a flush fails before.
    pub fn make_trouble(&mut self, commands: u64) {
        // A server that skips flushes has little to ask of a disk, and perhaps no flush that could fail.
        let skips = matches!(self.liar, Liar::Server(_));
        let commands = if skips { commands / 10 } else { commands };
        let flush = self.random.below(5) == 0 && !skips;
        let commands = commands / 10 + self.random.below(commands);
        match flush {
            true => {
                let how = [FailedFlush::Forgets, FailedFlush::Drops, FailedFlush::Keeps];
                let how = how[self.random.below(3) as usize];
                let after = commands_of(self.disks()) + commands;
                let life = self.life.as_ref().expect("the server runs");
                *life.watch.plan.failed_flush.lock().unwrap() = Some((after, how));
                // It may be one of a drive that nobody misses.
                self.disks().cut_after(2 * commands + 500);
            }
            false => self.disks().cut_after(commands),
        }
    }

    /// Whether what was on its way came.
    pub fn has_trouble(&self) -> bool {
        !self.disks().is_on() || self.disks().statistics().failed_flushes > self.failed_flushes
    }

    /// The server is killed, and nothing else is.
    pub fn kill_server(&self) {
        let server = &self.life.as_ref().expect("the server runs").server;
        said(Command::new("kill").args(["-KILL", &server.pid().to_string()])).unwrap();
    }

    /// Asks the server what an administrator would.
    pub fn ask(&self, arguments: &[&str]) -> Result<serde_json::Value, String> {
        let mut command = command(self.folder.path());
        let said = said(command.args(["--json", "--socket", "control.sock"]).args(arguments))?;
        Ok(if said.is_empty() { serde_json::Value::Null } else { serde_json::from_str(&said).unwrap() })
    }

    /// A new file system.
    pub fn make_file_system(&self) {
        let mut make = limited("mkfs.ext4");
        make.args(["-q", "-b", "4096", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"]);
        said(make.arg(self.file())).unwrap();
    }

    /// The file system is mounted through a loop device: its journal is replayed by the kernel, or by e2fsck, which looks at all else, too.
    pub fn mount(&mut self, is_checked: bool) -> Result<(), String> {
        let files = Files::mount(&self.file(), &self.files(), is_checked)?;
        self.life.as_mut().expect("the server runs").files = Some(files);
        Ok(())
    }

    /// All ends, if it did not yet, and then there is power again.
    pub fn end(&mut self) {
        if self.disks().is_on() {
            self.disks().cut(None).unwrap();
        }
        if let Some(life) = self.life.take() {
            life.end();
        }
        self.disks().power_on();
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(life) = self.life.take() {
            life.end();
        }
    }
}

impl Life {
    /// The server and the bridge are killed before anything is unmounted: nothing of what the kernel still has gets anywhere.
    fn end(self) {
        let Life { files, bridge, server, watch } = self;
        drop(watch);
        server.kill();
        bridge.as_ref().inspect(|bridge| bridge.give_up());
        drop(files);
        drop(bridge);
    }
}

/// Commands that disks carried out.
fn commands_of(disks: &Disks) -> u64 {
    let statistics = disks.statistics();
    statistics.writes + statistics.flushes + statistics.discards
}

/// What a watch is to do.
#[derive(Default)]
struct Plan {
    is_over: AtomicBool,
    /// After so many commands to disks a flush fails.
    failed_flush: Mutex<Option<(u64, FailedFlush)>>,
}

/// A thread that kills the server when the power goes.
struct Watch {
    plan: Arc<Plan>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    #[allow(clippy::disallowed_methods, reason = "somebody has to look while the test waits for a program")]
    fn start(disks: Disks, server: u32) -> Watch {
        let plan = Arc::new(Plan::default());
        let planned = Arc::clone(&plan);
        let thread = std::thread::spawn(move || {
            while disks.is_on() {
                if planned.is_over.load(Ordering::Acquire) {
                    return;
                }
                let is_due = |(after, _): &mut (u64, FailedFlush)| commands_of(&disks) >= *after;
                let due = planned.failed_flush.lock().unwrap().take_if(is_due);
                due.inspect(|(_, how)| disks.fail_next_flush(*how));
                look_again_later();
            }
            let _ = Command::new("kill").args(["-KILL", &server.to_string()]).output();
        });
        Watch { plan, thread: Some(thread) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.plan.is_over.store(true, Ordering::Release);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

const BRIDGE_TO: &str = "DIECUT_CUTS_BRIDGE_TO";
const BRIDGE_ON: &str = "DIECUT_CUTS_BRIDGE_ON";

/// The process of the bridge: a test that waits for its own file system could not even be killed.
struct Bridge {
    child: Mutex<Child>,
    folder: PathBuf,
}

/// The bridge itself, in a process of its own, until that of the test ends.
#[test]
#[ignore = "no test: the process of a bridge"]
fn bridge() {
    let (Ok(to), Ok(on)) = (std::env::var(BRIDGE_TO), std::env::var(BRIDGE_ON)) else { return };
    let place = Place {
        address: to.parse().unwrap(),
        host: QualifiedName::new("nqn.2026-11.org.diecut:bridge").unwrap(),
        subsystem: QualifiedName::new(NQN).unwrap(),
        nsid: 1,
    };
    let mounted = Mounted::new(Namespace::connect(&place).unwrap(), Path::new(&on)).unwrap();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    // Nobody is there any more who would.
    let _ = Command::new("umount").arg("-l").arg(Path::new(&on).join("../files")).output();
    drop(mounted);
}

impl Bridge {
    fn start(address: &str, folder: &Path) -> Result<Bridge, String> {
        let name = concat!(module_path!(), "::bridge");
        let (_, name) = name.split_once("::").unwrap();
        let log = std::fs::File::create(folder.join("../bridge.log")).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--nocapture"])
            .env(BRIDGE_TO, address)
            .env(BRIDGE_ON, folder)
            .stdin(Stdio::piped())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let ready = comes(|| {
            let has_ended = child.try_wait().unwrap().is_some();
            (has_ended || folder.join(FILE_NAME).exists()).then_some(!has_ended)
        });
        let bridge = Bridge { child: Mutex::new(child), folder: folder.to_owned() };
        match ready {
            Some(true) => Ok(bridge),
            _ => Err(std::fs::read_to_string(folder.join("../bridge.log")).unwrap()),
        }
    }

    /// All that waits for it, and all that comes, meets errors.
    fn give_up(&self) {
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.give_up();
        let _ = limited("umount").arg("-l").arg(&self.folder).output();
    }
}

/// A mounted file system. Its loop device goes when it is unmounted.
struct Files {
    path: PathBuf,
}

impl Files {
    fn mount(file: &Path, path: &Path, is_checked: bool) -> Result<Files, String> {
        let mut attach = limited("losetup");
        attach.args(["--find", "--show", "--sector-size", "4096", "--direct-io=on"]).arg(file);
        let device = said(&mut attach)?;
        // In use, it goes with its last user.
        let goes = || said(limited("losetup").args(["-d", &device]));
        if is_checked {
            let output = limited("e2fsck").args(["-f", "-p", &device]).output().unwrap();
            // 1: what is to be mended after any cut (a journal, orphans, counts) is mended.
            if !matches!(output.status.code(), Some(0 | 1)) {
                goes()?;
                return Err(format!("e2fsck: {}", words(&output)));
            }
        }
        let mounted = said(limited("mount").args(["-t", "ext4", "-o", "discard", &device]).arg(path));
        goes()?;
        mounted.map(|_| Files { path: path.to_owned() })
    }
}

impl Drop for Files {
    /// A program that was killed may need a moment to be gone.
    fn drop(&mut self) {
        let unmount =
            || limited("umount").arg(&self.path).output().is_ok_and(|output| output.status.success());
        if std::thread::panicking() {
            let _ = unmount() || limited("umount").arg("-l").arg(&self.path).output().is_ok();
        } else {
            wait_until(|| "the file system cannot be unmounted", unmount);
        }
    }
}
