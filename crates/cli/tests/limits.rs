//! Goal: no limit, no slow flash and no client keeps an operator from ending a server or asking it: a stop has a bound, a second Ctrl-C ends
//! at once, a request that waits says what it waits for, half a request holds nobody up, and there are descriptors for administrators
//! whatever hosts use. Method: the real binary, on flash that is very slow or behind a rate limit, under a host with many writes under way.
#![allow(
    clippy::disallowed_methods,
    reason = "drives real sockets and processes, and bounds of time are what is tested"
)]

use crate::{host, served};
use diecut_initiator::{Collect, Command, LbaSpan, Token};
use diecut_testing::wait::{wait_until, within};
use diecut_units::Buffer;
use host::Host;
use served::{BINARY, Server, command, diecut, done, write_profile};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command as Process;
use std::time::{Duration, Instant};

const NQN: &str = "nqn.2026-11.org.diecut:a";

/// A server's folder: `device` and `vssd` are more lines of these sections.
fn write_setup(folder: &Path, device: &str, vssd: &str) {
    write_profile(folder);
    let setup = format!(
        "[device]\nprofile = \"small.toml\"\n{device}\n[[tenant]]\nname = \"a\"\n\
         [[vssd]]\nname = \"flash\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"24M\"\n{vssd}\n\
         [[volume]]\nname = \"disk\"\nvssd = \"flash\"\nsize = \"8M\"\n\
         [[subsystem]]\nnqn = \"{NQN}\"\ntenant = \"a\"\nallow_any_host = true\n\
         namespaces = [{{ nsid = 1, volume = \"disk\" }}]\n"
    );
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
}

/// Flash without protected memory whose programs take a tenth of a second.
fn write_slow_setup(folder: &Path) {
    write_setup(folder, "pacing = true\nprotected_memory = \"0\"", "");
    let profile = std::fs::read_to_string(folder.join("small.toml")).unwrap();
    let slow = profile.replace("program_us = [850.0, 2300.0]", "program_us = [100000.0, 100000.0]");
    assert_ne!(slow, profile);
    std::fs::write(folder.join("small.toml"), slow).unwrap();
}

/// A host that keeps its queue full of writes until its connection ends; returns when the first ones are under way.
fn write_much(address: SocketAddr) {
    let mut host = Host::connect(address, "a").unwrap();
    let mut next = 0;
    let mut submit = move |host: &mut Host| {
        let span = LbaSpan { nsid: 1, first: next % 128 * 16, count: 16 };
        next += 1;
        let data = Buffer::copy_from(&[next as u8; 64 << 10]);
        host.queue.submit(Token(next), Command::Write { span, data, force_unit_access: false });
    };
    (0..31).for_each(|_| submit(&mut host));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        loop {
            let mut sink = Collect::default();
            if host.exchange(&mut sink).is_err() {
                return;
            }
            sink.completions.iter().for_each(|_| {
                submit(&mut host);
                _ = tell.send(());
            });
        }
    });
    told.recv().expect("a first write is answered, with others under way");
}

/// When a server has ended, and its code; it must within `bound`.
fn wait_for_end(server: &mut Server, bound: Duration) -> (Duration, i32) {
    let log = server.errors().to_owned();
    let said = || format!("it goes on: {}", std::fs::read_to_string(&log).unwrap());
    let (code, took) = within(bound, said, || server.ended());
    (took, code)
}

fn wait_for_log(server: &Server, words: &str) {
    wait_until(|| format!("{words} is missing in\n{}", server.log()), || server.log().contains(words));
}

/// A tenant with a deep queue behind a megabyte a second: that it waits is in the log, and the end of the server does not wait for it.
#[test]
fn a_stop_ignores_rate_limits() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_setup(folder, "protected_memory = \"64M\"", "rate_limit = \"1M\"\nsharing = \"strict\"");
    let mut server = Server::in_folder(folder, &[]);
    write_much(server.socket_address());
    wait_for_log(&server, "the vSSD has met its rate limit");
    server.interrupt();
    let (_, code) = wait_for_end(&mut server, Duration::from_secs(9));
    assert_eq!(code, 0, "{}", server.log());
    let told = server.log().matches("has met its rate limit").count();
    assert!(told <= 2, "{told} lines");
}

/// Flash so slow that what is under way takes longer than anybody waits.
#[test]
fn a_request_that_waits_says_for_what_and_a_stop_has_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_slow_setup(folder);
    let mut server = Server::in_folder(folder, &[]);
    write_much(server.socket_address());
    // Half a request: its sender is hung up on after a while, and holds nobody up.
    let mut half = UnixStream::connect(folder.join("control.sock")).unwrap();
    half.write_all(b"GET /v1/status HTTP/1.1\r\nHost: di").unwrap();
    let sent = Instant::now();
    let socket = folder.join("control.sock");
    let socket = socket.to_str().unwrap();
    done(folder, &["--socket", socket, "status"]);
    assert!(sent.elapsed() < Duration::from_secs(5), "status took {:?}", sent.elapsed());

    let asked = Instant::now();
    let output = diecut(folder, &["--socket", socket, "--timeout", "1", "subsystem", "delete", NQN, "--yes"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("waits for commands of hosts"), "{said}");
    let took = asked.elapsed();
    assert!(took >= Duration::from_secs(1) && took < Duration::from_secs(6), "answered after {took:?}");

    half.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut rest = Vec::new();
    half.read_to_end(&mut rest).expect("its sender is hung up on");
    assert!(sent.elapsed() < Duration::from_secs(15), "hung up on after {:?}", sent.elapsed());

    server.interrupt();
    let (took, code) = wait_for_end(&mut server, Duration::from_secs(16));
    assert_eq!(code, 0, "after {took:?}: {}", server.log());
}

#[test]
fn a_second_interrupt_ends_a_server_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_slow_setup(folder);
    let mut server = Server::in_folder(folder, &[]);
    write_much(server.socket_address());
    server.interrupt();
    wait_for_log(&server, "stopping");
    assert_eq!(server.ended(), None, "{}", server.log());
    server.interrupt();
    let (took, code) = wait_for_end(&mut server, Duration::from_secs(3));
    assert_eq!(code, 130, "after {took:?}: {}", server.log());
    assert!(server.log().contains("stopped at once"), "{}", server.log());
}

/// Connections of two addresses take all places that 64 descriptors allow; administrators still get in.
#[test]
fn administrators_have_descriptors_left() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write_setup(folder, "protected_memory = \"64M\"", "");
    let mut serve = Process::new("sh");
    serve.current_dir(folder).env_remove("RUST_LOG").env("NO_COLOR", "1");
    serve.args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\"", BINARY, "serve", "--listen", "127.0.0.1:0"]);
    serve.args(["--setup", "setup.toml", "--data", "."]);
    let server = Server::start_as(folder, serve);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let to = server.socket_address();
    let connections = runtime.block_on(async {
        let mut connections = Vec::new();
        for nth in 0..100 {
            let from: SocketAddr = format!("127.0.0.{}:0", 1 + nth % 2).parse().unwrap();
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(from).unwrap();
            connections.push(socket.connect(to).await.unwrap());
        }
        connections
    });
    wait_for_log(&server, "closed in favour of a new one");
    for _ in 0..3 {
        let mut ask = command(folder);
        let output = ask.args(["--socket", "control.sock", "status"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    drop(connections);
    server.stop();
}
