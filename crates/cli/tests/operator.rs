//! Goal: what an administrator made, changed or deleted stays so, whatever a set-up file says; nothing that a path names is
//! destroyed; two servers are never in each other's way. Method: the shipped binary as server over a small device, and as client.
//! Not timed.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

use crate::served;
use diecut_testing::wait;
use serde_json::Value;
use served::{NQN, SETUP, Server, assert_says, command, diecut, done, folder, is_served, refused};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const SERVE: [&str; 4] = ["--setup", "setup.toml", "--data", "diecut-data"];

fn status(folder: &Path) -> Value {
    serde_json::from_str(&done(folder, &["--json", "status"])).unwrap()
}

/// Each of these once kept all tenants down: "exists with another definition; delete it first".
#[test]
fn a_server_starts_whatever_was_changed_since_its_set_up_was_applied() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    assert_says(&server.said(), &["WARN", "a new device is made in", "device.img", "GiB"]);
    assert_eq!(server.said().matches("WARN").count(), 1, "{}", server.said());
    done(folder, &["volume", "create", "more", "--vssd", "flash", "--size", "1M"]);
    done(folder, &["subsystem", "attach", NQN, "--nsid", "2", "--volume", "more"]);
    done(folder, &["host", "allow", "nqn.2026-11.org.diecut:other", "--subsystem", NQN]);
    server.stop();
    let edited =
        SETUP.replace("size = \"1M\"", "size = \"2M\"").replace("capacity = \"24M\"", "capacity = \"25M\"");
    assert_ne!(edited, SETUP);
    std::fs::write(folder.join("setup.toml"), edited).unwrap();
    let server = Server::start(folder, &SERVE);
    let said = server.said();
    assert_says(&said, &["WARN", "volume \"disk\"", "size is 1 MiB", "2 MiB"]);
    assert_says(&said, &["vssd \"flash\"", "capacity is 24 MiB", "25 MiB"]);
    assert_says(&said, &[NQN, "2=more", &format!("diecut subsystem detach {NQN} --nsid 2")]);
    assert_says(&said, &["allowed_hosts", "diecut host deny nqn.2026-11.org.diecut:other"]);
    assert_eq!(said.matches("WARN").count(), 4, "{said}");
    let now = status(folder);
    assert_eq!(now["volumes"].as_array().unwrap().len(), 2);
    assert_eq!(now["subsystems"][0]["subsystem"]["namespaces"].as_array().unwrap().len(), 2);
    server.kill();
    Server::start(folder, &SERVE).stop();
}

/// It once came back, empty.
#[test]
fn what_was_deleted_does_not_come_back_unless_it_is_asked_for() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    done(folder, &["subsystem", "delete", NQN, "--yes"]);
    done(folder, &["volume", "delete", "disk", "--yes"]);
    server.stop();
    let server = Server::start(folder, &SERVE);
    assert_says(&server.said(), &["volume \"disk\" does not exist", "`diecut apply setup.toml` creates it"]);
    assert_says(&server.said(), &[NQN, "does not exist"]);
    assert_eq!(status(folder)["volumes"], Value::Array(Vec::new()));
    // Asked for of the running server.
    let text = done(folder, &["apply", "setup.toml"]);
    assert!(
        text.contains("created volume \"disk\"") && text.contains(&format!("created subsystem {NQN}")),
        "{text}"
    );
    assert_eq!(status(folder)["volumes"][0]["volume"]["name"], "disk");
    assert_eq!(done(folder, &["apply", "setup.toml"]), "everything is as setup.toml declares it\n");
    // All of it, so that the device is as empty as a new one.
    done(folder, &["subsystem", "delete", NQN, "--yes"]);
    done(folder, &["volume", "delete", "disk", "--yes"]);
    done(folder, &["vssd", "delete", "flash", "--yes"]);
    done(folder, &["tenant", "delete", "a", "--yes"]);
    server.stop();
    let server = Server::start(folder, &SERVE);
    assert_eq!(status(folder)["tenants"], Value::Array(Vec::new()));
    server.stop();
    // Asked for at the start.
    let server = Server::start(folder, &[&SERVE[..], &["--apply"]].concat());
    assert!(!server.said().contains("WARN"), "{}", server.said());
    assert_eq!(status(folder)["volumes"][0]["volume"]["name"], "disk");
    server.stop();
}

