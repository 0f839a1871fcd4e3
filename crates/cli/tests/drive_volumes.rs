//! Volumes of a server on a drive that loses power, for real: the shipped binary over a disk on FUSE that keeps apart what was not flushed, and a host over
//! sockets. What a host flushed is there after any cut; where flushes do nothing that is seen.

use crate::{host, served};
use diecut_power::{Disks, Mounted, Options};
use diecut_testing::Random;
use diecut_testing::depth::depth;
use diecut_testing::needs;
use host::Host;
use host::known::Known;
use served::{Server, done};
use std::path::Path;
use tempfile::TempDir;

const LBAS: u64 = 2048;

/// Of the drives, in their order, and one whose vSSD has parts on all of them.
const TENANTS: [&str; 3] = ["a", "b", "wide"];

const DEVICE: &str = r#"
[[device]]
kind = "file"
path = "disks/drive-$"
name = "drive-$"
"#;

/// What a tenant has.
const TENANT: &str = r#"
[[tenant]]
name = "$"
[[vssd]]
name = "fast-$"
tenant = "$"
device = DEVICE
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

/// Who is served on so many drives.
fn tenants(drives: usize) -> &'static [&'static str] {
    &TENANTS[..if drives > 1 { 3 } else { 1 }]
}

/// How a server is started in a life.
type Start = fn(life: u32) -> &'static [&'static str];

/// Disks, and the folder of a server on them. Fields go in their order.
struct Bench {
    mounted: Mounted,
    folder: TempDir,
}

impl Bench {
    /// With so many drives, each with the volume of a tenant of its own; of several, one more tenant has a volume on all of them.
    fn new(seed: u64, drives: usize) -> Bench {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(folder.path().join("disks")).unwrap();
        let on_drives = &TENANTS[..drives];
        let disks = on_drives.iter().map(|tenant| (format!("drive-{tenant}"), 160 << 20)).collect();
        let options = Options { drives: disks, seed, ..Options::default() };
        let mounted = Mounted::new(&folder.path().join("disks"), &options).unwrap();
        let devices: String = on_drives.iter().map(|tenant| DEVICE.replace('$', tenant)).collect();
        let tenants = tenants(drives).iter().map(|tenant| {
            let devices = match *tenant {
                "wide" => r#"["drive-b", "drive-a"]"#.to_owned(),
                tenant => format!("\"drive-{tenant}\""),
            };
            TENANT.replace("DEVICE", &devices).replace('$', tenant)
        });
        std::fs::write(folder.path().join("setup.toml"), devices + &tenants.collect::<String>()).unwrap();
        let bench = Bench { mounted, folder };
        let paths: Vec<String> = on_drives.iter().map(|tenant| format!("disks/drive-{tenant}")).collect();
        let mut format = vec!["device", "format", "--erase-block", "1M", "--lanes", "4"];
        format.extend(paths.iter().map(String::as_str));
        done(bench.path(), &format);
        bench
    }

    /// Drives of three lanes, which shards can divide, and the devices of each tenant's vSSD. The first shard keeps two lanes of each drive.
    fn divided(seed: u64, drives: usize, tenants: &[(&str, &str)]) -> Bench {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(folder.path().join("disks")).unwrap();
        let names = TENANTS[..drives].iter().map(|drive| format!("drive-{drive}"));
        let disks = names.clone().map(|name| (name, 300 << 20)).collect();
        let mounted = Mounted::new(
            &folder.path().join("disks"),
            &Options { drives: disks, seed, ..Options::default() },
        );
        let devices = TENANTS[..drives].iter().map(|drive| DEVICE.replace('$', drive));
        let tenants = tenants.iter().map(|(tenant, on)| TENANT.replace("DEVICE", on).replace('$', tenant));
        std::fs::write(folder.path().join("setup.toml"), devices.chain(tenants).collect::<String>()).unwrap();
        let bench = Bench { mounted: mounted.unwrap(), folder };
        let paths: Vec<String> = names.map(|name| format!("disks/{name}")).collect();
        let mut format = vec!["device", "format", "--erase-block", "1M", "--lanes", "3"];
        format.extend(paths.iter().map(String::as_str));
        done(bench.path(), &format);
        bench
    }

    /// Asks a server that runs there.
    fn ask(&self, arguments: &[&str]) -> serde_json::Value {
        let said = done(self.path(), &[&["--socket", "control.sock", "--json"], arguments].concat());
        serde_json::from_str(&said).unwrap()
    }

    /// The shard of each vSSD, in the order of their names.
    fn homes(&self) -> Vec<u64> {
        let status = self.ask(&["status"]);
        let vssds = status["vssds"].as_array().unwrap().iter();
        vssds.map(|vssd| vssd["placement"]["shard"].as_u64().unwrap()).collect()
    }

