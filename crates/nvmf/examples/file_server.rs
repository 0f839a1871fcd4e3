//! The target behind plain sockets with two tenants in two files: for trying real hosts against this room alone.
//!
//! `cargo run -p diecut-nvmf --example file_server -- PORT FOLDER` serves `nqn.2026-11.org.diecut:tenant-a` and `-b`
//! (other names and allowed hosts from the environment: `NQN_A`, `NQN_B`, `HOST_NQN`). One thread, blocking file
//! calls, polling: a try-out, not the server.

use diecut_namespace::contract::*;
use diecut_nvme::QualifiedName;
use diecut_nvmf::*;
use diecut_units::{Buffer, BufferPool, ContentMode, Time};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;

const SIZE_BYTES: u64 = 512 << 20;
const LBA_SIZE_BYTES: u64 = 4096;

struct Server {
    target: Target,
    files: BTreeMap<NamespaceId, File>,
    streams: BTreeMap<ConnectionId, TcpStream>,
    paused: std::collections::BTreeSet<ConnectionId>,
    actions: Vec<Action>,
}

fn execute(file: &File, operation: NamespaceOperation) -> std::io::Result<(Option<Buffer>, bool)> {
    let at = |range: &LbaRange| range.first_lba * LBA_SIZE_BYTES;
    let length = |range: &LbaRange| range.lba_count as usize * LBA_SIZE_BYTES as usize;
    Ok(match operation {
        NamespaceOperation::Read { range, mut destination } => {
            file.read_exact_at(&mut destination, at(&range))?;
            (Some(destination.freeze()), true)
        }
        NamespaceOperation::Write { range, data, .. } => {
            file.write_all_at(&data, at(&range))?;
            (None, true)
        }
        NamespaceOperation::WriteZeroes { range, .. } => {
            file.write_all_at(&vec![0; length(&range)], at(&range))?;
            (None, true)
        }
        NamespaceOperation::Deallocate { ranges } => {
            for range in &ranges {
                file.write_all_at(&vec![0; length(range)], at(range))?;
            }
            (None, true)
        }
        NamespaceOperation::Compare { range, data } => {
            let mut found = vec![0; length(&range)];
            file.read_exact_at(&mut found, at(&range))?;
            (None, found == data[..])
        }
        NamespaceOperation::Copy(copy) => {
            let mut content = Vec::new();
            for source in &copy.sources {
                let mut found = vec![0; length(source)];
                file.read_exact_at(&mut found, at(source))?;
                content.append(&mut found);
            }
            file.write_all_at(&content, at(&copy.destination()))?;
            (None, true)
        }
        NamespaceOperation::WriteUncorrectable { .. } => {
            return Err(std::io::Error::other("a file does not forget"));
        }
        NamespaceOperation::Purge => return Err(std::io::Error::other("a file system keeps what it likes")),
        NamespaceOperation::Zone(_) | NamespaceOperation::Chunk(_) => {
            return Err(std::io::Error::other("a file has no zones or chunks"));
        }
        NamespaceOperation::Flush | NamespaceOperation::Verify { .. } => (None, true),
    })
}

impl Server {
    fn handle(&mut self, event: Event, now: Time) {
        self.target.handle(event, now, &mut self.actions);
        while !self.actions.is_empty() {
            for action in std::mem::take(&mut self.actions) {
                match action {
                    Action::Submit(command) => {
                        let done = execute(&self.files[&command.namespace], command.operation);
                        let (data, result) = match done {
                            Ok((data, true)) => (data, Ok(())),
                            Ok((_, false)) => (None, Err(NamespaceError::CompareFailure)),
                            Err(_) => (None, Err(NamespaceError::Internal { reason: "file" })),
                        };
                        let completion =
                            NamespaceCompletion { token: command.token, result, data, zones: None };
                        self.target.handle(Event::Completed(completion), now, &mut self.actions);
                    }
                    Action::GiveUp(..) => {} // all are answered at once
                    Action::Transmit(id) => self.transmit(id),
                    Action::Close(id) => {
                        self.transmit(id);
                        self.streams.remove(&id);
                        self.paused.remove(&id);
                        self.target.handle(Event::Closed(id), now, &mut self.actions);
                    }
                    Action::Pause(id) => drop(self.paused.insert(id)),
                    Action::Resume(id) => drop(self.paused.remove(&id)),
                    Action::HandOver(..) => unreachable!("one shard"),
                    Action::Notice(_) => {}
                    // It lives as long as the process.
                    Action::Keep(keep) => {
                        let kept = keep.kept();
                        self.target.handle(Event::Kept(kept), now, &mut self.actions);
                    }
                    Action::Ask(question) => {
                        let tidings = Box::new(question.unknown());
                        self.target.handle(Event::Told(tidings), now, &mut self.actions);
                    }
                }
            }
        }
    }

