//! Goal: what somebody mistypes, forgets or restarts is refused, or said, by name and with what to do; nothing is taken for what
//! it is not, and no command panics or waits for ever. Method: the shipped binary as server over a small device, and as client.
//! Not timed.
#![allow(clippy::disallowed_methods, reason = "drives real processes")]

use crate::served;
use served::{NQN, SETUP, Server, assert_says, command, diecut, done, folder, refused, wait};
use std::path::Path;
use std::process::{Command, Stdio};

const SERVE: [&str; 4] = ["--setup", "setup.toml", "--data", "diecut-data"];
/// The name of every discovery subsystem (NVMe Base 2.0, section 4.5).
const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// What a start with this set-up says when it is refused.
fn start_refused(folder: &Path, setup: &str) -> String {
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    refused(folder, &[&["serve", "--listen", "127.0.0.1:0"], &SERVE[..]].concat())
}

/// Two namespaces of one volume would be two disks of a host with one content.
#[test]
fn a_volume_is_one_namespace_of_a_subsystem() {
    let folder = folder();
    let folder = folder.path();
    let twice =
        SETUP.replace("volume = \"disk\" }]", "volume = \"disk\" }, { nsid = 2, volume = \"disk\" }]");
    let words = [NQN, "volume \"disk\"", "namespaces 1 and 2"];
    assert_says(&start_refused(folder, &twice), &words);
    assert!(!folder.join("diecut-data").exists());
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    let server = Server::start(folder, &SERVE);
    assert_says(&refused(folder, &["subsystem", "attach", NQN, "--nsid", "2", "--volume", "disk"]), &words);
    done(folder, &["volume", "create", "more", "--vssd", "flash", "--size", "1M"]);
    let create = ["subsystem", "create", "nqn.2026-11.org.diecut:b", "--tenant", "a"];
    let namespaces = ["--namespace", "1=more", "--namespace", "7=more"];
    let said = refused(folder, &[&create[..], &namespaces].concat());
    assert_says(&said, &["nqn.2026-11.org.diecut:b", "volume \"more\"", "namespaces 1 and 7"]);
    // The same again is no change.
    done(folder, &["subsystem", "attach", NQN, "--nsid", "1", "--volume", "disk"]);
    server.stop();
}

/// Hosts that connect to this name mean discovery: they never reach a subsystem that has it.
#[test]
fn no_subsystem_has_the_name_of_discovery() {
    let folder = folder();
    let folder = folder.path();
    let words = [DISCOVERY, "discovery", "another name"];
    assert_says(
        &start_refused(
            folder,
            &SETUP.replace(&format!("nqn = \"{NQN}\""), &format!("nqn = \"{DISCOVERY}\"")),
        ),
        &words,
    );
    assert_says(&refused(folder, &["serve", "--listen", "127.0.0.1:0", "--null", DISCOVERY]), &words);
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    let server = Server::start(folder, &SERVE);
    assert_says(&refused(folder, &["subsystem", "create", DISCOVERY, "--tenant", "a"]), &words);
    server.stop();
}

/// A user that may attach to erase blocks was dropped in silence, and each later start warned of it.
#[test]
fn a_uid_is_for_erase_blocks() {
    let folder = folder();
    let folder = folder.path();
    let words = ["vSSD \"flash\"", "uid", "use = \"blocks\""];
    assert_says(
        &start_refused(folder, &SETUP.replace("capacity = \"24M\"", "capacity = \"24M\"\nuid = 1000")),
        &words,
    );
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    let server = Server::start(folder, &SERVE);
    let create = ["vssd", "create", "x", "--tenant", "a", "--isolation", "channel", "--capacity", "24M"];
    assert_says(
        &refused(folder, &[&create[..], &["--uid", "1000"]].concat()),
        &["vSSD \"x\"", "--use blocks"],
    );
    done(folder, &[&create[..], &["--use", "blocks", "--uid", "1000"]].concat());
    server.stop();
}

#[test]
fn two_sockets_need_two_paths() {
    let folder = folder();
    let folder = folder.path();
    let setup = format!("[server]\nblocks_socket = \"diecut-data/./control.sock\"\n{SETUP}");
    assert_says(&start_refused(folder, &setup), &["server.socket", "server.blocks_socket", "control.sock"]);
    assert!(!folder.join("diecut-data").exists());
}