/// It creates what it can and names the rest, also for programs; it fails if something is not as declared.
#[test]
fn apply_brings_what_it_can_and_names_what_it_cannot() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    let edited = SETUP
        .replace("size = \"1M\"", "size = \"2M\"")
        .replace("allowed_hosts = [", "allowed_hosts = [\"nqn.2026-11.org.diecut:new\", ")
        + "[[volume]]\nname = \"huge\"\nvssd = \"flash\"\nsize = \"900T\"\n\
         [[tenant]]\nname = \"b\"\n\
         [[volume]]\nname = \"more\"\nvssd = \"flash\"\nsize = \"1M\"\n";
    std::fs::write(folder.join("edited.toml"), edited).unwrap();
    let output = diecut(folder, &["apply", "edited.toml"]);
    assert!(!output.status.success());
    let (text, errors) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_says(&text, &["created tenant \"b\""]);
    assert_says(&text, &["created volume \"more\""]);
    assert_says(&text, &["created host nqn.2026-11.org.diecut:new of subsystem"]);
    assert_says(&errors, &["volume \"huge\""]);
    assert_says(&errors, &["volume \"disk\"", "size is 1 MiB", "2 MiB"]);
    let output = diecut(folder, &["--json", "apply", "edited.toml"]);
    assert!(!output.status.success());
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["created"], Value::Array(Vec::new()), "{json}");
    assert!(json["refused"].to_string().contains("huge"), "{json}");
    let fields: Vec<_> =
        json["differences"].as_array().unwrap().iter().map(|one| one["field"].as_str()).collect();
    assert_eq!(fields, [Some("size"), None], "{json}");
    server.stop();
}

#[test]
fn a_first_start_that_was_cut_is_finished_by_the_next_one() {
    let folder = folder();
    let folder = folder.path();
    Server::start(folder, &SERVE).stop();
    // As a start leaves it that was killed before it had created the second tenant.
    std::fs::write(folder.join("diecut-data/setup.pending"), "").unwrap();
    std::fs::write(folder.join("setup.toml"), SETUP.to_owned() + "[[tenant]]\nname = \"b\"\n").unwrap();
    Server::start(folder, &SERVE).stop();
    assert!(!folder.join("diecut-data/setup.pending").exists());
    let server = Server::start(folder, &SERVE);
    assert_eq!(status(folder)["tenants"].as_array().unwrap().len(), 2);
    done(folder, &["tenant", "delete", "b", "--yes"]);
    server.stop();
    let server = Server::start(folder, &SERVE);
    assert_eq!(status(folder)["tenants"].as_array().unwrap().len(), 1);
    server.stop();
}

#[test]
fn a_first_start_that_fails_leaves_nothing_behind() {
    let folder = folder();
    let folder = folder.path();
    std::fs::write(folder.join("setup.toml"), SETUP.replace("24M", "900T")).unwrap();
    let said = refused(folder, &[&["serve", "--listen", "127.0.0.1:0"], &SERVE[..]].concat());
    assert!(said.contains("flash"), "{said}");
    assert!(!folder.join("diecut-data").exists());
    // A port that is taken.
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused(folder, &[&["serve", "--listen", &address], &SERVE[..]].concat());
    assert!(said.contains(&address), "{said}");
    assert!(!folder.join("diecut-data").exists());
    Server::start(folder, &SERVE).stop();
}

/// What a device was made as wins over what a set-up says of it.
#[test]
fn a_device_is_served_as_it_was_made() {
    let folder = folder();
    let folder = folder.path();
    Server::start(folder, &SERVE).stop();
    for (from, to, words) in [
        ("profile = \"small.toml\"", "profile = \"slc\"", ["profile is", "the set-up says slc"]),
        ("profile = \"small.toml\"", "profile = \"none.toml\"", ["profile is", "cannot be read"]),
        ("\"64M\"", "\"65M\"", ["protected_memory is 64 MiB", "65 MiB"]),
    ] {
        std::fs::write(folder.join("setup.toml"), SETUP.replace(from, to)).unwrap();
        let server = Server::start(folder, &SERVE);
        assert_says(&server.said(), &words);
        assert_eq!(status(folder)["volumes"][0]["volume"]["name"], "disk");
        server.stop();
    }
}

