//! Goal: whoever only holds a place keeps nobody out who wants to work: not hosts, not administrators, however few descriptors there
//! are, and the log stays short. Method: the real binary with few descriptors, under clients that open as many connections as they can,
//! say nothing, and come again whenever they are hung up on.
#![allow(
    clippy::disallowed_methods,
    reason = "drives real sockets and processes, and bounds of time are what is tested"
)]

use crate::{host, served};
use diecut_testing::wait;
use host::Host;
use served::{BINARY, Server, command, write_profile};
use std::io::Read;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// New hosts connect, and `status` answers, within this on a busy machine. Before anybody made room they waited for ten seconds.
const SOON: Duration = Duration::from_secs(4);
/// Lines that a cause may have in ten seconds, with the one that counts the others.
const LINES_IN_TEN_SECONDS: usize = 11;

/// A server of one tenant that may have so many descriptors.
fn start(folder: &Path, descriptors: usize) -> Server {
    write_profile(folder);
    let setup = "[device]\nprofile = \"small.toml\"\nprotected_memory = \"64M\"\n[[tenant]]\nname = \"a\"\n\
         [[vssd]]\nname = \"flash\"\ntenant = \"a\"\nisolation = \"channel\"\ncapacity = \"24M\"\n\
         [[volume]]\nname = \"disk\"\nvssd = \"flash\"\nsize = \"8M\"\n\
         [[subsystem]]\nnqn = \"nqn.2026-11.org.diecut:a\"\ntenant = \"a\"\nallow_any_host = true\n\
         namespaces = [{ nsid = 1, volume = \"disk\" }]\n";
    std::fs::write(folder.join("setup.toml"), setup).unwrap();
    let mut serve = Process::new("sh");
    serve.current_dir(folder).env_remove("RUST_LOG").env("NO_COLOR", "1");
    let limited = format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"");
    serve.args(["-c", &limited, BINARY, "serve", "--listen", "127.0.0.1:0"]);
    serve.args(["--setup", "setup.toml", "--data", "."]);
    Server::start_as(folder, serve)
}

/// Connections that say nothing, until it is dropped.
struct Silence {
    is_over: Arc<AtomicBool>,
    renewed: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Silence {
    /// `open` makes the connection of a number, which does not block; `count` of them are open as long as nobody closes them.
    fn start<S: Read + Send + 'static>(
        count: usize,
        open: impl Fn(usize) -> std::io::Result<S> + Send + 'static,
    ) -> Silence {
        let (is_over, renewed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (over, again) = (Arc::clone(&is_over), Arc::clone(&renewed));
        let thread = std::thread::spawn(move || {
            let mut all: Vec<Option<S>> = (0..count).map(|number| open(number).ok()).collect();
            while !over.load(Ordering::Relaxed) {
                for (number, one) in all.iter_mut().enumerate() {
                    let waits = one.as_mut().is_some_and(|stream| {
                        let read = stream.read(&mut [0; 64]);
                        read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
                    });
                    if !waits {
                        *one = open(number).ok();
                        again.fetch_add(1, Ordering::Relaxed);
                    }
                }
                wait::look_again_later();
            }
        });
        Silence { is_over, renewed, thread: Some(thread) }
    }

    fn renewed(&self) -> u64 {
        self.renewed.load(Ordering::Relaxed)
    }

    fn wait_for_renewal(&self) {
        wait::wait_until(|| "nobody was hung up on", || self.renewed() > 0);
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().expect("taken once").join();
    }
}

/// Silent connections to where hosts connect, from twenty addresses.
fn silent_hosts(to: SocketAddr, count: usize) -> Silence {
    Silence::start(count, move |number| {
        let from: SocketAddr = format!("127.0.1.{}:0", 2 + number % 20).parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4()?;
            socket.bind(from)?;
            socket.connect(to).await?.into_std()
        })?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    })
}

/// Silent clients of the socket for administrators.
fn silent_administrators(socket: PathBuf, count: usize) -> Silence {
    Silence::start(count, move |_| {
        let stream = UnixStream::connect(&socket)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    })
}

/// New hosts come one after the other; the longest that one of them took.
fn hosts_come(to: SocketAddr, count: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for number in 0..count {
        let since = Instant::now();
        Host::connect(to, "a").unwrap_or_else(|error| panic!("host {number} is kept out: {error}"));
        longest = longest.max(since.elapsed());
        // They come over a time in which others are hung up on.
        wait::let_time_pass(Duration::from_millis(100));
    }
    longest
}

/// `status`, and the longest that it took.
fn administrators_ask(folder: &Path, count: usize) -> Duration {
    let mut longest = Duration::ZERO;
    for _ in 0..count {
        let since = Instant::now();
        let output = command(folder).args(["--socket", "control.sock", "--timeout", "30", "status"]).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        longest = longest.max(since.elapsed());
        // They come over a time in which others are hung up on.
        wait::let_time_pass(Duration::from_millis(100));
    }
    longest
}

fn lines_with(server: &Server, words: &str) -> usize {
    server.log().lines().filter(|line| line.contains(words)).count()
}

#[test]
fn silent_connections_keep_no_host_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), 200);
    let started = Instant::now();
    let mut early = Host::connect(server.socket_address(), "a").unwrap();
    let silence = silent_hosts(server.socket_address(), 400);
    silence.wait_for_renewal();
    let longest = hosts_come(server.socket_address(), 10);
    println!("{} silent connections were renewed; the slowest new host took {longest:?}", silence.renewed());
    assert!(longest < SOON, "{longest:?}");
    assert!(administrators_ask(folder.path(), 1) < SOON);
    // Whoever has Connected stays.
    early.queue.submit(
        diecut_initiator::Token(1),
        diecut_initiator::Command::Read {
            span: diecut_initiator::LbaSpan { nsid: 1, first: 0, count: 1 },
            length_bytes: 4096,
        },
    );
    let mut sink = diecut_initiator::Collect::default();
    while sink.completions.is_empty() {
        early.exchange(&mut sink).expect("the first host is served");
    }
    let windows = started.elapsed().as_secs() as usize / 10 + 1;
    let told = lines_with(&server, "closed in favour of a new one");
    assert!(told > 0 && told <= windows * LINES_IN_TEN_SECONDS, "{told} lines");
    drop(silence);
    server.stop();
}

/// The clients of the socket are many, and hosts are few: both get in.
#[test]
fn silent_administrators_keep_nobody_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), 200);
    let started = Instant::now();
    let silence = silent_administrators(folder.path().join("control.sock"), 400);
    silence.wait_for_renewal();
    let asked = administrators_ask(folder.path(), 5);
    let came = hosts_come(server.socket_address(), 5);
    println!(
        "{} silent connections were renewed; the slowest status took {asked:?}, the slowest new host {came:?}",
        silence.renewed()
    );
    assert!(asked < SOON && came < SOON, "{asked:?} {came:?}");
    let windows = started.elapsed().as_secs() as usize / 10 + 1;
    let told = lines_with(&server, "connections of administrators are open");
    assert!(told > 0 && told <= windows * LINES_IN_TEN_SECONDS, "{told} lines");
    drop(silence);
    server.stop();
}