/// Output that cannot be written is an error with a word on why; it was a panic.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    for arguments in [
        &["status"][..],
        &["--json", "status"],
        &["status", "--live"],
        &["volume", "list"],
        &["volume", "show", "disk"],
        &["wear"],
        &["bench", "--nqn", NQN, "--runtime", "0.05", "--ramp-time", "0"],
        &["repro", "list"],
        &["repro", "run", "swap-period", "--quick"],
        &["sim", "--seed", "1", "--ops", "3"],
        &["sim", "--seed", "1", "--ops", "3", "--json"],
        &["sim", "--seed", "1", "--print-plan"],
        &["sim", "--seeds", "0..2", "--ops", "3"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = command(folder).args(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("the output cannot be written"), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{arguments:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
    }
    server.stop();
}

#[test]
fn a_simulation_says_what_it_runs_and_takes_no_option_in_vain() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let output = diecut(folder, &["sim", "--system", "model", "--ops", "3"]);
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_says(&said, &["seeds 0..50", "system model", "--seed", "--seeds"]);
    // A plan of a file is cut short as one of a seed is.
    let plan = done(folder, &["sim", "--seed", "7", "--print-plan"]);
    std::fs::write(folder.join("plan.json"), plan).unwrap();
    let output = diecut(folder, &["sim", "--plan", "plan.json", "--ops", "5"]);
    assert_says(&String::from_utf8(output.stderr).unwrap(), &["seed 7: 5 steps"]);
    for vain in ["--door", "--exchanges", "--plain", "--no-protected-memory"] {
        assert_says(&refused(folder, &["sim", "--plan", "plan.json", vain]), &["cannot be used with", vain]);
    }
}

#[test]
fn experiments_that_are_not_known_stop_all_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for names in [["all", "nosuch"], ["nosuch", "all"], ["swap-period", "nosuch"]] {
        let said = refused(folder, &[&["repro", "run", "--quick"], &names[..]].concat());
        assert_says(&said, &["nosuch"]);
        assert!(!said.contains("seed") && !folder.join("diecut-repro").exists(), "{said}");
    }
}

/// With a volatile cache what is acknowledged is durable after a flush only, which the lines on durability did not say.
#[test]
fn durability_is_told_with_the_volatile_cache() {
    let folder = folder();
    let folder = folder.path();
    for durability in ["process", "machine"] {
        let setup = SETUP.replace(
            "protected_memory = \"64M\"",
            &format!(
                "{}durability = \"{durability}\"\nvolatile_cache = true",
                if durability == "process" { "protected_memory = \"0\"\n" } else { "" }
            ),
        );
        std::fs::write(folder.join("setup.toml"), setup).unwrap();
        let server = Server::start(folder, &["--setup", "setup.toml", "--data", durability]);
        let words = ["durability", durability, "flush", "volatile cache"];
        assert_says(&server.announced, &words);
        let socket = format!("{durability}/control.sock");
        assert_says(&done(folder, &["--socket", &socket, "status"]), &words);
        let json = done(folder, &["--socket", &socket, "--json", "status"]);
        assert!(json.contains("\"volatile_cache\": true"), "{json}");
        server.stop();
    }
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    let server = Server::start(folder, &SERVE);
    assert!(!server.announced.contains("volatile"), "{}", server.announced);
    server.stop();
}

/// An image that went away was replaced with an empty one: hosts found their volumes, without their data.
#[test]
fn an_image_that_is_gone_is_missed() {
    let folder = folder();
    let folder = folder.path();
    let (image, away) = (folder.join("diecut-data/device.img"), folder.join("away.img"));
    let serve = [&["serve", "--listen", "127.0.0.1:0"], &SERVE[..]].concat();
    Server::start(folder, &SERVE).stop();
    std::fs::rename(&image, &away).unwrap();
    let marker = folder.join("diecut-data/device.made");
    let words = ["device.img", "is not there", "Put it back", "device.made"];
    assert_says(&refused(folder, &serve), &words);
    assert!(!image.exists());
    std::fs::rename(&away, &image).unwrap();
    // A folder of a version that left no mark is marked when its device is served.
    std::fs::remove_file(&marker).unwrap();
    Server::start(folder, &SERVE).stop();
    std::fs::rename(&image, &away).unwrap();
    assert_says(&refused(folder, &serve), &words);
    // Another device instead: the same emptiness.
    std::fs::rename(&away, &image).unwrap();
    let memory = SETUP.replace("[device]", "[device]\nbacking = \"memory\"");
    let said = start_refused(folder, &memory);
    assert_says(&said, &["device.backing = \"memory\"", "device.img", "\"file\"", "--data"]);
    std::fs::remove_file(&image).unwrap();
    assert_says(&start_refused(folder, &memory), &["device.backing = \"memory\"", "device.img"]);
    // What is said to be new is new.
    std::fs::remove_file(&marker).unwrap();
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    let server = Server::start(folder, &SERVE);
    assert_says(&server.said(), &["a new device is made in"]);
    server.stop();
    assert!(marker.exists());
}