/// Programs read where a vSSD lies as numbers, people as a line; and both how much of it is spare in effect.
#[test]
fn status_says_where_a_vssd_lies_and_what_is_spare() {
    let folder = folder();
    let folder = folder.path();
    let more = "[[vssd]]\nname = \"shared\"\ntenant = \"a\"\nisolation = \"software\"\ncapacity = \"24M\"\n";
    std::fs::write(folder.join("setup.toml"), SETUP.to_owned() + more).unwrap();
    let server = Server::start(folder, &SERVE);
    let told = status(folder);
    let of = |name: &str| {
        told["vssds"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap().clone()
    };
    let (flash, shared) = (of("flash"), of("shared"));
    let numbers = |value: &Value| serde_json::from_value::<Vec<u64>>(value.clone()).expect("numbers");
    for (vssd, planes) in [(&flash, 0), (&shared, 1)] {
        let placement = &vssd["placement"];
        let channels = numbers(&placement["channels"]);
        let dies = placement["dies"].as_array().unwrap();
        assert_eq!(dies.len() as u64, vssd["units"].as_u64().unwrap(), "{placement}");
        assert!(dies.iter().all(|die| channels.contains(&numbers(die)[0])), "{placement}");
        assert_eq!(placement.get("soft_planes").map_or(0, |of| numbers(of).len()), planes * dies.len());
        assert!(placement.get("shard").is_none(), "there is one shard: {placement}");
        // What its log keeps for itself comes on top of what it was made with.
        let (physical, exported) = (vssd["physical"].as_f64().unwrap(), vssd["exported"].as_f64().unwrap());
        let effective = vssd["effective_over_provisioning_permille"].as_u64().unwrap();
        assert_eq!(effective, ((physical / exported - 1.0) * 1000.0).round() as u64);
        assert!(effective > vssd["over_provisioning_permille"].as_u64().unwrap(), "{vssd}");
    }
    let effective = flash["effective_over_provisioning_permille"].as_u64().unwrap();
    let text = done(folder, &["vssd", "list"]);
    assert_says(&text, &["flash", &format!("{}.{} %", effective / 10, effective % 10)]);
    assert_says(&text, &["channel/die"]);
    server.stop();
}

/// A set-up that says of an existing device what it was not made with: harmless, or told with the field and its value.
#[test]
fn what_a_device_was_made_with_is_kept_or_named() {
    let folder = folder();
    let folder = folder.path();
    Server::start(folder, &SERVE).stop();
    let write =
        |from: &str, to: &str| std::fs::write(folder.join("setup.toml"), SETUP.replace(from, to)).unwrap();
    write("[device]", "[device]\nvolatile_cache = true");
    let server = Server::start(folder, &SERVE);
    assert_says(&server.said(), &["device.volatile_cache = true", "protected memory", "Leave it out"]);
    server.stop();
    for planes in [2, 8] {
        write("[device]", &format!("[pool]\nsoft_planes_per_die = {planes}\n[device]"));
        let said = refused(folder, &["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml"]);
        assert_says(&said, &["pool.soft_planes_per_die = 4", &format!("says {planes}"), "Set it to 4"]);
    }
    write("[device]", "[pool]\nsoft_planes_per_die = 4\n[device]");
    Server::start(folder, &SERVE).stop();
}

/// Shards stay on cores of their own where that is asked for, and a shard that looks for work goes on to.
#[test]
fn shards_stay_on_their_cores_and_poll_as_long_as_is_said() {
    let folder = folder();
    let folder = folder.path();
    // Of a thread: the cores it may use, and processor time so far in clock ticks.
    let thread = |server: &Server| {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        let mut paths = tasks.map(|task| task.unwrap().path());
        let path = paths
            .find(|path| {
                std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "shard-0")
            })
            .expect("the thread of the first shard");
        let status = std::fs::read_to_string(path.join("status")).unwrap();
        let cores = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .unwrap()
            .trim()
            .to_owned();
        let stat = std::fs::read_to_string(path.join("stat")).unwrap();
        let fields = stat.rsplit_once(") ").unwrap().1.split(' ').skip(11).take(2);
        (cores, fields.map(|field| field.parse::<u64>().unwrap()).sum::<u64>())
    };
    let ticks_in_a_second = |server: &Server| {
        // Some work, after which it polls or sleeps.
        done(folder, &["status"]);
        let before = thread(server).1;
        wait::let_time_pass(std::time::Duration::from_secs(1));
        thread(server).1 - before
    };
    let server = Server::start(folder, &SERVE);
    let sleeping = ticks_in_a_second(&server);
    server.stop();
    let setup = format!("[server]\npin_cores = true\nbusy_poll_us = 3000000\n{SETUP}");
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    let server = Server::start(folder, &SERVE);
    let (cores, _) = thread(&server);
    assert!(cores.parse::<u32>().is_ok(), "cores {cores}: one is asked for");
    // Others may have the core now and then.
    wait::wait_until(
        || format!("it polls for more than {sleeping} ticks in a second, in which it slept"),
        || {
            let polling = ticks_in_a_second(&server);
            polling >= 10 && polling > 4 * sleeping
        },
    );
    server.stop();
    let setup = format!("[server]\npin_cores = true\nshards = 200\n{SETUP}");
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    let said = refused(folder, &["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml"]);
    assert_says(&said, &["server.pin_cores", "server.shards"]);
}

