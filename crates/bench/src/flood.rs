//! A host that floods: what the load generator does not know (deallocates, and hosts that come and go all the time), over
//! plain blocking sockets.

use diecut_initiator::{Admin, Collect, Command, LbaSpan, QueuePair, QueueParameters, Token};
use diecut_load::drive::Endpoint;
use diecut_units::{Buffer, Time};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a server may take for anything.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Outcome<T> = Result<T, String>;

/// What a flood does next: the command, and the bytes it writes.
pub(crate) type Next<'a> = dyn FnMut() -> (Command, u64) + 'a;

struct Stream {
    socket: TcpStream,
    bytes: Vec<u8>,
    /// Times that something was sent: what the server receives as a message.
    messages: u64,
}

fn failed(what: &str) -> impl Fn(io::Error) -> String {
    move |error| format!("{what}: {error}")
}

impl Stream {
    fn open(endpoint: &Endpoint) -> Outcome<Stream> {
        let socket = TcpStream::connect_timeout(&endpoint.address, PATIENCE).map_err(failed("connect"))?;
        socket.set_nodelay(true).map_err(failed("socket"))?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(failed("socket"))?;
        socket.set_write_timeout(Some(PATIENCE)).map_err(failed("socket"))?;
        Ok(Stream { socket, bytes: vec![0; 64 << 10], messages: 0 })
    }
    fn send(&mut self, output: &[u8]) -> Outcome<usize> {
        if !output.is_empty() {
            self.messages += 1;
            self.socket.write_all(output).map_err(failed("send"))?;
        }
        Ok(output.len())
    }
    fn receive(&mut self) -> Outcome<&[u8]> {
        match self.socket.read(&mut self.bytes) {
            Ok(0) => Err("the server hung up".to_owned()),
            Ok(length) => Ok(&self.bytes[..length]),
            Err(error) => Err(format!("receive: {error}")),
        }
    }
}

/// A host with an admin queue and one I/O queue.
pub(crate) struct Host {
    admin: (Stream, Admin),
    io: (Stream, QueuePair),
}

impl Host {
    /// Comes up: both queues, and the controller between them.
    pub(crate) fn connect(endpoint: &Endpoint, depth: u16) -> Outcome<Host> {
        let parameters =
            QueueParameters::admin(endpoint.host.clone(), endpoint.host_id, endpoint.subsystem.clone());
        let mut admin = (Stream::open(endpoint)?, Admin::new(parameters, 1));
        while admin.1.facts().is_none() {
            let sent = admin.0.send(admin.1.output())?;
            admin.1.sent(sent);
            let received = admin.0.receive()?;
            let result = admin.1.receive(received, Time::ZERO, &mut Collect::default());
            result.map_err(|error| error.to_string())?;
        }
        let mut io = (Stream::open(endpoint)?, QueuePair::new(admin.1.io_queue(1, depth)));
        while !io.1.is_ready() {
            let sent = io.0.send(io.1.output())?;
            io.1.sent(sent);
            let received = io.0.receive()?;
            io.1.receive(received, &mut Collect::default()).map_err(|error| error.to_string())?;
        }
        Ok(Host { admin, io })
    }

    /// Messages that were sent on both queues.
    pub(crate) fn messages(&self) -> u64 {
        self.admin.0.messages + self.io.0.messages
    }

    /// Keeps `depth` commands under way while `goes_on`, and waits for the last. Gives commands and bytes of those that
    /// ended.
    pub(crate) fn run(
        &mut self,
        depth: usize,
        next: &mut Next<'_>,
        goes_on: &dyn Fn() -> bool,
        ended_bytes: &dyn Fn(u64),
    ) -> Outcome<u64> {
        let (stream, queue) = &mut self.io;
        let mut under_way = vec![0u64; depth];
        let mut free: Vec<usize> = (0..depth).collect();
        let mut done = 0;
        loop {
            let more = goes_on();
            while more && let Some(slot) = free.pop() {
                let (command, bytes) = next();
                under_way[slot] = bytes;
                queue.submit(Token(slot as u64), command);
            }
            if free.len() == depth {
                return Ok(done);
            }
            let sent = stream.send(queue.output())?;
            queue.sent(sent);
            let mut collected = Collect::default();
            queue.receive(stream.receive()?, &mut collected).map_err(|error| error.to_string())?;
            for completion in collected.completions {
                if !completion.status.is_success() {
                    return Err(format!("a command failed: {}", completion.status));
                }
                let slot = completion.token.0 as usize;
                ended_bytes(under_way[slot]);
                free.push(slot);
                done += 1;
            }
        }
    }
}

/// Blocks of a namespace, as commands name them.
pub(crate) fn span(first: u64, count: u32) -> LbaSpan {
    LbaSpan { nsid: 1, first, count }
}

/// A write; it and the bytes it writes.
pub(crate) fn write(first: u64, content: &Buffer) -> (Command, u64) {
    let bytes = content.len() as u64;
    let span = span(first, (bytes / 4096) as u32);
    (Command::Write { span, data: content.clone(), force_unit_access: false }, bytes)
}

/// A host comes up, flushes once and hangs up. Gives the messages it sent.
pub(crate) fn come_and_go(endpoint: &Endpoint) -> Outcome<u64> {
    let mut host = Host::connect(endpoint, 4)?;
    let asked = std::cell::Cell::new(false);
    let mut next = || {
        asked.set(true);
        (Command::Flush { nsid: 1 }, 0)
    };
    host.run(1, &mut next, &|| !asked.get(), &|_| ())?;
    Ok(host.messages())
}
