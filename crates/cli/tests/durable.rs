//! Goal: with `device.durability = "machine"`, what a host was told is written (or flushed, with a volatile cache) is there after the death of
//! the server, and after the death of the machine at any moment. Method: the real binary is killed while a host writes; and a server
//! runs over a device whose file's changes are noted, of which a cut leaves those that a sync covers and any part of the others, sector by
//! sector: the real binary serves what is left, and a host reads it.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::{host, served};
use diecut_devices::{Device, FileChange, FileChanges, Options};
use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_nvme::Status;
use diecut_reactor::{IoFile, Reactor, ReactorConfig};
use diecut_shard::{DeviceIndex, PoolConfig, Shard, ShardConfig};
use diecut_units::Buffer;
use host::Host;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use served::{Server, refused};
use std::path::Path;
use std::process::Command as Process;

const LBAS: u64 = 96;
const LBA_BYTES: usize = 4096;

fn serve(folder: &Path) -> Server {
    Server::in_folder(folder, &[])
}

fn write_setup(folder: &Path, device: &str) {
    let setup = format!(
        "[device]\nprofile = \"tiny\"\n{device}\n[[tenant]]\nname = \"a\"\n\
         [[vssd]]\nname = \"vssd-a\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"8 MiB\"\n\
         [[volume]]\nname = \"volume-a\"\nvssd = \"vssd-a\"\nsize = \"1 MiB\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:a\"\ntenant = \"a\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, volume = \"volume-a\" }}]\n"
    );
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
}

fn content(lba: u64, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; LBA_BYTES];
    }
    [lba, version].iter().flat_map(|word| word.to_le_bytes()).cycle().take(LBA_BYTES).collect()
}

/// What a host did to an LBA: when it was submitted, answered, and durable, if so; by the count of changes of the device's file.
struct Write {
    lba: u64,
    version: u64,
    submitted: usize,
    answered: Option<usize>,
    durable: Option<usize>,
}

/// Writes of one host, eight at a time, with a flush now and then.
struct Writer {
    host: Host,
    random: Xoshiro256PlusPlus,
    writes: Vec<Write>,
    changes: FileChanges,
    volatile: bool,
}

impl Writer {
    fn new(host: Host, seed: u64, changes: &FileChanges, volatile: bool) -> Writer {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Writer { host, random, writes: Vec::new(), changes: changes.clone(), volatile }
    }

    /// Sends commands and waits for all answers; notes when they came.
    fn round(&mut self, last_version: u64) -> std::io::Result<()> {
        let first = self.writes.len();
        let mut lba = self.random.random_range(0..LBAS);
        for nth in 0..8 {
            lba = (lba + self.random.random_range(1..LBAS / 8)) % LBAS;
            let version = last_version + nth;
            let data = Buffer::copy_from(&content(lba, version));
            let span = LbaSpan { nsid: 1, first: lba, count: 1 };
            let token = Token(self.writes.len() as u64);
            let submitted = self.changes.count();
            self.writes.push(Write { lba, version, submitted, answered: None, durable: None });
            self.host.queue.submit(token, Command::Write { span, data, force_unit_access: false });
        }
        let mut sink = Collect::default();
        while sink.completions.len() < 8 {
            let before = sink.completions.len();
            self.host.exchange(&mut sink)?;
            let now = self.changes.count();
            for done in &sink.completions[before..] {
                assert_eq!(done.status, Status::SUCCESS);
                let write = &mut self.writes[done.token.0 as usize];
                write.answered = Some(now);
                if !self.volatile {
                    write.durable = Some(now);
                }
            }
        }
        assert!(self.writes[first..].iter().all(|write| write.answered.is_some()));
        if self.volatile && self.random.random_ratio(1, 3) {
            self.host.queue.submit(Token(1 << 40), Command::Flush { nsid: 1 });
            let mut sink = Collect::default();
            while sink.completions.is_empty() {
                self.host.exchange(&mut sink)?;
            }
            assert_eq!(sink.completions[0].status, Status::SUCCESS);
            let now = self.changes.count();
            let answered = self.writes.iter_mut().filter(|write| write.answered.is_some());
            answered.for_each(|write| write.durable = write.durable.or(Some(now)));
        }
        Ok(())
    }
}

/// Each LBA holds the last version that was durable at that moment, or one that was written after it.
fn check(host: &mut Host, writes: &[Write], at: usize, what: &str) -> usize {
    let mut durable_lbas = 0;
    for lba in 0..LBAS {
        let span = LbaSpan { nsid: 1, first: lba, count: 1 };
        host.queue.submit(Token(lba), Command::Read { span, length_bytes: LBA_BYTES as u32 });
        let mut sink = Collect::default();
        while sink.completions.is_empty() {
            host.exchange(&mut sink).unwrap();
        }
        assert_eq!(sink.completions[0].status, Status::SUCCESS, "{what}: LBA {lba}");
        let found = &sink.data[&Token(lba)];
        let of_lba = || writes.iter().filter(|write| write.lba == lba && write.submitted <= at);
        let durable = of_lba().filter(|write| write.durable.is_some_and(|when| when <= at));
        let durable = durable.map(|write| write.version).max().unwrap_or(0);
        durable_lbas += usize::from(durable > 0);
        let fits = |version: u64| *found == content(lba, version);
        let later = of_lba().map(|write| write.version).filter(|version| *version > durable);
        let version = u64::from_le_bytes(found[8..16].try_into().unwrap());
        assert!(
            fits(durable) || { later }.any(fits),
            "{what}: LBA {lba} holds version {version}, but {durable} was durable"
        );
    }
    durable_lbas
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    for volatile in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        write_setup(folder.path(), &format!("durability = \"machine\"\nvolatile_cache = {volatile}"));
        let (changes, mut last_version) = (FileChanges::default(), 1);
        let mut writes = Vec::new();
        for life in 0..4 {
            let server = serve(folder.path());
            assert!(server.announced.contains("survive the death of the machine"), "{}", server.announced);
            let mut host = Host::connect(server.socket_address(), "a").unwrap();
            // Every write has its answer; with a cache, what was flushed must be there.
            let durable = check(&mut host, &writes, usize::MAX, &format!("volatile {volatile}, life {life}"));
            assert!(life == 0 || durable > 40, "{durable} LBAs are durable");
            let mut writer = Writer::new(host, life, &changes, volatile);
            writer.writes = writes;
            for _ in 0..40 {
                writer.round(last_version).unwrap();
                last_version += 8;
            }
            server.kill();
            writes = writer.writes;
            // What was in the cache is gone: no later flush makes it durable.
            writes.iter_mut().filter(|write| write.durable.is_none()).for_each(|write| write.answered = None);
        }
    }
}