/// `--socket` once removed whatever it named, and `DIECUT_SOCKET` took a server's socket away.
#[test]
fn a_server_takes_nothing_away() {
    let folder = folder();
    let folder = folder.path();
    let serve = |data: &str, more: &[&str]| {
        let mut serve = command(folder);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--data", data]).args(more);
        serve
    };
    std::fs::write(folder.join("precious.txt"), "a year's work").unwrap();
    let said = Server::try_start(folder, serve("one", &["--socket", "precious.txt"])).err().unwrap();
    assert!(said.contains("precious.txt") && said.contains("no socket"), "{said}");
    assert_eq!(std::fs::read_to_string(folder.join("precious.txt")).unwrap(), "a year's work");

    let first = Server::start_as(folder, serve("one", &[]));
    let socket = folder.join("one/control.sock");
    let pid = format!("process {}", first.pid());
    // Another server from the same folder, with another image in it, from another folder, and with the variable.
    let said = Server::try_start(folder, serve("one", &[])).err().unwrap();
    assert!(said.contains("another server") && said.contains(&pid), "{said}");
    std::fs::rename(folder.join("one/device.img"), folder.join("one/replaced.img")).unwrap();
    let said = Server::try_start(folder, serve("one", &["--socket", "else.sock"])).err().unwrap();
    assert!(said.contains("another server"), "{said}");
    assert!(!folder.join("one/device.img").exists() && !folder.join("else.sock").exists());
    std::fs::rename(folder.join("one/replaced.img"), folder.join("one/device.img")).unwrap();
    let said = Server::try_start(folder, serve("two", &["--socket", "one/control.sock"])).err().unwrap();
    assert!(said.contains("another server") && said.contains(&pid), "{said}");
    let mut with_variable = serve("two", &[]);
    with_variable.env("DIECUT_SOCKET", &socket);
    let second = Server::start_as(folder, with_variable);
    assert!(is_served(&folder.join("two/control.sock")));
    second.stop();
    assert!(!folder.join("two/control.sock").exists() && !folder.join("two/blocks.sock").exists());
    // A client goes where the variable says.
    let asked =
        command(folder).env("DIECUT_SOCKET", &socket).args(["volume", "show", "disk"]).output().unwrap();
    assert!(asked.status.success());
    // What a dead server left is replaced.
    first.kill();
    assert!(socket.exists() && !is_served(&socket));
    Server::start_as(folder, serve("one", &[])).stop();
    assert!(!socket.exists());
}

#[test]
fn image_folder_and_sockets_are_their_owners_alone() {
    let folder = folder();
    let folder = folder.path();
    let mode = |name: &str| {
        let path = folder.join("diecut-data").join(name);
        std::fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777
    };
    let mut serve = std::process::Command::new("sh");
    serve.current_dir(folder).env_remove("DIECUT_SOCKET").env_remove("RUST_LOG").env("NO_COLOR", "1");
    serve.args([
        "-c",
        "umask 0; exec \"$0\" serve --listen 127.0.0.1:0 --setup setup.toml --data diecut-data",
    ]);
    serve.arg(served::BINARY);
    let server = Server::start_as(folder, serve);
    assert_eq!(mode(""), 0o700);
    for name in ["device.img", "control.sock", "blocks.sock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    server.stop();
    // Those of an earlier version.
    for (name, loose) in [("", 0o755), ("device.img", 0o644)] {
        let path = folder.join("diecut-data").join(name);
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(loose)).unwrap();
    }
    let server = Server::start(folder, &SERVE);
    assert_says(&server.said(), &["WARN", "mode 755", "chmod 700"]);
    assert_says(&server.said(), &["WARN", "mode 644", "chmod 600"]);
    server.stop();
}