/// A first start that fails leaves no mark of a device that there never was.
#[test]
fn a_device_that_was_never_served_is_not_missed() {
    let folder = folder();
    let folder = folder.path();
    std::fs::create_dir(folder.join("diecut-data")).unwrap();
    start_refused(folder, &SETUP.replace("24M", "900T"));
    assert_eq!(std::fs::read_dir(folder.join("diecut-data")).unwrap().count(), 0);
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    Server::start(folder, &SERVE).stop();
}

/// Each field that makes a device is compared with what the image was made with.
#[test]
fn each_field_of_a_device_that_differs_is_named_with_both_values() {
    let folder = folder();
    let folder = folder.path();
    Server::start(folder, &SERVE).stop();
    let setup = SETUP.replace("[device]", "[device]\nseed = 42").replace("\"64M\"", "\"65M\"");
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    let profile = std::fs::read_to_string(folder.join("small.toml")).unwrap();
    let other = profile.replace("channels = 4\n", "channels = 8\n");
    assert_ne!(other, profile);
    std::fs::write(folder.join("small.toml"), other).unwrap();
    let server = Server::start(folder, &SERVE);
    let said = server.said();
    assert_says(&said, &["seed is 1,", "the set-up says 42"]);
    assert_says(&said, &["protected_memory is 64 MiB", "the set-up says 65 MiB"]);
    assert_says(&said, &["profile's geometry.channels is 4", "the set-up says 8"]);
    assert_eq!(said.matches("WARN").count(), 3, "{said}");
    server.stop();
    // One profile by its name, which says nothing of the memory.
    let slc = SETUP.replace("small.toml", "slc").replace("protected_memory = \"64M\"\n", "");
    std::fs::write(folder.join("setup.toml"), slc).unwrap();
    let server = Server::start(folder, &SERVE);
    let said = server.said();
    assert_says(&said, &["profile is tiny", "the set-up says slc"]);
    assert_eq!(said.matches("WARN").count(), 1, "{said}");
    server.stop();
}

/// Volumes may promise more than there is; whoever looks is told how much.
#[test]
fn status_says_what_volumes_promise_beside_what_there_is() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    done(folder, &["volume", "create", "more", "--vssd", "flash", "--size", "1G"]);
    let status: serde_json::Value = serde_json::from_str(&done(folder, &["--json", "status"])).unwrap();
    assert_eq!(status["vssds"][0]["provisioned"], (1 << 30) + (1 << 20));
    let text = done(folder, &["status"]);
    assert_says(&text, &["vSSD flash", "1.0 GiB", "provisioned", "when that is full, writes fail"]);
    server.stop();
}