    /// That a server with so many shards is refused, and why.
    fn is_refused(&self, shards: &str, why: &[&str]) {
        let serve = ["serve", "--setup", "setup.toml", "--data", ".", "--listen", "127.0.0.1:0", "--shards"];
        let shown = served::refused(self.path(), &[&serve[..], &[shards]].concat());
        served::assert_says(&shown, why);
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn disks(&self) -> &Disks {
        self.mounted.disks()
    }
}

/// Lives of a server, each ended by a cut of all disks at some command to one of them, while one of the tenants works. What the hosts know then.
fn lives(bench: &Bench, tenants: &[&str], cuts: u32, start: Start) -> Vec<Known> {
    let mut random = Random::of(bench.disks().seed());
    let mut known: Vec<Known> = tenants.iter().map(|_| Known::new(LBAS)).collect();
    for life in 0..=cuts {
        let server = Server::in_folder(bench.path(), start(life));
        let connect = |tenant: &&str| Host::connect(server.socket_address(), tenant).unwrap();
        let mut hosts: Vec<Host> = tenants.iter().map(connect).collect();
        for (known, host) in known.iter_mut().zip(&mut hosts) {
            known.check(host, &format!("life {life}"));
        }
        if life == cuts {
            server.stop();
            break;
        }
        bench.disks().cut_after(random.below(400));
        let at = random.below(tenants.len() as u64) as usize;
        known[at].work(&mut hosts[at], &mut random, u32::MAX).unwrap_err();
        drop(hosts);
        server.kill();
        if bench.disks().is_on() {
            bench.disks().cut(None).unwrap();
        }
        bench.disks().power_on();
    }
    let flushes: u32 = known.iter().map(Known::flushes).sum();
    assert!(flushes > cuts, "{flushes} flushes were answered");
    known
}

/// Goal: what a host flushed is there after every cut of the power, and a disk that lies about flushes is found out within five. Method: the shipped
/// server on a disk on FUSE; blocks have versions.
#[test]
fn volumes_on_a_drive_outlive_the_power() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    drop(lives(&Bench::new(31, 1), tenants(1), depth(6, 50), |_| &[]));
    let lying = Bench::new(32, 1);
    lying.disks().lie(true);
    let is_seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        drop(lives(&lying, tenants(1), 5, |_| &[]))
    }))
    .is_err();
    assert!(is_seen, "flushes did nothing");
}

/// Goal: the same on two drives that are one pool, of which each has a volume, and both have one together.
#[test]
fn volumes_on_two_drives_outlive_the_power() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    drop(lives(&Bench::new(33, 2), tenants(2), depth(4, 50), |_| &[]));
}

/// Goal: the same of a drive that shards divide, whose number changes from life to life.
#[test]
fn volumes_on_a_divided_drive_outlive_the_power() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let bench = Bench::divided(34, 1, &[("a", "\"drive-a\""), ("b", "\"drive-a\"")]);
    let start: Start = |life| if life % 3 == 2 { &[] } else { &["--shards", "2"] };
    drop(lives(&bench, &["a", "b"], depth(5, 50), start));
    let server = Server::in_folder(bench.path(), &["--shards", "2"]);
    let homes = bench.homes();
    assert!(homes.contains(&0) && homes.contains(&1), "{homes:?}");
    drop(server);
    bench.is_refused("3", &["server.shards = 3", "the first shard keeps 2", "use 2 or fewer"]);
}

/// Goal: the same of two drives that shards divide, with a vSSD on each, and one that has parts on both; and what has parts on both moves from shard
/// to shard and back while its host is connected.
#[test]
fn volumes_on_two_divided_drives_outlive_the_power() {
    if !needs::are_there(&needs::fuse()) {
        return;
    }
    let on = [("a", "\"drive-a\""), ("wide", r#"["drive-b", "drive-a"]"#), ("b", "\"drive-b\"")];
    let bench = Bench::divided(35, 2, &on);
    let start: Start = |life| match life % 3 {
        0 => &["--shards", "2"],
        1 => &["--shards", "3"],
        _ => &[],
    };
    let known = &mut lives(&bench, &["a", "wide", "b"], depth(6, 50), start)[1];
    let server = Server::in_folder(bench.path(), &["--shards", "3"]);
    let mut host = Host::connect(server.socket_address(), "wide").unwrap();
    let mut random = Random::of(36);
    let [.., home] = bench.homes()[..] else { panic!("three vSSDs are there") };
    assert!(home > 0, "the first shard has it");
    for to in ["0", "2", "1", "0"] {
        bench.ask(&["tenant", "move", "wide", "--shard", to]);
        assert_eq!(bench.homes()[2].to_string(), to);
        known.work(&mut host, &mut random, 40).unwrap();
        known.check(&mut host, &format!("on shard {to}"));
    }
    drop(host);
    server.kill();
    let server = Server::in_folder(bench.path(), &["--shards", "2"]);
    known.check(&mut Host::connect(server.socket_address(), "wide").unwrap(), "in the next life");
    drop(server);
    bench.is_refused("4", &["server.shards = 4", "these have 6", "keeps 4", "use 3 or fewer"]);
}
