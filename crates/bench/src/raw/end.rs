//! One end of the loop: the same code answers requests and issues them again.

use super::RECEIVE_BYTES;
use super::far::FarMemory;
use mio::{Events, Interest, Poll, Token};
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::time::Duration;

/// Most pieces of memory that one system call takes (IOV_MAX).
const PIECES_MAX: usize = 1024;

/// What an end did so far.
#[derive(Clone, Copy, Debug, Default)]
pub struct EndCounters {
    /// Whole messages received.
    pub messages: u64,
    /// System calls made, of any kind.
    pub system_calls: u64,
}

struct Connection {
    stream: mio::net::TcpStream,
    /// Bytes of a message that has not arrived whole.
    partial_bytes: usize,
    /// Bytes that wait to be sent.
    owed_bytes: usize,
    /// Bytes sent of the message that is being sent.
    sent_of_message_bytes: usize,
    /// Where the contents of owed messages are, if they are sent from there; of the first a part may be sent.
    owed_places: VecDeque<usize>,
    readable: bool,
    writable: bool,
    closed: bool,
}

/// Headers and contents of messages from `places`, as many as a system call takes, but the first `sent_bytes`.
fn pieces<'a>(
    places: &VecDeque<usize>,
    sent_bytes: usize,
    far: &'a FarMemory,
    send: &'a [u8],
    message_bytes: usize,
) -> Vec<IoSlice<'a>> {
    let mut pieces = Vec::with_capacity(2 * places.len().min(PIECES_MAX / 2));
    let mut skipped_bytes = sent_bytes;
    for &place in places.iter().take(PIECES_MAX / 2) {
        let content = far.content(place);
        let header = &send[..message_bytes - content.len()];
        if skipped_bytes < header.len() {
            pieces.push(IoSlice::new(&header[skipped_bytes..]));
            pieces.push(IoSlice::new(content));
        } else {
            pieces.push(IoSlice::new(&content[skipped_bytes - header.len()..]));
        }
        skipped_bytes = 0;
    }
    pieces
}

/// One end of all connections of a run.
pub struct End {
    connections: Vec<Connection>,
    incoming_bytes: usize,
    outgoing_bytes: usize,
    poll: Poll,
    events: Events,
    receive: Vec<u8>,
    send: Vec<u8>,
    /// Where the content of each message comes from, if it is not what was sent before.
    far: Option<FarMemory>,
    counters: EndCounters,
}