#[test]
fn what_changed_nothing_says_so_and_advice_fits() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    for (arguments, name) in [
        (&["tenant", "create", "a"][..], "tenant \"a\""),
        (
            &["vssd", "create", "flash", "--tenant", "a", "--isolation", "channel", "--capacity", "24M"],
            "vSSD \"flash\"",
        ),
        (&["volume", "create", "disk", "--vssd", "flash", "--size", "1M"], "volume \"disk\""),
        (&["subsystem", "attach", NQN, "--nsid", "1", "--volume", "disk"], NQN),
        (
            &["host", "allow", "nqn.2026-11.org.diecut:bench", "--subsystem", NQN],
            "nqn.2026-11.org.diecut:bench",
        ),
    ] {
        let text = done(folder, arguments);
        assert_says(&text, &[name, "exists already, unchanged"]);
        assert!(!text.contains("created"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&done(folder, &[&["--json"], arguments].concat())).unwrap();
        assert_eq!(json["done"], "unchanged", "{json}");
    }
    assert_eq!(done(folder, &["tenant", "create", "b"]), "created tenant \"b\"\n");
    // Nobody creates what is to be deleted.
    for kind in ["tenant", "vssd", "volume", "subsystem"] {
        let said = refused(folder, &[kind, "delete", "nosuch", "--yes"]);
        assert!(said.contains("there is no") && said.contains(&format!("`diecut {kind} list`")), "{said}");
        assert!(!said.contains("create"), "{said}");
    }
    let said = refused(folder, &["volume", "create", "x", "--vssd", "nosuch", "--size", "1M"]);
    assert_says(&said, &["vSSD \"nosuch\"", "create it first"]);
    // Nor is anybody asked about it.
    for (kind, shown) in
        [("tenant", "tenant"), ("vssd", "vSSD"), ("volume", "volume"), ("subsystem", "subsystem")]
    {
        let said = refused(folder, &[kind, "delete", "nosuch"]);
        assert_says(&said, &[&format!("there is no {shown} \"nosuch\""), &format!("`diecut {kind} list`")]);
        assert!(!said.contains("would"), "{said}");
    }
    assert_says(&refused(folder, &["tenant", "delete", "b"]), &["this would delete tenant \"b\"", "--yes"]);
    let said = refused(folder, &["vssd", "repair", "nosuch", "--accept-loss"]);
    assert_says(&said, &["there is no vSSD \"nosuch\""]);
    // Sizes that are near.
    let said = refused(folder, &["volume", "create", "x", "--vssd", "flash", "--size", "10000"]);
    assert_says(&said, &["10000 bytes", "8192 bytes (8 KiB)", "12288 bytes (12 KiB)"]);
    let said = refused(folder, &["volume", "create", "x", "--vssd", "flash", "--size", "900T"]);
    assert_says(&said, &["volume \"x\"", "at most", "are left"]);
    server.stop();
}

#[test]
fn options_are_listed_and_taken_where_they_do_something() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (command, options) in [
        (&["serve"][..], &["--timeout"][..]),
        (&["sim"], &["--timeout", "--socket"]),
        (&["demo", "noisy-neighbour"], &["--timeout", "--socket"]),
        (&["repro", "run"], &["--timeout", "--socket"]),
    ] {
        let help = done(folder, &[command, &["--help"]].concat());
        for option in options {
            assert!(!help.contains(option), "{command:?}: {help}");
            let said = refused(
                folder,
                &[&[option, "7"], command, &["all"][..usize::from(command[0] == "repro")]].concat(),
            );
            assert_says(&said, &[option, command[0]]);
        }
    }
    assert!(done(folder, &["status", "--help"]).contains("--timeout"));
    let help = done(folder, &["serve", "--help"]);
    assert_says(&help, &["--socket"]);
    assert!(help.contains("control.sock in the data folder"), "{help}");
    assert_says(&refused(folder, &["status", "--live", "0"]), &["--live", "0"]);
}

/// What is no number is refused with what is expected; it was "invalid digit found in string".
#[test]
fn what_is_no_number_is_refused_with_what_is_expected() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let vssd =
        ["vssd", "create", "x", "--tenant", "a", "--isolation", "die", "--capacity", "1G", "--use", "blocks"];
    for uid in ["root", "-1", "4294967296"] {
        let said = refused(folder, &[&vssd[..], &["--uid", uid]].concat());
        assert_says(
            &said,
            &[&format!("'{uid}'"), "--uid", "the number of a user is expected", "`id -u NAME`"],
        );
    }
    for (arguments, words) in [
        (&["serve", "--shards", "x"][..], ["'x'", "--shards <N>", "a whole number is expected"]),
        (&["serve", "--shards", ""], ["''", "--shards <N>", "a whole number is expected"]),
        (&["serve", "--shards", "1.5"], ["'1.5'", "--shards <N>", "a whole number is expected"]),
        (&["serve", "--shards", "70000"], ["'70000'", "--shards <N>", "65535"]),
        (&["status", "--live", "often"], ["'often'", "--live", "a whole number is expected"]),
        (&["tenant", "move", "a", "--shard", "b"], ["'b'", "--shard <SHARD>", "a whole number is expected"]),
        (&["bench", "--nqn", NQN, "--runtime", "long"], ["'long'", "--runtime", "a number is expected"]),
        (
            &["--timeout", "99999999999999999999", "status"],
            ["'99999999999999999999'", "--timeout", "too large"],
        ),
    ] {
        let said = refused(folder, arguments);
        assert_says(&said, &words);
        assert!(!said.contains("invalid digit") && said.contains("--help"), "{said}");
    }
    let said = refused(folder, &["--json", "tenant", "set", "a", "--weight", "much"]);
    let problem: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(problem.to_string().contains("a whole number is expected"), "{said}");
}