#[test]
fn listening_for_others_is_said_with_what_it_means() {
    let folder = folder();
    let folder = folder.path();
    let mut serve = command(folder);
    serve.args(["serve", "--listen", "0.0.0.0:0"]).args(SERVE);
    let server = Server::start_as(folder, serve);
    assert_says(&server.said(), &["WARN", "listening on 0.0.0.0:", "any host", "no authentication"]);
    server.stop();
    let server = Server::start(folder, &SERVE);
    assert!(!server.said().contains("any host"), "{}", server.said());
    server.stop();
}

/// Writes to a volume through its subsystem.
fn write_some(folder: &Path, more: &[&str]) -> std::process::Output {
    let load = ["bench", "--nqn", NQN, "--rw", "write", "--bs", "64k", "--iodepth", "4"];
    let short = ["--number-ios", "16", "--ramp-time", "0", "--runtime", "20"];
    diecut(folder, &[&load[..], &short[..], more].concat())
}

/// It once went to 127.0.0.1:4420 whatever `--socket` said, and wrote over what it found.
#[test]
fn a_load_goes_to_the_server_that_is_named_and_writes_over_nothing_unasked() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    // Nothing is there yet, and the address comes from the control socket.
    let output = write_some(folder, &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8(write_some(folder, &[]).stderr).unwrap();
    assert_says(&said, &["volume \"disk\"", "1 MiB of data", "--overwrite"]);
    let written = |folder: &Path| status(folder)["volumes"][0]["writes"].as_u64().unwrap();
    assert_eq!(written(folder), 16);
    assert!(write_some(folder, &["--overwrite"]).status.success());
    assert_eq!(written(folder), 32);
    // The same server by its address; one that cannot be asked; and one that is another than that behind the socket.
    let said = String::from_utf8(write_some(folder, &[server.address()]).stderr).unwrap();
    assert_says(&said, &["volume \"disk\"", "--overwrite"]);
    let said =
        String::from_utf8(write_some(folder, &[server.address(), "--socket", "none.sock"]).stderr).unwrap();
    assert_says(&said, &["cannot be asked", "--overwrite"]);
    let said = String::from_utf8(write_some(folder, &["127.0.0.1:9"]).stderr).unwrap();
    assert_says(&said, &["127.0.0.1:9", "cannot be asked", "--overwrite"]);
    // Reads lose nothing.
    done(folder, &["bench", "--nqn", NQN, "--runtime", "0.05", "--ramp-time", "0"]);
    assert_eq!(written(folder), 32);
    server.stop();
}

#[test]
fn a_load_that_is_interrupted_prints_what_it_measured() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    let mut load = command(folder);
    load.args(["--json", "bench", "--nqn", NQN, "--ramp-time", "0", "--runtime", "3600"]);
    let load = load.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let reads = || status(folder)["volumes"][0]["reads"].as_u64().unwrap();
    wait::wait_until(|| format!("{} reads", reads()), || reads() >= 1000);
    let pid = load.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = load.wait_with_output().unwrap();
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (operations, rate) = (&report["read"]["operations"], &report["read"]["operations_per_second"]);
    assert!(operations.as_u64().unwrap() >= 1000, "{report}");
    // Over the time that it ran, not over an hour.
    assert!(rate.as_f64().unwrap() > 100.0, "{report}");
    server.stop();
}

/// `| head` once ended in a panic.
#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    let bench = ["bench", "--nqn", NQN, "--runtime", "0.05", "--ramp-time", "0"];
    for arguments in [
        &["status"][..],
        &["--json", "status"],
        &["vssd", "list"],
        &["wear"],
        &["repro", "list"],
        &["host", "list"],
        &bench,
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(folder).args(arguments).stdout(writer).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.is_empty() && !output.status.success(), "{arguments:?}: {said}");
    }
    server.stop();
}

