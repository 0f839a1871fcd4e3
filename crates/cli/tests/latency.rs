//! Goal: an administrator learns where the time of slow commands went, as a table and as JSON. Method: the shipped binary as server with
//! paced flash, under a load that waits for it. Not timed.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

use crate::served;
use diecut_spec::latency::{Cause, LatencyReport};
use served::{NQN, SETUP, Server, assert_says, done, folder, refused};

#[test]
fn slow_commands_say_where_their_time_went() {
    let folder = folder();
    let folder = folder.path();
    let paced = SETUP
        .replace("[device]\n", "[server]\nslow_after_us = 20\n[device]\npacing = true\n")
        .replace("size = \"1M\"", "size = \"8M\"");
    std::fs::write(folder.join("setup.toml"), paced).unwrap();
    let server = Server::start(folder, &["--setup", "setup.toml", "--data", "diecut-data"]);
    let before: LatencyReport = serde_json::from_str(&done(folder, &["--json", "latency"])).unwrap();
    assert_eq!((before.threshold_us, before.slow, before.commands.len()), (20, 0, 0));
    assert_says(&done(folder, &["latency"]), &["20.0 us", "0, of which 0"]);
    let address = server.address().to_owned();
    let load = |rw: &str| {
        let options = ["--rw", rw, "--bs", "4k", "--iodepth", "16", "--runtime", "2", "--overwrite"];
        done(folder, &[&["bench", address.as_str(), "--nqn", NQN], &options[..]].concat());
    };
    load("randwrite");
    load("randread");
    let report: LatencyReport = serde_json::from_str(&done(folder, &["--json", "latency"])).unwrap();
    assert!(report.slow > 0 && report.explained > 0 && report.explained <= report.slow, "{report:#?}");
    let read = report.commands.iter().find(|one| one.place.die.is_some() && one.asked.operation == "read");
    let read = read.unwrap_or_else(|| panic!("a read came from flash: {report:#?}"));
    assert_eq!((read.asked.subsystem.as_str(), read.asked.nsid, read.asked.lba_count), (NQN, 1, 1));
    assert_eq!((read.place.tenant.as_str(), read.place.volume.as_str()), ("a", "disk"));
    for one in &report.commands {
        let sum: u64 = one.parts.iter().map(|part| part.us).sum();
        assert!(sum <= one.took_us && sum + 20 > one.took_us, "{one:#?}");
    }
    // Without a neighbour nobody else is named, and the flash took its time.
    assert!(
        report.matrix.iter().all(|one| one.tenant == "a" && one.for_tenant == "a"),
        "{:#?}",
        report.matrix
    );
    assert!(report.causes.iter().any(|one| one.cause == Cause::Medium && one.total_us > 0));
    let text = done(folder, &["latency", "--top", "3", "--around"]);
    assert_says(&text, &["where their time went"]);
    assert_says(&text, &["medium"]);
    assert_says(&text, &["disk", "read"]);
    assert_says(&text, &["around read"]);
    server.stop();
}

#[test]
fn a_threshold_that_nobody_means_is_refused() {
    let folder = folder();
    let folder = folder.path();
    std::fs::write(folder.join("setup.toml"), format!("[server]\nslow_after_us = 3\n{SETUP}")).unwrap();
    let said = refused(folder, &["serve", "--setup", "setup.toml", "--data", "."]);
    assert!(said.contains("server.slow_after_us = 3: use 10"), "{said}");
}