/// A file as a cut after so many of its changes leaves it.
fn leave(path: &Path, base: &Path, changes: &[FileChange], random: &mut Xoshiro256PlusPlus) {
    let copied = Process::new("cp").arg("--sparse=always").arg(base).arg(path).status().unwrap();
    assert!(copied.success());
    let file = std::fs::File::options().write(true).open(path).unwrap();
    let kept_of_8 = [0, 8, random.random_range(1..8)][random.random_range(0..3usize)];
    FileChange::leave(changes, &file, || random.random_range(0..8) < kept_of_8).unwrap();
}

#[test]
fn what_was_acknowledged_is_in_the_file_whenever_the_machine_dies() {
    for (seed, volatile) in [(1, false), (2, true)] {
        let folder = tempfile::tempdir().unwrap();
        write_setup(folder.path(), &format!("durability = \"machine\"\nvolatile_cache = {volatile}"));
        // What exists is made by the real server.
        serve(folder.path()).kill();
        let (image, base) = (folder.path().join("device.img"), folder.path().join("base"));
        assert!(Process::new("cp").arg("--sparse=always").arg(&image).arg(&base).status().unwrap().success());
        let changes = FileChanges::default();
        let options = Options { changes: Some(changes.clone()), ..Options::default() };
        let device = Device::open(&image, options).unwrap();
        let geometry = device.emulated().profile().geometry;
        let pool = PoolConfig { levels: PoolConfig::levels_of(&geometry, 4), ..PoolConfig::default() };
        let config = ShardConfig { pool, volatile_cache: volatile, ..ShardConfig::default() };
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let reactor_config = ReactorConfig {
            listen,
            io: device.sync_file().map(|file| (DeviceIndex(0), IoFile::Synced(file))).into_iter().collect(),
            ..ReactorConfig::default()
        };
        let make = move |now| Shard::new(device, config, now);
        let reactor = Reactor::start(&reactor_config, vec![make]).unwrap();
        let host = Host::connect(reactor.addresses()[0], "a").unwrap();
        let mut writer = Writer::new(host, seed, &changes, volatile);
        for round in 0..60 {
            writer.round(1 + round * 8).unwrap();
        }
        let Writer { host, writes, .. } = writer;
        drop(host);
        reactor.stop();
        drop(reactor_config);
        let all = changes.all();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut durable = 0;
        for cut in 0..8 {
            // Half of them right after an answer: that is when it counts.
            let at = if cut % 2 == 0 {
                let some = writes[random.random_range(0..writes.len())].durable;
                some.unwrap_or(all.len()).min(all.len())
            } else {
                random.random_range(0..=all.len())
            };
            leave(&image, &base, &all[..at], &mut random);
            let server = serve(folder.path());
            let mut host = Host::connect(server.socket_address(), "a").unwrap();
            durable += check(&mut host, &writes, at, &format!("seed {seed}: cut after {at} changes"));
        }
        assert!(durable > 100, "only {durable} LBAs had something durable");
    }
}

/// A device keeps the durability it was made with, and what cannot be is refused by name.
#[test]
fn durability_is_not_changed_by_a_set_up() {
    let start = |folder: &Path, device: &str, more: &[&str]| {
        write_setup(folder, device);
        let serve = ["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", "."];
        refused(folder, &[&serve, more].concat())
    };
    let folder = tempfile::tempdir().unwrap();
    let machine = "durability = \"machine\"";
    for (device, more, names) in [
        ("durability = \"machine\"\nbacking = \"memory\"", &[][..], "device.backing"),
        ("durability = \"machine\"\nprotected_memory = \"16 MiB\"", &[], "device.protected_memory"),
        (machine, &["--shards", "2"], "server.shards"),
    ] {
        let said = start(folder.path(), device, more);
        assert!(said.contains("device.durability") || said.contains(names), "{said}");
        assert!(said.contains(names), "{said}");
        assert!(!folder.path().join("device.img").exists());
    }
    for (made, then) in [("machine", "process"), ("process", "machine")] {
        let folder = tempfile::tempdir().unwrap();
        write_setup(folder.path(), &format!("durability = \"{made}\""));
        serve(folder.path()).kill();
        let said = start(folder.path(), &format!("durability = \"{then}\""), &[]);
        assert!(said.contains("was made with device.durability") && said.contains(made), "{said}");
        write_setup(folder.path(), &format!("durability = \"{made}\""));
        serve(folder.path()).kill();
    }
}
