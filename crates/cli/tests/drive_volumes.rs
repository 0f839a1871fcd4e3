//! Volumes of a server on a drive that loses power, for real: the shipped binary over a disk on FUSE that keeps apart what was not flushed, and a host over
//! sockets. What a host flushed is there after any cut; where flushes do nothing that is seen.

mod host;
mod served;

use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_power::{Disks, Mounted, Options};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::needs;
use diecut_testing::versions::Versions;
use diecut_units::Buffer;
use host::Host;
use served::{Server, done};
use std::path::Path;
use tempfile::TempDir;

const LBA_BYTES: usize = 4096;
const LBAS: u64 = 2048;
const NSID: u32 = 1;

/// Of the drives, in their order.
const TENANTS: [&str; 2] = ["a", "b"];

/// A drive, and what a tenant has on it.
const SETUP: &str = r#"
[[device]]
kind = "file"
path = "disks/drive-$"
name = "drive-$"
[[tenant]]
name = "$"
[[vssd]]
name = "fast-$"
tenant = "$"
device = "drive-$"
isolation = "channel"
capacity = "40 MiB"
[[volume]]
name = "data-$"
vssd = "fast-$"
size = "8 MiB"
[[subsystem]]
nqn = "nqn.2026-11.org.diecut:$"
tenant = "$"
allow_any_host = true
[[subsystem.namespaces]]
nsid = 1
volume = "data-$"
"#;

/// Disks, and the folder of a server on them. Fields go in their order.
struct Bench {
    mounted: Mounted,
    folder: TempDir,
}

impl Bench {
    /// With so many drives, each with the volume of a tenant of its own.
    fn new(seed: u64, drives: usize) -> Bench {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(folder.path().join("disks")).unwrap();
        let tenants = &TENANTS[..drives];
        let disks = tenants.iter().map(|tenant| (format!("drive-{tenant}"), 160 << 20)).collect();
        let options = Options { drives: disks, seed, ..Options::default() };
        let mounted = Mounted::new(&folder.path().join("disks"), &options).unwrap();
        let setup: String = tenants.iter().map(|tenant| SETUP.replace('$', tenant)).collect();
        std::fs::write(folder.path().join("setup.toml"), setup).unwrap();
        let bench = Bench { mounted, folder };
        let paths: Vec<String> = tenants.iter().map(|tenant| format!("disks/drive-{tenant}")).collect();
        let mut format = vec!["device", "format", "--erase-block", "1M", "--lanes", "4"];
        format.extend(paths.iter().map(String::as_str));
        done(bench.path(), &format);
        bench
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn disks(&self) -> &Disks {
        self.mounted.disks()
    }
}

/// Blocks of a volume as its host knows them.
struct Known {
    versions: Versions,
    version: u64,
    /// Flushes that were answered.
    flushes: u32,
}

fn run(host: &mut Host, command: Command) -> std::io::Result<Collect> {
    host.queue.submit(Token(1), command);
    let mut sink = Collect::default();
    while sink.completions.is_empty() {
        host.exchange(&mut sink)?;
    }
    if sink.completions[0].status.is_success() { Ok(sink) } else { Err(std::io::ErrorKind::Other.into()) }
}

impl Known {
    /// Every block has a version that it may have, and keeps it.
    fn check(&mut self, host: &mut Host, life: u32) {
        for first in (0..LBAS).step_by(64) {
            let span = LbaSpan { nsid: NSID, first, count: 64 };
            let read = Command::Read { span, length_bytes: 64 * LBA_BYTES as u32 };
            let sink = run(host, read).unwrap_or_else(|error| panic!("life {life}: LBA {first}: {error}"));
            let blocks = sink.data[&Token(1)].chunks(LBA_BYTES);
            for (lba, block) in (first..).zip(blocks) {
                let version = u64::from_le_bytes(block[..8].try_into().unwrap());
                assert!(
                    block.chunks(8).all(|word| word == &block[..8]),
                    "life {life}: LBA {lba} is of one version"
                );
                self.versions.find(lba, version, &format!("life {life}"));
            }
        }
    }

    /// Writes, and flushes after every few of them, until an error.
    fn work(&mut self, host: &mut Host, random: &mut Random) -> std::io::Result<()> {
        loop {
            let mut written = Vec::new();
            for _ in 0..1 + random.below(6) {
                let first = random.below(LBAS);
                let count = 1 + random.below((LBAS - first).min(32)) as u32;
                self.version += 1;
                let version = self.version;
                let touched = first..first + u64::from(count);
                self.versions.write(touched.clone(), version);
                let data = Buffer::copy_from(&version.to_le_bytes().repeat(count as usize * LBA_BYTES / 8));
                let span = LbaSpan { nsid: NSID, first, count };
                run(host, Command::Write { span, data, force_unit_access: false })?;
                written.push((touched, version));
            }
            run(host, Command::Flush { nsid: NSID })?;
            self.flushes += 1;
            for (touched, version) in written {
                self.versions.make_durable(touched, version);
            }
        }
    }
}

/// Lives of a server, each ended by a cut of all disks at some command to one of them, while one of the tenants works.
fn lives(bench: &Bench, drives: usize, cuts: u32) {
    let mut random = Random::of(bench.disks().seed());
    let new = |_| Known { versions: Versions::new(LBAS), version: 0, flushes: 0 };
    let mut known: Vec<Known> = (0..drives).map(new).collect();
    for life in 0..=cuts {
        let server = Server::in_folder(bench.path(), &[]);
        let connect = |tenant: &&str| Host::connect(server.socket_address(), tenant).unwrap();
        let mut hosts: Vec<Host> = TENANTS[..drives].iter().map(connect).collect();
        for (known, host) in known.iter_mut().zip(&mut hosts) {
            known.check(host, life);
        }
        if life == cuts {
            server.stop();
            break;
        }
        bench.disks().cut_after(random.below(400));
        let at = random.below(drives as u64) as usize;
        known[at].work(&mut hosts[at], &mut random).unwrap_err();
        drop(hosts);
        server.kill();
        if bench.disks().is_on() {
            bench.disks().cut(None).unwrap();
        }
        bench.disks().power_on();
    }
    let flushes: u32 = known.iter().map(|known| known.flushes).sum();
    assert!(flushes > cuts, "{flushes} flushes were answered");
}

/// Goal: what a host flushed is there after every cut of the power, and a disk that lies about flushes is found out within five. Method: the shipped
/// server on a disk on FUSE; blocks have versions.
#[test]
fn volumes_on_a_drive_outlive_the_power() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    lives(&Bench::new(31, 1), 1, depth(12, 50));
    let lying = Bench::new(32, 1);
    lying.disks().lie(true);
    let is_seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lives(&lying, 1, 5))).is_err();
    assert!(is_seen, "flushes did nothing");
}

/// Goal: the same on two drives that are one pool, of which each has a volume.
#[test]
fn volumes_on_two_drives_outlive_the_power() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    lives(&Bench::new(33, 2), 2, depth(8, 50));
}
