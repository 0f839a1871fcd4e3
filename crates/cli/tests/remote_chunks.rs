//! A server whose pool lies on a namespace of chunks (Open-Channel) of another one, over real sockets: it has the channels and dies of that, both are killed under
//! load and come back, and what one says that it programs is what the other one was sent.

use crate::{served, targets};
use served::{assert_says, done, refused};
use targets::{Both, CHUNKED, PROGRAMMED, Target, ask, figure};

const LBAS: u64 = 1024;

/// Goal: a pool on chunks of a target has its channels and dies: tenants get them for themselves. What a host flushed is there after kills of the server and of
/// its target under load, with one shard and with two, no write is refused, and the target was sent what the server says that it programmed. Method: blocks
/// have versions.
#[test]
fn a_pool_on_chunks_of_a_target() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let far = Target::chunked(folder.path().join("a"));
    let target = far.start();
    let own = folder.path().join("b");
    std::fs::create_dir(&own).unwrap();
    let place = format!("{}/{CHUNKED}/1", far.address());
    let said = refused(&own, &["device", "format", &place, "--lanes", "4"]);
    assert_says(&said, &["4 lanes are asked for", "5 of them"]);
    done(&own, &["device", "format", &place]);
    let known: serde_json::Value =
        serde_json::from_str(&done(&own, &["--json", "device", "identify", &place])).unwrap();
    assert_eq!(known[0]["label"]["lanes"], 5, "{known}");
    assert_eq!(known[0]["zones"]["dies"]["channels"], 5, "{known}");
    assert_eq!(known[0]["zones"]["dies"]["dies_per_channel"], 2, "{known}");
    assert!(known[0]["isolation"].as_str().unwrap().starts_with("channels and dies"), "{known}");
    assert_says(&done(&own, &["device", "identify", &place]), &["5 channels of 2 dies"]);

    let address = far.address();
    let mut setup = format!(
        "[[device]]\nkind = \"remote\"\naddress = \"{address}\"\nsubsystem = \"{CHUNKED}\"\nnsid = 1\nname = \"far\"\n"
    );
    for (name, isolation) in [("b", "channel"), ("c", "die")] {
        setup += &format!(
            "[[tenant]]\nname = \"{name}\"\n[[vssd]]\nname = \"fast-{name}\"\ntenant = \"{name}\"\nisolation = \"{isolation}\"\n\
             capacity = \"24 MiB\"\n[[volume]]\nname = \"data-{name}\"\nvssd = \"fast-{name}\"\nsize = \"4 MiB\"\n[[subsystem]]\n\
             nqn = \"nqn.2026-11.org.diecut:{name}\"\ntenant = \"{name}\"\nallow_any_host = true\n\
             namespaces = [{{ nsid = 1, volume = \"data-{name}\" }}]\n"
        );
    }
    std::fs::write(own.join("setup.toml"), setup).unwrap();
    let mut both = Both::new(&far, target, (&own, 2), "b", LBAS);
    // What lies where is told: one has a channel, the other one dies.
    let lies_on = |vssd: &str| {
        let shown = ask(&own, &["vssd", "show", vssd]);
        (shown["units"].as_u64(), shown["placement"]["channels"].as_array().map(Vec::len))
    };
    assert_eq!(["fast-b", "fast-c"].map(lies_on), [(Some(2), Some(1)); 2]);

    let programmed = || ["fast-b", "fast-c"].map(|vssd| figure(&own, vssd, &PROGRAMMED)).iter().sum::<u64>();
    let sent = || figure(far.folder(), "flash", &["host_written"]);
    both.work(20).unwrap();
    let (programmed_before, sent_before) = (programmed(), sent());
    both.work(200).unwrap();
    let (programmed, sent) = (programmed() - programmed_before, sent() - sent_before);
    let rest = sent.checked_sub(programmed).unwrap_or_else(|| panic!("{programmed} of {sent}"));
    // Headers of erase blocks, block states and the catalog are in no vSSD; each takes a program unit of 96 KiB, and an erase block has 32.
    assert!(programmed > 4 << 20 && rest * 10 < sent, "{programmed} programmed, {sent} sent");

    both.kill_in_turns(3);
    assert!(!both.server().log().contains("read-only"), "{}", both.server().log());
    both.restart();
}
