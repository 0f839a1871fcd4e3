//! A recorded run again, in virtual time: the same inputs, at the same moments, cut into the same calls. Everything the
//! shard does must come out the same.

use diecut_devices::{Backing, Device};
use diecut_recording::{Application, Content, Entry, ReadError, RecordingReader, StartError, Summary};
use diecut_shard::Shard;
use diecut_shard::control::{ControlRequest, ControlToken};
use diecut_shard::drive::{Action, CommandOutline, ConnectionId, Drive, Event};
use diecut_units::{BufferPool, Time};
use std::io::Read;

/// Why a recording cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It cannot be read.
    #[error("the recording {0}")]
    Read(#[from] ReadError),
    /// It cannot be set up.
    #[error("the recorded run cannot be set up: {0}")]
    Start(#[from] StartError),
    /// Nothing says what the run did.
    #[error("the recording has neither a check nor an end: the server died within its first seconds")]
    Nothing,
}

/// What a replay came to.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Entries played.
    pub entries: u64,
    /// Commands that came through the target.
    pub commands: u64,
    /// Places at which the shard was compared with the recording.
    pub comparisons: u64,
    /// Whether the recording has its end; else it was played as far as it goes.
    pub has_end: bool,
    /// Where the shard was compared last.
    pub time: Time,
    /// What the run had done there.
    pub recorded: Summary,
    /// What the replay had done there.
    pub replayed: Summary,
    /// In what they differ, the first place only; empty if the replay is exact.
    pub differences: Vec<String>,
}

/// An input of a run, as the shard below the target sees it.
#[derive(Clone, Debug)]
pub enum Input {
    /// A command, when it came to admission.
    Command(Time, CommandOutline),
    /// An administrator's request, when it came.
    Control(Time, ControlToken, Box<ControlRequest>),
    /// Something of an application at erase blocks, when it came.
    Application(Time, Application),
}

impl Input {
    /// When it came.
    pub fn time(&self) -> Time {
        match self {
            Input::Command(time, _) | Input::Control(time, _, _) | Input::Application(time, _) => *time,
        }
    }
}

struct Player {
    shard: Shard<Device>,
    now: Time,
    actions: Vec<Action>,
    pool: BufferPool,
}

impl Player {
    /// Does what the entry says. The error says where the shard cannot follow.
    fn play(&mut self, entry: Entry) -> Result<(), String> {
        match entry {
            Entry::Time(since_last) => self.now += since_last,
            Entry::Accepted(connection, local) => self.handle(Event::Accepted { connection, local }),
            Entry::Received(connection, content) => {
                let mut bytes = self.pool.take(content.len_bytes());
                content.fill(&mut bytes);
                self.handle(Event::Received { connection, bytes: bytes.freeze() });
            }
            Entry::ReceivedInWindow(connection, content) => self.receive_in_window(connection, &content)?,
            Entry::Closed(connection) => self.handle(Event::Closed { connection }),
            Entry::Control(token, request) => self.handle(Event::Control { token, request }),
            Entry::Application(application) => {
                let event = application.event(&mut self.pool);
                self.handle(Event::Blocks(event));
            }
            Entry::Work => self.shard.work(self.now, &mut self.actions),
            Entry::Sent(connection, len_bytes) => {
                let waiting = self.shard.outbox(connection).map_or(0, |outbox| outbox.len_bytes());
                if waiting < len_bytes {
                    return Err(format!(
                        "connection {}: {len_bytes} bytes were sent, but there are {waiting}",
                        connection.0
                    ));
                }
                self.shard.sent(connection, len_bytes, &mut self.actions);
            }
            Entry::Check(_) | Entry::End(_) => unreachable!("compared, not played"),
        }
        // The recording has what followed from them.
        self.actions.clear();
        Ok(())
    }

    fn handle(&mut self, event: Event) {
        self.shard.handle(event, self.now, &mut self.actions);
    }

    fn receive_in_window(&mut self, connection: ConnectionId, content: &Content) -> Result<(), String> {
        let len_bytes = content.len_bytes();
        let window = self.shard.receive_window(connection).unwrap_or_default();
        let room = window.len();
        let Some(place) = window.get_mut(..len_bytes) else {
            return Err(format!(
                "connection {}: {len_bytes} bytes of data came, but {room} are waited for",
                connection.0
            ));
        };
        content.fill(place);
        self.handle(Event::ReceivedInWindow { connection, len_bytes });
        Ok(())
    }
}

/// Plays a recording until its end or the first place where the shard does something else. `input` hears what the run was
/// given, for [`crate::rerun`]; content lies in `backing`.
///
/// # Errors
/// Why it cannot be played.
pub fn replay<R: Read>(
    recording: &mut RecordingReader<R>,
    backing: Backing,
    mut input: impl FnMut(Input),
) -> Result<Replay, ReplayError> {
    let start = recording.start();
    let device = start.device(backing)?;
    let mut shard = Shard::new(device, start.shard_config()?, start.started());
    shard.watch();
    let mut player = Player { now: start.started(), shard, actions: Vec::new(), pool: BufferPool::new() };
    let mut outcome = Replay {
        entries: 0,
        commands: 0,
        comparisons: 0,
        has_end: false,
        time: player.now,
        recorded: Summary::default(),
        replayed: Summary::default(),
        differences: Vec::new(),
    };
    let mut commands = Vec::new();
    while let Some(entry) = recording.next_entry()? {
        outcome.entries += 1;
        match entry {
            Entry::Check(recorded) | Entry::End(recorded) if outcome.differences.is_empty() => {
                outcome.comparisons += 1;
                outcome.time = player.now;
                outcome.replayed = Summary::of(&player.shard);
                outcome.differences = recorded.differences(&outcome.replayed);
                outcome.recorded = *recorded;
            }
            Entry::Control(token, request) => {
                input(Input::Control(player.now, token, request.clone()));
                player.handle(Event::Control { token, request });
            }
            other => {
                if let Entry::Application(application) = &other {
                    input(Input::Application(player.now, application.clone()));
                }
                if let Err(what) = player.play(other) {
                    outcome.differences.push(format!("entry {}: {what}", outcome.entries));
                }
            }
        }
        player.shard.take_watched(&mut commands);
        outcome.commands += commands.len() as u64;
        commands.drain(..).for_each(|command| input(Input::Command(player.now, command)));
        if !outcome.differences.is_empty() {
            outcome.time = player.now;
            return Ok(outcome);
        }
    }
    outcome.has_end = recording.has_end();
    if outcome.comparisons == 0 { Err(ReplayError::Nothing) } else { Ok(outcome) }
}
