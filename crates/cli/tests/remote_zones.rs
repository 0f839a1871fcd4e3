//! A server whose pool lies on a zoned namespace of another one, over real sockets: both are killed under load and come back, and what one says that it
//! programs is what the other one was sent.

use crate::{served, targets};
use diecut_testing::wait::wait_for;
use served::{assert_says, done, refused};
use targets::{Both, PROGRAMMED, Target, ZONED, ask, figure};

const LBAS: u64 = 1024;

/// Goal: a zoned namespace of a target is a drive: what a host flushed is there after kills of the server and of its target under load, nothing is written
/// elsewhere than at a write pointer, and the target was sent what the server says that it programmed. Method: blocks have versions.
#[test]
fn a_pool_on_zones_of_a_target() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let far = Target::new(folder.path().join("a"));
    let target = far.start();
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
    let mut both = Both::new(&far, target, (&own, 1), "b", LBAS);
    let health = || ask(&own, &["status"])["devices"][0]["health"]["used_percent"].as_u64();
    wait_for(|| "nobody asks the target how it is", || health().map(drop));

    // What the server programs is what its drive is sent.
    let programmed = || figure(&own, "fast", &PROGRAMMED);
    let sent = || figure(far.folder(), "zoned", &["host_written"]);
    both.work(20).unwrap();
    let (programmed_before, sent_before) = (programmed(), sent());
    both.work(200).unwrap();
    let (programmed, sent) = (programmed() - programmed_before, sent() - sent_before);
    let rest = sent.checked_sub(programmed).unwrap_or_else(|| panic!("{programmed} of {sent}"));
    // Block states and the catalog are in no vSSD.
    assert!(programmed > 4 << 20 && rest * 20 < sent, "{programmed} programmed, {sent} sent");

    both.kill_in_turns(3);
    // No write was refused.
    assert!(!both.server().log().contains("read-only"), "{}", both.server().log());
    both.restart();
}