/// A server on which nothing exists showed how to connect to nothing.
#[test]
fn a_server_without_a_subsystem_says_what_comes_next() {
    let folder = folder();
    let folder = folder.path();
    let (device, _) = SETUP.split_once("[[tenant]]").unwrap();
    for profile in ["small.toml", "tiny", "tlc"] {
        let data = profile.trim_end_matches(".toml");
        std::fs::write(folder.join("setup.toml"), device.replace("small.toml", profile)).unwrap();
        let serve = ["--setup", "setup.toml", "--data", data];
        let server = Server::start(folder, &serve);
        assert_says(&server.announced, &["Hosts find nothing yet"]);
        assert_says(&server.announced, &["serve --setup FILE", "docs/setup.md"]);
        let line = |text: &str| text.lines().find(|line| line.contains("nvme connect")).map(str::to_owned);
        let connect = line(&server.announced).unwrap();
        // The commands as they stand there.
        let steps = server.announced.lines().filter_map(|line| line.strip_prefix("    diecut "));
        let steps: Vec<&str> = steps.filter(|step| step.contains(" create ")).collect();
        assert_eq!(steps.len(), 4, "{}", server.announced);
        for step in steps {
            let words: Vec<String> = step.split('"').enumerate().fold(Vec::new(), |mut words, (at, part)| {
                match at % 2 {
                    1 => words.push(part.to_owned()),
                    _ => words.extend(part.split_whitespace().map(str::to_owned)),
                }
                words
            });
            done(folder, &words.iter().map(String::as_str).collect::<Vec<_>>());
        }
        server.stop();
        // Started again, it leads there; the port is another one.
        let server = Server::start(folder, &serve);
        let nqn = connect.split("--nqn=").nth(1).unwrap();
        assert!(line(&server.announced).unwrap().ends_with(&format!("--nqn={nqn}")), "{}", server.announced);
        assert!(!server.announced.contains("Hosts find nothing"), "{}", server.announced);
        let socket = format!("{data}/control.sock");
        done(folder, &["--socket", &socket, "subsystem", "delete", nqn, "--yes"]);
        server.stop();
        // Who has a tenant is not told to make one.
        let server = Server::start(folder, &serve);
        assert_says(&server.announced, &["subsystem create --help"]);
        assert!(line(&server.announced).is_none() && !server.announced.contains("tenant create"));
        server.stop();
    }
}

/// A terminal that is closed stops the server as Ctrl-C does.
#[test]
fn a_hangup_stops_a_server_and_leaves_one_alone_that_ignores_it() {
    let folder = folder();
    let folder = folder.path();
    let serve = |starter: &str, how: &[&str]| {
        let mut serve = Command::new(starter);
        serve.current_dir(folder).env_remove("DIECUT_SOCKET").env_remove("RUST_LOG").env("NO_COLOR", "1");
        serve.stdin(Stdio::null()).args(how);
        serve.args([served::BINARY, "serve", "--listen", "127.0.0.1:0"]).args(SERVE);
        Server::start_as(folder, serve)
    };
    // Whoever runs the tests may ignore it, too.
    let mut server = serve("env", &["--default-signal=HUP"]);
    hang_up(server.pid());
    let code = diecut_testing::wait::wait_for(|| "the server goes on", || server.ended());
    assert_eq!(code, 0, "{}", server.log());
    assert_says(&server.log(), &["stopped_ms"]);
    assert!(!folder.join("diecut-data/control.sock").exists());
    let mut server = serve("nohup", &[]);
    hang_up(server.pid());
    done(folder, &["status"]);
    assert_eq!(server.ended(), None);
    server.stop();
}

fn hang_up(pid: u32) {
    assert!(Command::new("kill").args(["-HUP", &pid.to_string()]).status().unwrap().success());
}