#[test]
fn changes_say_what_they_did_and_destruction_asks() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    assert_eq!(done(folder, &["tenant", "create", "b"]), "created tenant \"b\"\n");
    assert_eq!(done(folder, &["tenant", "set", "b", "--weight", "300"]), "set tenant \"b\" (weight = 300)\n");
    assert_says(&done(folder, &["tenant", "list"]), &["b", "300"]);
    assert_eq!(status(folder)["tenants"][1]["weight"], 300);
    assert_says(&refused(folder, &["tenant", "set", "b", "--weight", "0"]), &["would starve", "1 to 1000"]);
    assert_says(
        &refused(folder, &["tenant", "create", "c", "--weight", "2000"]),
        &["weight of 2000", "1 to 1000"],
    );
    let json: Value =
        serde_json::from_str(&done(folder, &["--json", "tenant", "delete", "b", "--yes"])).unwrap();
    assert_eq!(
        (&json["done"], &json["kind"], &json["name"]),
        (&"deleted".into(), &"tenant".into(), &"b".into())
    );
    assert!(write_some(folder, &[]).status.success());
    for (arguments, words) in [
        (["subsystem", "delete", NQN], ["volumes stay", "--yes"]),
        (["volume", "delete", "disk"], ["1 MiB of data (of 1 MiB) is lost", "--yes"]),
        (["vssd", "delete", "flash"], ["erased", "--yes"]),
        (["tenant", "delete", "a"], ["Nothing was done", "--yes"]),
    ] {
        assert_says(&refused(folder, &arguments), &words);
    }
    let now = status(folder);
    assert_eq!(now["volumes"].as_array().unwrap().len() + now["subsystems"].as_array().unwrap().len(), 2);
    let hosts: Value = serde_json::from_str(&done(folder, &["--json", "host", "list"])).unwrap();
    assert_eq!(hosts[0]["host"], "nqn.2026-11.org.diecut:bench");
    assert_eq!(hosts[0]["subsystem"], NQN);
    server.stop();
}

/// One parser: `1G` was refused by `volume create` and 1 GiB for `bench`; `--capacity 32` took a channel for 32 bytes.
#[test]
fn sizes_mean_the_same_everywhere() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    done(folder, &["volume", "create", "more", "--vssd", "flash", "--size", "2M"]);
    assert_eq!(status(folder)["volumes"][1]["volume"]["size"], 2 << 20);
    let new = ["vssd", "create", "x", "--tenant", "a", "--isolation", "software"];
    let create = |more: &[&str]| refused(folder, &[&new[..], more].concat());
    assert_says(&create(&["--capacity", "32"]), &["vSSD \"x\"", "32 bytes", "write 32G"]);
    assert_says(
        &create(&["--capacity", "24M", "--rate-limit", "200"]),
        &["200 bytes a second", "write 200M"],
    );
    assert_says(&create(&["--capacity", "99999999999999999999"]), &["too large"]);
    assert_says(
        &create(&["--capacity", "24M", "--over-provisioning-permille", "4294967295"]),
        &["10000 or less"],
    );
    assert_eq!(status(folder)["vssds"].as_array().unwrap().len(), 1);
    server.stop();
}

#[test]
fn status_fits_a_terminal_and_tells_of_timing() {
    let folder = folder();
    let folder = folder.path();
    for (pacing, json, word) in [("false", false, "takes no time"), ("true", true, "as long as")] {
        let setup = SETUP.replace("[device]", &format!("[device]\npacing = {pacing}"));
        std::fs::write(folder.join("setup.toml"), setup).unwrap();
        let server = Server::start(folder, &SERVE);
        assert_says(&server.announced, &["timing", word]);
        let text = done(folder, &["status"]);
        assert_says(&text, &["timing", word]);
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= 120, "{widest} columns:\n{text}");
        assert_eq!(status(folder)["pacing"], json);
        server.stop();
    }
}

/// Started from another folder, a set-up means the same device; it once silently made a new one.
#[test]
fn a_set_up_means_the_same_wherever_a_server_is_started() {
    let folder = folder();
    let folder = folder.path();
    Server::start(folder, &["--setup", "setup.toml"]).stop();
    let elsewhere = folder.join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    let server = Server::start(&elsewhere, &["--setup", "../setup.toml"]);
    assert!(!server.said().contains("WARN") && !elsewhere.join("diecut-data").exists(), "{}", server.said());
    server.stop();
}

#[test]
fn built_in_profiles_for_tests_can_be_served() {
    for profile in ["tiny", "tiny-one-shot"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for _ in 0..2 {
            let server = Server::start(folder, &["--profile", profile]);
            done(folder, &["tenant", "create", "a"]);
            server.stop();
        }
    }
}
