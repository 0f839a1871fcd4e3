//! The target that is shipped, over a namespace with a volatile cache.

use diecut_emulator::drive::Drive;
use diecut_media::{Intent, IntentError, IntentToken, IntentWork};
use diecut_namespace::contract::{NamespaceCommand, NamespaceCompletion, NamespaceError, NamespaceOperation};
use diecut_nvmf::{self as target, ConnectionId, NamespaceConfig, Target, TargetConfig};
use diecut_testing::Random;
use diecut_testing::target::{LBA_SIZE_BYTES as LBA, execute, namespace, subsystem};
use diecut_units::{BufferMut, Time};
use std::collections::BTreeMap;

pub const SIZE_BYTES: usize = 34 << 20;
pub const SUBSYSTEM: &str = "nqn.2026-11.example:drive";

/// A namespace below a target, with a cache that is lost when the target dies.
pub trait Storage {
    fn config(&self) -> NamespaceConfig;
    fn execute(&mut self, command: NamespaceCommand) -> NamespaceCompletion;
    /// Of what was not flushed, anything may be lost.
    fn lose(&mut self, random: &mut Random);
}

/// Has the model of a drive do one thing, and waits for it.
pub fn carry_out(
    drive: &mut Drive,
    now: &mut Time,
    work: IntentWork,
) -> Result<Option<BufferMut>, IntentError> {
    drive.submit(Intent { token: IntentToken(1), work }, *now);
    let mut done = Vec::new();
    while done.is_empty() {
        *now = (*now).max(drive.next_event());
        drive.advance(*now, &mut done);
    }
    let done = done.remove(0);
    done.result.map(|()| done.buffer)
}

/// Memory of plain blocks.
struct Memory {
    memory: Vec<u8>,
    /// What LBAs held at the last flush, of those that were written since.
    before: BTreeMap<usize, Vec<u8>>,
}

/// A target and its namespace.
pub struct Server {
    pub target: Target,
    pub storage: Box<dyn Storage>,
    pub flushes: u32,
    next_connection: u64,
    pub now: Time,
    /// Writes and flushes of which one takes its time, and ends long after; 0: none.
    pub slow_one_in: u64,
    pub late: Vec<NamespaceCommand>,
    /// No write works.
    pub refuses_writes: bool,
    /// Of flushes, which cover what was there when they came.
    late_answers: Vec<NamespaceCompletion>,
    random: Random,
}

pub fn config() -> NamespaceConfig {
    let mut namespace = namespace(7, (SIZE_BYTES / LBA) as u64);
    namespace.properties.volatile_cache = true;
    namespace
}

impl Storage for Memory {
    fn config(&self) -> NamespaceConfig {
        config()
    }

    fn execute(&mut self, command: NamespaceCommand) -> NamespaceCompletion {
        match &command.operation {
            NamespaceOperation::Flush => self.before.clear(),
            NamespaceOperation::Write { range, .. } => {
                for lba in range.first_lba as usize..(range.first_lba + u64::from(range.lba_count)) as usize {
                    let content = || self.memory[lba * LBA..][..LBA].to_vec();
                    self.before.entry(lba).or_insert_with(content);
                }
            }
            NamespaceOperation::Deallocate { ranges } => {
                for range in ranges.iter() {
                    let end = range.first_lba + u64::from(range.lba_count);
                    (range.first_lba..end).for_each(|lba| drop(self.before.remove(&(lba as usize))));
                }
            }
            _ => {}
        }
        execute(&mut self.memory, command)
    }

    fn lose(&mut self, random: &mut Random) {
        for (lba, content) in std::mem::take(&mut self.before) {
            if random.below(3) > 0 {
                self.memory[lba * LBA..][..LBA].copy_from_slice(&content);
            }
        }
    }
}

impl Server {
    pub fn plain() -> Server {
        Server::of(Box::new(Memory { memory: vec![0; SIZE_BYTES], before: BTreeMap::new() }))
    }

    pub fn of(storage: Box<dyn Storage>) -> Server {
        let mut server = Server {
            target: Target::new(TargetConfig::default()),
            storage,
            flushes: 0,
            next_connection: 0,
            now: Time(1),
            slow_one_in: 0,
            late: Vec::new(),
            late_answers: Vec::new(),
            refuses_writes: false,
            random: Random::of(1),
        };
        server.begin();
        server
    }

    /// It starts, with nobody connected.
    pub fn begin(&mut self) {
        self.late.clear();
        self.late_answers.clear();
        self.target = Target::new(TargetConfig::default());
        let subsystem = subsystem(SUBSYSTEM, &[], [(1, self.storage.config())]);
        self.target.set_subsystem(subsystem, self.now, &mut Vec::new());
    }

    /// It dies, and of what was not flushed anything may be lost.
    pub fn crash(&mut self, random: &mut Random) {
        self.storage.lose(random);
        self.begin();
    }

    pub fn tell(&mut self, event: target::Event) {
        let mut actions = Vec::new();
        self.target.handle(event, self.now, &mut actions);
        while self.target.has_work() {
            self.target.handle(target::Event::Round, self.now, &mut actions);
        }
        for action in actions {
            match action {
                target::Action::Submit(command) => {
                    let mut is_slow = || self.slow_one_in > 0 && self.random.below(self.slow_one_in) == 0;
                    match command.operation {
                        NamespaceOperation::Write { .. } if self.refuses_writes => {
                            let failed = Err(NamespaceError::InvalidField { what: "a write" });
                            let answer = NamespaceCompletion::without_data(command.token, failed);
                            self.tell(target::Event::Completed(answer));
                        }
                        NamespaceOperation::Write { .. } if is_slow() => self.late.push(command),
                        NamespaceOperation::Flush if is_slow() => {
                            self.flushes += 1;
                            let answer = self.storage.execute(command);
                            self.late_answers.push(answer);
                        }
                        _ => self.execute(command),
                    }
                }
                target::Action::Keep(keep) => self.tell(target::Event::Kept(keep.kept())),
                target::Action::Ask(question) => {
                    self.tell(target::Event::Told(Box::new(question.unknown())));
                }
                _ => {}
            }
        }
    }

    fn execute(&mut self, command: NamespaceCommand) {
        self.flushes += u32::from(matches!(command.operation, NamespaceOperation::Flush));
        let completion = self.storage.execute(command);
        self.tell(target::Event::Completed(completion));
    }

    /// One of the commands that take their time may end, whoever asked for it and wherever that one is.
    pub fn end_late(&mut self) -> bool {
        if !self.late.is_empty() && self.random.below(3) == 0 {
            let at = self.random.below(self.late.len() as u64) as usize;
            let command = self.late.swap_remove(at);
            self.execute(command);
        }
        if !self.late_answers.is_empty() && self.random.below(20) == 0 {
            let answer = self.late_answers.remove(0);
            self.tell(target::Event::Completed(answer));
        }
        self.has_late()
    }

    /// Whether something under way takes its time.
    pub fn has_late(&self) -> bool {
        !self.late.is_empty() || !self.late_answers.is_empty()
    }

    pub fn accept(&mut self) -> ConnectionId {
        self.next_connection += 1;
        let connection = ConnectionId(self.next_connection);
        self.tell(target::Event::Accepted(connection, None));
        connection
    }
}