/// A server that does not go on is told from one that is not there; its clients once waited for ever.
#[test]
fn a_server_that_does_not_answer_is_named() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    let signal = |name: &str| {
        let pid = server.pid().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    for arguments in [&["status"][..], &["tenant", "create", "b"], &["tenant", "list"]] {
        let mut client = command(folder);
        client.args(["--timeout", "1"]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = client.spawn().unwrap();
        assert!(!wait(&mut client), "{arguments:?}");
        let said = String::from_utf8(client.wait_with_output().unwrap().stderr).unwrap();
        let pid = format!("process {}", server.pid());
        assert_says(&said, &["diecut-data/control.sock", &pid, "does not answer", "--timeout"]);
    }
    signal("-CONT");
    done(folder, &["status"]);
    server.stop();
}

/// Names that are options or folders to other programs are no names of new things; and what a name holds ends no line of the log.
#[test]
fn names_do_not_begin_as_options_or_folders_do_and_forge_no_lines() {
    let folder = folder();
    let folder = folder.path();
    let server = Server::start(folder, &SERVE);
    for name in [".", "..", ".hidden", "-x"] {
        let words = [&format!("name \"{name}\"")[..], "begin it with a letter, a digit or \"_\""];
        assert_says(&refused(folder, &["tenant", "create", "--", name]), &words);
        let vssd =
            ["vssd", "create", "--tenant", "a", "--isolation", "software", "--capacity", "1M", "--", name];
        assert_says(&refused(folder, &vssd), &words);
        assert_says(
            &refused(folder, &["volume", "create", "--vssd", "flash", "--size", "1M", "--", name]),
            &words,
        );
    }
    let forged = "a\n2026-11-23T00:00:00Z  INFO forged \u{202e}\u{1b}[2J";
    assert_says(
        &refused(folder, &["tenant", "create", forged]),
        &["use 1 to 64 letters", "\\u{a}", "\\u{202e}"],
    );
    let long = "x".repeat(100_000);
    let said = refused(folder, &["tenant", "create", &long]);
    assert!(said.len() < 1000, "{} bytes are said", said.len());
    server.stop();
    let log = std::fs::read_to_string(folder.join("server.stderr")).unwrap();
    assert!(log.contains("\\u{a}2026-11-23"), "{log}");
    assert!(log.lines().all(|line| line.len() < 2000 && !line.contains(['\u{202e}', '\u{1b}'])), "{log}");
    assert!(!log.lines().any(|line| line.starts_with("2026-11-23T00:00:00Z")), "{log}");
}

/// A number below zero is a value that is refused, with what to write, and no option that nobody knows.
#[test]
fn numbers_below_zero_are_refused_as_values() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for arguments in [
        &["volume", "create", "x", "--vssd", "flash", "--size", "-1"][..],
        &["vssd", "create", "x", "--tenant", "a", "--isolation", "die", "--capacity", "-1"],
        &["tenant", "move", "a", "--shard", "-1"],
        &["serve", "--shards", "-1"],
    ] {
        let said = refused(folder, arguments);
        assert_says(&said, &["invalid value '-1'", arguments[arguments.len() - 2]]);
    }
}

/// Programs that ask for JSON get it, also where the command line itself is wrong.
#[test]
fn a_wrong_command_line_is_json_where_json_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, word) in [
        (&["--json", "tenant", "create"][..], "<NAME>"),
        (&["volume", "create", "x", "--vssd", "flash", "--size", "1e9", "--json"], "1e9"),
        (&["statsu", "--json"], "statsu"),
        (&["repro", "list", "--json", "--timeout", "3"], "--timeout"),
    ] {
        let output = command(folder.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        let problem: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(problem["kind"], "invalid", "{problem}");
        assert_says(problem["message"].as_str().unwrap(), &[word]);
    }
    // What asks for help is no mistake.
    let help = command(folder.path()).args(["tenant", "--help", "--json"]).output().unwrap();
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("Usage"));
}

