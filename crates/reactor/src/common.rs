//! What the threads of a reactor share, and what each has for itself from outside.

use crate::doors::Doors;
use crate::inbox::{Address, Message};
use crate::io::Ios;
use diecut_shard::drive::ShardIndex;
use diecut_units::{Span, Time};
use mio::Poll;
use mio::net::{TcpListener, UnixListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

/// What the threads of a reactor share.
pub(crate) struct Common {
    pub start: Instant,
    pub next_connection: Arc<AtomicU64>,
    /// By shard.
    pub addresses: Vec<Address>,
    /// Made by the threads on sockets and epoll.
    pub system_calls: AtomicU64,
    pub doors: Arc<Doors>,
    /// What each shard's connections may hold; 0: what they were told at the start.
    pub memory_bytes: AtomicUsize,
    /// What they take, by shard.
    pub used_bytes: Vec<AtomicUsize>,
    pub given_up_bytes: AtomicU64,
    /// A shard failed: all threads let go of theirs and meet ([`crate::revival`]).
    pub is_called: AtomicBool,
}

impl Common {
    /// All threads let go of their shards, and meet.
    pub fn call(&self) {
        self.is_called.store(true, Ordering::Release);
        self.addresses.iter().for_each(Address::wake);
    }

    pub fn now(&self) -> Time {
        Time(self.start.elapsed().as_nanos() as u64)
    }
}

/// What ends at one thread: where it hears of sockets, of other threads and of its clients.
pub(crate) struct Ends {
    pub poll: Poll,
    pub inbox: Receiver<Message>,
    pub index: ShardIndex,
    /// Of the first thread only, as `blocks`.
    pub listeners: Vec<TcpListener>,
    pub is_closed: bool,
    pub blocks: Option<UnixListener>,
    pub io: Ios,
    pub busy_poll: Span,
}
