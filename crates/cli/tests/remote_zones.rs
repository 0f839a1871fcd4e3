//! A server whose pool lies on a zoned namespace of another one, over real sockets: both are killed under load and come back, and what one says that it
//! programs is what the other one was sent.

use crate::{host, served, targets};
use diecut_testing::Random;
use diecut_testing::wait::wait_for;
use host::Host;
use host::known::Known;
use served::{Server, assert_says, done, refused};
use std::path::Path;
use std::sync::atomic::Ordering;
use targets::{Target, ZONED};

const LBAS: u64 = 1024;

fn ask(folder: &Path, arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&done(folder, &[&["--json", "--socket", "control.sock"], arguments].concat()))
        .unwrap()
}

/// What hosts wrote to the only vSSD of this name, and what was programmed for it.
fn figures(folder: &Path, vssd: &str) -> (u64, u64) {
    let shown = ask(folder, &["vssd", "show", vssd]);
    let of = |key: &str| shown[key].as_u64().unwrap_or_else(|| panic!("{key}: {shown}"));
    let programmed = ["programmed_user", "programmed_cleaner", "programmed_metadata"].map(of);
    (of("host_written"), programmed.iter().sum())
}

/// Goal: a zoned namespace of a target is a drive: what a host flushed is there after kills of the server and of its target under load, nothing is written
/// elsewhere than at a write pointer, and the target was sent what the server says that it programmed. Method: blocks have versions.
#[test]
fn a_pool_on_zones_of_a_target() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let far = Target::new(folder.path().join("a"));
    let mut target = Some(far.start());
    let own = folder.path().join("b");
    std::fs::create_dir(&own).unwrap();
    let place = format!("{}/{ZONED}/1", far.address());
    let said = refused(&own, &["device", "format", &place, "--erase-block", "1M"]);
    assert_says(&said, &["an erase block of 1048576 bytes is asked for", "a zone, which takes 524288 bytes"]);
    assert_says(&refused(&own, &["device", "format", &place, "--lanes", "2"]), &["2 lanes need 28"]);
    done(&own, &["device", "format", &place, "--lanes", "1"]);
    let known: serde_json::Value =
        serde_json::from_str(&done(&own, &["--json", "device", "identify", &place])).unwrap();
    assert_eq!(known[0]["zones"]["zones"], 240, "{known}");
    assert_eq!(known[0]["zones"]["active_max"], 14, "{known}");
    assert_eq!(known[0]["label"]["lanes"], 1, "{known}");
    assert_eq!(known[0]["health"]["warnings"], serde_json::json!([]), "{known}");

    let address = far.address();
    let setup = format!(
        "[[device]]\nkind = \"remote\"\naddress = \"{address}\"\nsubsystem = \"{ZONED}\"\nnsid = 1\nname = \"far\"\n[[tenant]]\nname = \"b\"\n\
         [[vssd]]\nname = \"fast\"\ntenant = \"b\"\nisolation = \"channel\"\ncapacity = \"24 MiB\"\n[[volume]]\nname = \"data\"\nvssd = \"fast\"\n\
         size = \"4 MiB\"\n[[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:b\"\ntenant = \"b\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, volume = \"data\" }}]\n"
    );
    std::fs::write(own.join("setup.toml"), setup).unwrap();
    let mut server = Server::in_folder(&own, &[]);
    let health = || ask(&own, &["status"])["devices"][0]["health"]["used_percent"].as_u64();
    wait_for(|| "nobody asks the target how it is", || health().map(drop));
    let (mut known, mut random) = (Known::new(LBAS), Random::of(11));
    let check = |known: &mut Known, server: &Server, what: &str| {
        known.check(&mut Host::connect(server.socket_address(), "b").unwrap(), what);
    };
    let work = |known: &mut Known, server: &Server, random: &mut Random, rounds: u32| {
        let mut host = Host::connect(server.socket_address(), "b").map_err(|error| error.to_string())?;
        known.work(&mut host, random, rounds)
    };

    // What the server programs is what its drive is sent.
    let programmed = |folder: &Path| figures(folder, "fast").1;
    let sent = || figures(far.folder(), "zoned").0;
    work(&mut known, &server, &mut random, 20).unwrap();
    let (programmed_before, sent_before) = (programmed(&own), sent());
    work(&mut known, &server, &mut random, 200).unwrap();
    let (programmed, sent) = (programmed(&own) - programmed_before, sent() - sent_before);
    let rest = sent.checked_sub(programmed).unwrap_or_else(|| panic!("{programmed} of {sent}"));
    // Block states and the catalog are in no vSSD.
    assert!(programmed > 4 << 20 && rest * 20 < sent, "{programmed} programmed, {sent} sent");

    for life in 0..3 {
        let flushes = known.flush_count();
        let flushed = |count| {
            wait_for(|| "hosts do not flush", || (flushes.load(Ordering::Relaxed) >= count).then_some(()));
        };
        let begun = flushes.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let work = scope.spawn(|| work(&mut known, &server, &mut random, u32::MAX));
            flushed(begun + 4 + 5 * life);
            let kill = ["-9", &server.pid().to_string()];
            assert!(std::process::Command::new("kill").args(kill).status().unwrap().success());
            work.join().unwrap().unwrap_err();
        });
        server = Server::in_folder(&own, &[]);
        check(&mut known, &server, &format!("life {life}, server"));
        let begun = flushes.load(Ordering::Relaxed);
        std::thread::scope(|scope| {
            let work = scope.spawn(|| work(&mut known, &server, &mut random, 150));
            flushed(begun + 5);
            target.take().unwrap().kill();
            target = Some(far.start());
            work.join().unwrap().unwrap_or_else(|error| panic!("life {life}: {error}\n{}", server.log()));
        });
        check(&mut known, &server, &format!("life {life}, target"));
    }
    // No write was refused.
    assert!(!server.log().contains("read-only"), "{}", server.log());
    server.stop();
    let server = Server::in_folder(&own, &[]);
    check(&mut known, &server, "stopped and started");
    drop((server, target));
}
