//! One I/O queue of a controller, whose user waits for his answers.

use diecut_initiator::{Admin, Collect, Command, QueuePair, QueueParameters, Token};
use diecut_units::Time;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A target that says nothing for so long is gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// Commands of a queue that are under way at a time.
pub const DEPTH: u16 = 16;

/// Bytes in and out.
pub struct Stream {
    tcp: TcpStream,
    buffer: Vec<u8>,
}

impl Stream {
    pub fn dial(address: SocketAddr) -> io::Result<Stream> {
        let tcp = TcpStream::connect(address)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        Ok(Stream { tcp, buffer: vec![0; 256 << 10] })
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tcp.write_all(bytes)
    }

    /// What comes next.
    fn receive(&mut self) -> io::Result<&[u8]> {
        match self.tcp.read(&mut self.buffer)? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            len => Ok(&self.buffer[..len]),
        }
    }
}

fn broken(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

/// Brings a controller up.
pub fn bring_up(stream: &mut Stream, parameters: QueueParameters, io_queues: u16) -> io::Result<Admin> {
    let mut admin = Admin::new(parameters, io_queues);
    while admin.facts().is_none() {
        stream.send(admin.output())?;
        admin.sent(admin.output().len());
        admin.receive(stream.receive()?, Time::ZERO, &mut Collect::default()).map_err(broken)?;
    }
    Ok(admin)
}

/// See the module.
pub struct Queue {
    stream: Stream,
    pair: QueuePair,
}

impl Queue {
    pub fn connect(address: SocketAddr, parameters: QueueParameters) -> io::Result<Queue> {
        let mut queue = Queue { stream: Stream::dial(address)?, pair: QueuePair::new(parameters) };
        while !queue.pair.is_ready() {
            queue.exchange(&mut Collect::default())?;
        }
        Ok(queue)
    }

    fn exchange(&mut self, sink: &mut Collect) -> io::Result<()> {
        self.stream.send(self.pair.output())?;
        self.pair.sent(self.pair.output().len());
        self.pair.receive(self.stream.receive()?, sink).map_err(broken)
    }

    /// Carries commands out, in any order. What they brought has the token of their places.
    ///
    /// `Err` is that the connection is over; statuses are in what is given back.
    pub fn run(&mut self, commands: Vec<Command>) -> io::Result<Collect> {
        let (mut sink, count) = (Collect::default(), commands.len());
        let mut waiting = (0..).map(Token).zip(commands);
        while sink.completions.len() < count {
            while self.pair.room() > 0
                && let Some((token, command)) = waiting.next()
            {
                self.pair.submit(token, command);
            }
            self.exchange(&mut sink)?;
        }
        Ok(sink)
    }
}
