//! A shard that writes down what enters it.

use crate::entry::{Entry, put};
use crate::scan::Scan;
use crate::start::Start;
use crate::summary::Summary;
use crate::writer::RecordingWriter;
use diecut_devices::Device;
use diecut_shard::Shard;
use diecut_shard::drive::{Action, ConnectionId, Drive, Event, MemoryFigures, Outbox};
use diecut_units::{Span, Time};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// How a run is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOptions {
    /// The recording ends before it is longer; the server goes on.
    pub size_max_bytes: u64,
    /// Between two checks, of the shard's time. Whatever waits for its chunk to be full is written then, too.
    pub check_every: Span,
}

impl Default for RecordOptions {
    fn default() -> RecordOptions {
        RecordOptions { size_max_bytes: 1 << 30, check_every: Span::from_secs(2) }
    }
}

/// A shard over an emulated device, and the recording of what enters it. The recording gets its end when it is dropped,
/// or when it may not grow further.
pub struct Recorded<W: Write> {
    shard: Shard<Device>,
    /// None after its end.
    writer: Option<RecordingWriter<W>>,
    options: RecordOptions,
    /// Time of the last time entry.
    time: Time,
    check_at: Time,
    scans: BTreeMap<ConnectionId, Scan>,
}

impl<W: Write> Recorded<W> {
    /// Records into `to` what enters `shard`, which was made just now from `start`.
    pub fn new(shard: Shard<Device>, start: &Start, to: W, options: RecordOptions) -> Recorded<W> {
        let time = start.started();
        let check_at = time + options.check_every;
        let mut recorded = Recorded { shard, writer: None, options, time, check_at, scans: BTreeMap::new() };
        match RecordingWriter::new(to, start) {
            Ok(writer) => recorded.writer = Some(writer),
            Err(error) => recorded.check_writer(Err(error)),
        }
        recorded
    }

    /// Appends an entry. What cannot be written ends the recording.
    fn put(&mut self, put: impl FnOnce(&mut Vec<u8>, &mut BTreeMap<ConnectionId, Scan>)) {
        let Some(writer) = &mut self.writer else { return };
        put(writer.entry(), &mut self.scans);
        let done = writer.entry_done();
        self.check_writer(done);
    }

    fn check_writer(&mut self, done: io::Result<()>) {
        if let Err(error) = done {
            tracing::warn!("the recording cannot be written and stops here: {error}; the server goes on");
            self.writer = None;
        }
    }

    fn put_time(&mut self, now: Time) {
        if now != self.time {
            // Calls come in the order of the clock; one that came before would be taken for the same moment.
            let since_last = now.since(self.time);
            self.time = self.time.max(now);
            self.put(|bytes, _| put::time(bytes, since_last));
        }
    }

    fn put_received(&mut self, connection: ConnectionId, content: &[u8], in_window: bool) {
        self.put(|bytes, scans| {
            put::received(bytes, connection, in_window, content.len());
            scans.entry(connection).or_default().advance(content, |range, is_left_out| {
                if is_left_out {
                    put::left_out(bytes, range.len())
                } else {
                    put::piece(bytes, &content[range])
                }
            });
        });
    }