/// A refused start names its object once, and advice fits what is wrong with an address.
#[test]
fn a_refused_start_names_things_once_and_advises_what_helps() {
    let folder = folder();
    let folder = folder.path();
    let said = start_refused(folder, &SETUP.replace("nsid = 1", "nsid = 0"));
    assert_eq!(said.matches(&format!("subsystem {NQN}: ")).count(), 1, "{said}");
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    // An address for documentation (RFC 5737), which no machine has.
    let said = refused(folder, &[&["serve", "--listen", "192.0.2.77:4420"], &SERVE[..]].concat());
    assert_says(&said, &["192.0.2.77:4420", "does not have the address"]);
    assert!(!said.contains("another server"), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = refused(folder, &[&["serve", "--listen", &address], &SERVE[..]].concat());
    assert_says(&said, &[&address, "is another server running there?"]);
    let said =
        refused(folder, &["serve", "--listen", "127.0.0.1:0", "--setup", "setup.toml", "--shards", "0"]);
    assert_says(&said, &["server.shards = 0", "each channel"]);
}

/// Goal: `diecut apply FILE` brings what a file declares to the server of that file, and not to another one that happens to run in the
/// usual folder. Method: two servers; the set-up of the second gets one more volume. The server that misses it names its socket.
#[test]
fn apply_asks_the_server_of_its_file() {
    let folder = folder();
    let folder = folder.path();
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    // Each logs to a file of its own.
    std::fs::create_dir(folder.join("usual")).unwrap();
    let in_folder = ["--setup", "../setup.toml", "--data", "../diecut-data"];
    let usual = Server::start(&folder.join("usual"), &in_folder);
    std::fs::create_dir(folder.join("other")).unwrap();
    std::fs::copy(folder.join("small.toml"), folder.join("other/small.toml")).unwrap();
    let file = folder.join("other/setup.toml");
    std::fs::write(&file, SETUP).unwrap();
    let serve = ["--setup", "other/setup.toml"];
    Server::start(folder, &serve).stop();
    let more = "[[volume]]\nname = \"more\"\nvssd = \"flash\"\nsize = \"1 MiB\"\n";
    std::fs::write(&file, format!("{SETUP}\n{more}")).unwrap();
    let other = Server::start(folder, &serve);
    let socket = "other/diecut-data/control.sock";
    let remedy =
        format!("volume \"more\" does not exist, the set-up declares it; `diecut --socket {socket} apply");
    assert_says(&other.said(), &[&remedy]);
    assert_says(&done(folder, &["apply", "other/setup.toml"]), &["created volume \"more\""]);
    assert_says(&done(folder, &["--socket", socket, "volume", "list"]), &["more"]);
    assert!(!done(folder, &["volume", "list"]).contains("more"), "the other server has nothing new");
    // Whoever names a server means it.
    let said = done(folder, &["--socket", "diecut-data/control.sock", "apply", "other/setup.toml"]);
    assert_says(&said, &["created volume \"more\""]);
    other.stop();
    usual.stop();
}

/// A field that differs is named where an object exists with another definition, and one table of several is written with two brackets.
#[test]
fn what_differs_and_what_is_mistyped_is_named() {
    let folder = folder();
    let folder = folder.path();
    let one_bracket = SETUP.replacen("[[tenant]]", "[tenant]", 1);
    assert_says(&start_refused(folder, &one_bracket), &["two brackets on each side, as in [[tenant]]"]);
    std::fs::write(folder.join("setup.toml"), SETUP).unwrap();
    let server = Server::start(folder, &SERVE);
    let said = refused(folder, &["volume", "create", "disk", "--vssd", "flsh", "--size", "2M"]);
    assert_says(
        &said,
        &[
            "volume \"disk\" exists with another definition",
            "vssd is flash, not flsh, size is 1 MiB, not 2 MiB",
        ],
    );
    assert!(!said.contains("uuid"), "nobody asked for one: {said}");
    let create = ["subsystem", "create", NQN, "--tenant", "b", "--allow-any-host"];
    assert_says(&refused(folder, &create), &["tenant is a, not b", "namespaces is 1=disk, not none"]);
    let vssd = ["vssd", "create", "flash", "--tenant", "a", "--isolation", "die", "--capacity", "1M"];
    let said = refused(folder, &[&vssd[..], &["--over-provisioning-permille", "0"]].concat());
    assert_says(&said, &["over-provisioning 0", "use 1 to 10000 permille"]);
    assert_says(
        &refused(folder, &vssd),
        &["vSSD \"flash\" exists with another definition: ", "capacity is "],
    );
    server.stop();
}
