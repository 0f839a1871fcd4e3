//! How long the server holds a command: a shard like the one it wraps, which notes when bytes of one connection were
//! seen and when its output was written.

use diecut_shard::drive::{Action, ConnectionId, Drive, Event, Outbox};
use diecut_units::Time;
use hdrhistogram::Histogram;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Samples of one connection, in nanoseconds.
pub(crate) type Samples = Arc<Mutex<Histogram<u64>>>;

pub(crate) fn samples() -> Samples {
    Arc::new(Mutex::new(Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("fixed bounds are sound")))
}

/// A shard whose one watched connection is timed; right for connections with one command under way.
pub(crate) struct Timed<D> {
    inner: D,
    watched: ConnectionId,
    /// The reactor's clock: its time at some instant.
    clock: (Instant, Time),
    seen: Option<Time>,
    samples: Samples,
}

impl<D: Drive> Timed<D> {
    /// `clock` is the reactor's time at some instant.
    pub(crate) fn new(inner: D, watched: ConnectionId, samples: Samples, clock: (Instant, Time)) -> Timed<D> {
        Timed { inner, watched, clock, seen: None, samples }
    }
}

impl<D: Drive> Drive for Timed<D> {
    fn handle(&mut self, event: Event, now: Time, actions: &mut Vec<Action>) {
        // `now` is the time of the round's look at the sockets: what other connections of the same round took before this
        // one had its turn counts.
        if matches!(&event, Event::Received { connection, .. } if *connection == self.watched) {
            self.seen.get_or_insert(now);
        }
        self.inner.handle(event, now, actions);
    }
    fn work(&mut self, now: Time, actions: &mut Vec<Action>) {
        self.inner.work(now, actions);
    }
    fn deadline(&self) -> Time {
        self.inner.deadline()
    }
    fn goes_on(&self, connection: ConnectionId) -> bool {
        self.inner.goes_on(connection)
    }
    fn is_connected(&self, connection: ConnectionId) -> bool {
        self.inner.is_connected(connection)
    }
    fn outbox(&self, connection: ConnectionId) -> Option<&Outbox> {
        self.inner.outbox(connection)
    }
    fn sent(&mut self, connection: ConnectionId, len_bytes: usize, actions: &mut Vec<Action>) {
        self.inner.sent(connection, len_bytes, actions);
        if connection == self.watched
            && self.inner.outbox(connection).is_none_or(Outbox::is_empty)
            && let Some(seen) = self.seen.take()
        {
            let now = self.clock.1.0 + self.clock.0.elapsed().as_nanos() as u64;
            let held = now.saturating_sub(seen.0).max(1);
            self.samples.lock().expect("nobody panics with it").saturating_record(held);
        }
    }
    fn receive_window(&mut self, connection: ConnectionId) -> Option<&mut [u8]> {
        self.inner.receive_window(connection)
    }
}
