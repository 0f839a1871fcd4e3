//! Goal: an administrator makes one path to a subsystem worse while it is served, hosts on it are refused so that they try another one, and his word
//! stands after the server died. Method: the real binary, reached at two addresses of the machine.
#![allow(clippy::disallowed_methods, reason = "drives real sockets and processes")]

use crate::{host, served};
use diecut_initiator::{Collect, Token};
use diecut_nvme::io::LbaRange;
use diecut_nvme::{Status, SubmissionEntry, opcode};
use diecut_testing::wait;
use host::Host;
use served::{NQN, Server, command, done, refused, write_profile};
use std::net::SocketAddr;
use std::path::Path;

fn serve(folder: &Path, listen: &str) -> Server {
    let mut serve = command(folder);
    serve.args(["serve", "--listen", listen, "--setup", "setup.toml"]);
    Server::start_as(folder, serve)
}

fn connect(address: SocketAddr) -> Host {
    wait::wait_for(|| format!("not let in at {address}"), || Host::connect(address, "a").ok())
}

fn read(host: &mut Host) -> Status {
    let mut entry = SubmissionEntry { opcode: opcode::io::READ, nsid: 1.into(), ..Default::default() };
    LbaRange::plain(0, 1).encode(&mut entry);
    host.queue.submit_entry(Token(1), entry, None, 4096);
    let mut sink = Collect::default();
    while sink.completions.is_empty() {
        host.exchange(&mut sink).unwrap();
    }
    sink.completions[0].status
}

#[test]
fn a_path_is_as_good_as_the_administrator_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_profile(folder);
    let setup = "[device]\nprofile = \"small.toml\"\nprotected_memory = \"64 MiB\"\n\
         [[tenant]]\nname = \"a\"\n\
         [[vssd]]\nname = \"flash\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"24 MiB\"\n\
         [[volume]]\nname = \"disk\"\nvssd = \"flash\"\nsize = \"1 MiB\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:a\"\ntenant = \"a\"\nallow_any_host = true\n\
         namespaces = [{ nsid = 1, volume = \"disk\" }]\n";
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    let server = serve(folder, "0.0.0.0:0");
    let port = server.socket_address().port();
    let [one, two] = ["127.0.0.1", "127.0.0.2"].map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
    let (mut over_one, mut over_two) = (connect(one), connect(two));
    assert_eq!([read(&mut over_one), read(&mut over_two)], [Status::SUCCESS; 2]);

    let address = two.to_string();
    let set =
        |state: &str| done(folder, &["subsystem", "path", NQN, "--address", &address, "--state", state]);
    assert!(set("inaccessible").contains("is inaccessible"));
    assert_eq!(read(&mut over_two), Status::ASYMMETRIC_ACCESS_INACCESSIBLE);
    assert_eq!(read(&mut over_one), Status::SUCCESS);
    let shown = done(folder, &["subsystem", "show", NQN]);
    assert!(shown.contains(&format!("{address} inaccessible")), "{shown}");
    let error = refused(folder, &["subsystem", "path", NQN, "--address", "0.0.0.0:1", "--state", "change"]);
    assert!(error.contains("no host connects to this address"), "{error}");
    let missing =
        refused(folder, &["subsystem", "path", "nqn.x:b", "--address", &address, "--state", "change"]);
    assert!(missing.contains("there is no subsystem \"nqn.x:b\""), "{missing}");

    server.kill();
    let server = serve(folder, &format!("0.0.0.0:{port}"));
    let said = server.said();
    assert!(
        said.contains("paths is") && said.contains("--state optimized"),
        "the set-up says otherwise: {said}"
    );
    let (mut over_one, mut over_two) = (connect(one), connect(two));
    assert_eq!(read(&mut over_two), Status::ASYMMETRIC_ACCESS_INACCESSIBLE);
    assert_eq!(read(&mut over_one), Status::SUCCESS);
    set("optimized");
    assert_eq!([read(&mut over_one), read(&mut over_two)], [Status::SUCCESS; 2]);
    server.stop();
}
