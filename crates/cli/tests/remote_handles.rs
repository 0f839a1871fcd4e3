//! A server whose pool lies on a namespace with placement handles (FDP) of another one, over real sockets: what it writes for different reasons is kept
//! apart there, and the drive counts what it was sent.

use crate::{host, served, targets};
use diecut_initiator::{Command, LbaSpan};
use diecut_testing::Random;
use diecut_units::Buffer;
use host::Host;
use host::known::{LBA_BYTES, run};
use served::{Server, done};
use targets::{PLACED, PROGRAMMED, Target, figure};

/// Writes all over a volume, so often that its cleaner works.
fn load(server: &Server, tenant: &str, lbas: u64, rounds: u64) {
    let mut host = Host::connect(server.socket_address(), tenant).unwrap();
    let mut random = Random::of(3);
    let content = Buffer::copy_from(&[0x5a; 16 * LBA_BYTES]);
    for _ in 0..rounds {
        let span = LbaSpan { nsid: 1, first: random.below(lbas / 16) * 16, count: 16 };
        let write = Command::Write { span, data: content.clone(), force_unit_access: false };
        run(&mut host, write).unwrap();
    }
    run(&mut host, Command::Flush { nsid: 1 }).unwrap();
}

/// Goal: a pool on a namespace with handles uses them, so that the drive's own cleaner has nothing to copy, and what the drive was sent is what the server says
/// that it programs. Method: two tenants write all over their volumes, many times.
#[test]
fn a_pool_on_handles_of_a_target() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let far = Target::new(folder.path().join("a"));
    let target = far.start();
    let own = folder.path().join("b");
    std::fs::create_dir(&own).unwrap();
    let place = format!("{}/{PLACED}/1", far.address());
    let known: serde_json::Value =
        serde_json::from_str(&done(&own, &["--json", "device", "identify", &place])).unwrap();
    assert_eq!(known[0]["placement_handles"], 8, "{known}");
    done(&own, &["device", "format", &place, "--erase-block", "1M", "--lanes", "2"]);
    let address = far.address();
    let tenant = |name: &str| {
        format!(
            "[[tenant]]\nname = \"{name}\"\n[[vssd]]\nname = \"fast-{name}\"\ntenant = \"{name}\"\nisolation = \"channel\"\ncapacity = \"28 MiB\"\n\
             [[volume]]\nname = \"data-{name}\"\nvssd = \"fast-{name}\"\nsize = \"24 MiB\"\n[[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:{name}\"\n\
             tenant = \"{name}\"\nallow_any_host = true\nnamespaces = [{{ nsid = 1, volume = \"data-{name}\" }}]\n"
        )
    };
    let device = format!(
        "[[device]]\nkind = \"remote\"\naddress = \"{address}\"\nsubsystem = \"{PLACED}\"\nnsid = 1\n"
    );
    std::fs::write(own.join("setup.toml"), device + &tenant("c") + &tenant("d")).unwrap();
    let server = Server::in_folder(&own, &[]);
    let programmed = || figure(&own, "fast-c", &PROGRAMMED) + figure(&own, "fast-d", &PROGRAMMED);
    let sent = || figure(far.folder(), "placed", &["host_written"]);
    let (programmed_before, sent_before) = (programmed(), sent());
    std::thread::scope(|scope| {
        for tenant in ["c", "d"] {
            let server = &server;
            scope.spawn(move || load(server, tenant, 24 << 8, 3_000));
        }
    });
    let (programmed, sent) = (programmed() - programmed_before, sent() - sent_before);
    let rest = sent.checked_sub(programmed).unwrap_or_else(|| panic!("{programmed} of {sent}"));
    // Block states and the catalog are in no vSSD.
    assert!(programmed > 300 << 20 && rest * 20 < sent, "{programmed} programmed, {sent} sent");
    let inside = figure(far.folder(), "placed", &["programmed_cleaner"]);
    assert_eq!(inside, 0, "of {sent} bytes that were sent");
    server.stop();
    drop(target);
}