    fn put_event(&mut self, event: &Event) {
        match event {
            Event::Accepted { connection, local } => {
                self.put(|bytes, _| Entry::Accepted(*connection, *local).encode(bytes));
            }
            Event::Received { connection, bytes } => self.put_received(*connection, bytes, false),
            Event::ReceivedInWindow { connection, len_bytes } => {
                let Some(writer) = &mut self.writer else { return };
                let bytes = writer.entry();
                put::received(bytes, *connection, true, *len_bytes);
                let window = self.shard.receive_window(*connection).expect("something was received in it");
                let window = &window[..*len_bytes];
                self.scans.entry(*connection).or_default().advance(window, |range, is_left_out| {
                    if is_left_out {
                        put::left_out(bytes, range.len())
                    } else {
                        put::piece(bytes, &window[range])
                    }
                });
                let done = writer.entry_done();
                self.check_writer(done);
            }
            Event::Closed { connection } => {
                self.scans.remove(connection);
                self.put(|bytes, _| Entry::Closed(*connection).encode(bytes));
            }
            Event::Control { token, request } => {
                self.put(|bytes, _| Entry::Control(*token, request.clone()).encode(bytes));
            }
            Event::Blocks(event) => self.put(|bytes, _| put::application(bytes, event)),
            Event::Adopted { .. }
            | Event::Told { .. }
            | Event::IoDone(..)
            | Event::DeviceAway(..)
            | Event::DeviceCame(_)
            | Event::DeviceWent(_) => {
                tracing::warn!(
                    "what comes from another shard or from the disk cannot be recorded: the recording ends here"
                );
                self.end();
            }
        }
    }

    /// Before an entry at `now`: time, a check now and then, the end if the recording is long enough.
    fn before(&mut self, now: Time) {
        let Some(writer) = &mut self.writer else { return };
        if writer.len_bytes() >= self.options.size_max_bytes {
            tracing::warn!("the recording has the size it may have and ends here; the server goes on");
            return self.end();
        }
        if self.check_at <= now {
            self.check_at = now + self.options.check_every;
            let check = Entry::Check(Box::new(Summary::of(&self.shard)));
            let done = writer.append(&check).and_then(|()| writer.flush());
            self.check_writer(done);
        }
        self.put_time(now);
    }

    fn end(&mut self) {
        let Some(mut writer) = self.writer.take() else { return };
        let end = Entry::End(Box::new(Summary::of(&self.shard)));
        if let Err(error) = writer.append(&end).and_then(|()| writer.finish().map(drop)) {
            tracing::warn!("the end of the recording cannot be written: {error}");
        }
    }
}

impl<W: Write> Drop for Recorded<W> {
    fn drop(&mut self) {
        // After a failed inner check nothing of it is certain.
        if !std::thread::panicking() {
            self.end();
        }
    }
}

impl<W: Write> Drive for Recorded<W> {
    fn handle(&mut self, event: Event, now: Time, actions: &mut Vec<Action>) {
        if self.writer.is_some() {
            self.before(now);
            self.put_event(&event);
        }
        self.shard.handle(event, now, actions);
    }

    fn work(&mut self, now: Time, actions: &mut Vec<Action>) {
        if self.writer.is_some() {
            self.before(now);
            self.put(|bytes, _| put::work(bytes));
        }
        self.shard.work(now, actions);
    }

    fn deadline(&self) -> Time {
        self.shard.deadline()
    }

    fn goes_on(&self, connection: ConnectionId) -> bool {
        self.shard.goes_on(connection)
    }

    fn is_connected(&self, connection: ConnectionId) -> bool {
        self.shard.is_connected(connection)
    }

    fn tenant_of(&self, connection: ConnectionId) -> Option<&str> {
        self.shard.tenant_of(connection)
    }

    fn weight_of(&self, tenant: &str) -> u32 {
        self.shard.weight_of(tenant)
    }

    fn outbox(&self, connection: ConnectionId) -> Option<&Outbox> {
        self.shard.outbox(connection)
    }

    fn sent(&mut self, connection: ConnectionId, len_bytes: usize, actions: &mut Vec<Action>) {
        self.put(|bytes, _| put::sent(bytes, connection, len_bytes));
        self.shard.sent(connection, len_bytes, actions);
    }

    fn receive_window(&mut self, connection: ConnectionId) -> Option<&mut [u8]> {
        self.shard.receive_window(connection)
    }

    // The memory for connections stays as it was at the start: a replay has the same.

    fn receive_bytes(&self) -> usize {
        self.shard.receive_bytes()
    }

    fn memory(&self) -> MemoryFigures {
        self.shard.memory()
    }

    fn shrink(&mut self, slabs_max: u32) -> usize {
        self.shard.shrink(slabs_max)
    }
}