impl End {
    /// An end that receives messages of `incoming_bytes` and sends one of `outgoing_bytes` for each;
    /// `depth` is the most messages that are under way on a connection.
    ///
    /// # Errors
    /// If the operating system gives no poll handle.
    pub fn new(incoming_bytes: usize, outgoing_bytes: usize, depth: usize) -> io::Result<End> {
        // Random content, so that no layer below can cheat.
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let send = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        });
        Ok(End {
            connections: Vec::new(),
            incoming_bytes,
            outgoing_bytes,
            poll: Poll::new()?,
            events: Events::with_capacity(256),
            receive: vec![0; RECEIVE_BYTES],
            send: send.take((depth + 1) * outgoing_bytes).collect(),
            far: None,
            counters: EndCounters::default(),
        })
    }

    /// From now on the content of each message is copied from a random place of `far`, as a server does that reads from
    /// memory.
    pub fn send_from(&mut self, far: FarMemory) {
        self.far = Some(far);
    }

    /// Adds a connection that starts with `first_messages` to send (a client fills its depth; a server sends
    /// nothing unasked).
    ///
    /// # Errors
    /// What the socket options or the registration say.
    pub fn add(&mut self, stream: std::net::TcpStream, first_messages: usize) -> io::Result<()> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        let token = Token(self.connections.len());
        self.poll.registry().register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        self.connections.push(Connection {
            stream,
            partial_bytes: 0,
            owed_bytes: first_messages * self.outgoing_bytes,
            sent_of_message_bytes: 0,
            owed_places: VecDeque::new(),
            readable: false,
            writable: true,
            closed: false,
        });
        Ok(())
    }

    /// What it did so far.
    pub fn counters(&self) -> EndCounters {
        self.counters
    }

    /// Whether every connection was closed by the other end.
    pub fn is_closed(&self) -> bool {
        self.connections.iter().all(|connection| connection.closed)
    }

    /// One round over all connections. Never blocks.
    ///
    /// # Errors
    /// A socket error other than the end of a stream.
    pub fn round(&mut self) -> io::Result<()> {
        // A single connection is asked directly; epoll pays only where there are several.
        if self.connections.len() > 1 {
            self.counters.system_calls += 1;
            match self.poll.poll(&mut self.events, Some(Duration::ZERO)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => other?,
            }
            for event in &self.events {
                let connection = &mut self.connections[event.token().0];
                connection.readable |= event.is_readable() || event.is_read_closed();
                connection.writable |= event.is_writable();
            }
        } else if let Some(only) = self.connections.first_mut() {
            only.readable = true;
            only.writable = true;
        }
        for index in 0..self.connections.len() {
            self.receive_once(index)?;
            self.send_once(index)?;
        }
        Ok(())
    }

    fn receive_once(&mut self, index: usize) -> io::Result<()> {
        let connection = &mut self.connections[index];
        if !connection.readable || connection.closed {
            return Ok(());
        }
        self.counters.system_calls += 1;
        match connection.stream.read(&mut self.receive) {
            Ok(0) => connection.closed = true,
            Ok(received) => {
                // Less than asked means that the socket is empty; a new edge follows with new bytes.
                connection.readable = received == self.receive.len();
                let bytes = connection.partial_bytes + received;
                let messages = bytes / self.incoming_bytes;
                connection.partial_bytes = bytes % self.incoming_bytes;
                connection.owed_bytes += messages * self.outgoing_bytes;
                if let Some(far) = &mut self.far
                    && far.is_sent_in_place(self.outgoing_bytes)
                {
                    far.choose(messages, &mut connection.owed_places);
                } else if let Some(far) = &mut self.far {
                    far.fill(&mut self.send, self.outgoing_bytes, messages);
                }
                self.counters.messages += messages as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.readable = false,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => connection.closed = true,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn send_once(&mut self, index: usize) -> io::Result<()> {
        let connection = &mut self.connections[index];
        if connection.owed_bytes == 0 || !connection.writable || connection.closed {
            return Ok(());
        }
        let start = connection.sent_of_message_bytes;
        let end = (start + connection.owed_bytes).min(self.send.len());
        self.counters.system_calls += 1;
        let (outcome, asked_bytes) = match &self.far {
            Some(far) if far.is_sent_in_place(self.outgoing_bytes) => {
                let places = &connection.owed_places;
                let pieces = pieces(places, start, far, &self.send, self.outgoing_bytes);
                let asked_bytes = pieces.iter().map(|piece| piece.len()).sum();
                (connection.stream.write_vectored(&pieces), asked_bytes)
            }
            _ => (connection.stream.write(&self.send[start..end]), end - start),
        };
        match outcome {
            Ok(sent) => {
                connection.writable = sent == asked_bytes;
                connection.owed_bytes -= sent;
                connection.sent_of_message_bytes = (start + sent) % self.outgoing_bytes;
                let whole_messages = (start + sent) / self.outgoing_bytes;
                connection.owed_places.drain(..whole_messages.min(connection.owed_places.len()));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => connection.writable = false,
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) =>
            {
                connection.closed = true;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use crate::raw::FarReads;

    /// Whatever part of a message was sent, the rest follows.
    #[test]
    fn pieces_go_on_where_the_last_call_stopped() {
        let mut far = FarMemory::new(1 << 20, FarReads { in_place: true, checked: true });
        let send: Vec<u8> = (0..4120u32).map(|at| at as u8).collect();
        let mut places = VecDeque::new();
        far.choose(3, &mut places);
        let bytes = |sent_bytes: usize| -> Vec<u8> {
            pieces(&places, sent_bytes, &far, &send, 4120)
                .iter()
                .flat_map(|piece| piece.iter().copied())
                .collect()
        };
        let whole = bytes(0);
        assert_eq!(whole.len(), 3 * 4120);
        assert_eq!((&whole[..24], &whole[4120 + 24..2 * 4120]), (&send[..24], far.content(places[1])));
        for sent_bytes in [1, 23, 24, 25, 4119] {
            assert!(bytes(sent_bytes) == whole[sent_bytes..], "{sent_bytes}");
        }
    }
}