    fn transmit(&mut self, id: ConnectionId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        while let Some(outbox) = self.target.outbox(id).filter(|outbox| !outbox.is_empty()) {
            let mut slices: Vec<IoSlice> = Vec::new();
            outbox.fill_io_slices(&mut slices, 256);
            match stream.write_vectored(&slices) {
                Ok(sent) if sent > 0 => {
                    drop(slices);
                    self.target.sent(id, sent);
                }
                _ => return,
            }
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let port: u16 = arguments.next().and_then(|text| text.parse().ok()).expect("a port");
    let folder = arguments.next().expect("a folder");
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or(default.to_owned());
    let mut server = Server {
        target: Target::new(TargetConfig {
            advertised: vec![([127, 0, 0, 1], port).into()],
            ..TargetConfig::default()
        }),
        files: BTreeMap::new(),
        streams: BTreeMap::new(),
        paused: Default::default(),
        actions: Vec::new(),
    };
    for (number, nqn) in [
        (1u32, variable("NQN_A", "nqn.2026-11.org.diecut:tenant-a")),
        (2, variable("NQN_B", "nqn.2026-11.org.diecut:tenant-b")),
    ] {
        let path = format!("{folder}/tenant-{number}");
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path).expect("a file");
        file.set_len(SIZE_BYTES).expect("space");
        server.files.insert(NamespaceId(number), file);
        let properties = NamespaceProperties {
            size_lbas: SIZE_BYTES / LBA_SIZE_BYTES,
            capacity_lbas: SIZE_BYTES / LBA_SIZE_BYTES,
            used_lbas: 0,
            lba_size_log2: 12,
            transfer_max_lbas: 256,
            volatile_cache: false,
            preferred_write_lbas: 1,
            read_only: false,
            zones: None,
            placement: None,
            chunks: None,
            purges: false,
        };
        let namespace = NamespaceConfig {
            namespace: NamespaceId(number),
            uuid: [number as u8; 16],
            nguid: [0x10 + number as u8; 16],
            properties,
            content: ContentMode::Bytes,
        };
        let allowed = std::env::var("HOST_NQN").ok().map(|host| QualifiedName::new(&host).expect("an NQN"));
        let config = SubsystemConfig {
            nqn: QualifiedName::new(&nqn).expect("an NQN"),
            serial: format!("file-{number}"),
            model: "diecut file".to_owned(),
            allow_any_host: allowed.is_none(),
            allowed_hosts: allowed.into_iter().collect(),
            namespaces: [(1, namespace)].into(),
            paths: Default::default(),
            home: Home::Here,
        };
        server.target.set_subsystem(config, Time::ZERO, &mut server.actions);
    }
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
    listener.set_nonblocking(true).expect("a socket");
    #[allow(clippy::disallowed_methods, reason = "this program is the driver and owns the clock")]
    let start = std::time::Instant::now();
    let mut next_id = 0u64;
    let mut pool = BufferPool::new();
    loop {
        let now = Time(start.elapsed().as_nanos() as u64);
        let mut idle = true;
        if let Ok((stream, _)) = listener.accept() {
            stream.set_nonblocking(true).expect("a socket");
            stream.set_nodelay(true).expect("a socket");
            next_id += 1;
            server.streams.insert(ConnectionId(next_id), stream);
            server.handle(Event::Accepted(ConnectionId(next_id), None), now);
            idle = false;
        }
        for id in server.streams.keys().copied().collect::<Vec<_>>() {
            server.transmit(id);
            if server.paused.contains(&id) {
                continue;
            }
            let Some(stream) = server.streams.get_mut(&id) else { continue };
            let event = if let Some(window) = server.target.receive_window(id) {
                match stream.read(window) {
                    Ok(0) => Event::Closed(id),
                    Ok(bytes) => Event::ReceivedInWindow(id, bytes),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(_) => Event::Closed(id),
                }
            } else {
                let mut buffer = pool.take(64 << 10);
                match stream.read(&mut buffer) {
                    Ok(0) => Event::Closed(id),
                    Ok(bytes) => {
                        buffer.truncate(bytes);
                        Event::Received(id, buffer.freeze())
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                    Err(_) => Event::Closed(id),
                }
            };
            if matches!(event, Event::Closed(_)) {
                server.streams.remove(&id);
                server.paused.remove(&id);
            }
            server.handle(event, now);
            idle = false;
        }
        if server.target.has_work() {
            server.handle(Event::Round, now);
            idle = false;
        }
        if server.target.deadline() <= now {
            server.handle(Event::Tick, now);
        }
        if idle {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
}
