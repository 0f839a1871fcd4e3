//! What is being carried out: a job's steps, and how far the first of them is.

use crate::claims::Claims;
use crate::control::{ControlError, ControlToken, RepairReport};
use crate::step::Step;
use diecut_catalog::State;
use diecut_units::Time;
use std::collections::VecDeque;

/// Whom the end of a job is told to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Nobody,
    Administrator(ControlToken),
    /// The first shard, whose order this is.
    Order(u64),
    /// What the first shard does for even wear.
    Evenness,
}

/// Who asked for a job, and until when he waits.
pub(crate) struct Asked {
    pub reply: Reply,
    /// For people.
    pub title: String,
    pub since: Time,
    /// When whoever asked is told what it waits for.
    pub deadline: Time,
}

/// What came of a poll of a step.
pub(crate) enum Progress {
    Done,
    Waits,
    Refused(ControlError),
}

/// What the first step of a job has begun on this shard, and waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Waits {
    /// Nothing was begun.
    #[default]
    No,
    /// The catalog's state of this number.
    Catalog(u64, Box<State>),
    /// Answers of stores.
    Stores(Vec<u64>),
    /// Exchanges that begin.
    Exchanges,
}

/// What other shards have to do with the first step of a job.
#[derive(Default)]
pub(crate) struct Elsewhere {
    /// They were told of it.
    pub is_ordered: bool,
    /// Orders whose answers are awaited.
    pub awaited: Vec<u64>,
    /// What they, or this shard, refused.
    pub refusal: Option<ControlError>,
    /// This shard did its part.
    pub is_done_here: bool,
}

/// How far a repair is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Repair {
    #[default]
    NotBegun,
    WindsDown,
    Opens,
    IsWritten,
}

/// A repair: how far it is, why the vSSD took no writes, and what came of it.
#[derive(Default)]
pub(crate) struct Repairing {
    pub at: Repair,
    pub reason_before: Option<&'static str>,
    pub report: Option<Box<RepairReport>>,
}

impl Repairing {
    /// Goes on to the next state of a repair.
    pub fn go(&mut self, next: Repair) {
        let is_next = matches!(
            (self.at, next),
            (Repair::NotBegun, Repair::WindsDown)
                | (Repair::WindsDown, Repair::Opens)
                | (Repair::Opens, Repair::IsWritten)
        );
        assert!(
            is_next,
            "I-S8: a repair goes from one state to the next, not from {:?} to {next:?}",
            self.at
        );
        self.at = next;
    }
}

/// A job: steps towards a state of what exists.
pub(crate) struct Job {
    pub asked: Asked,
    pub claims: Claims,
    /// What existed when it was planned.
    pub base: State,
    pub next: State,
    pub steps: VecDeque<Step>,
    /// The step that was done last.
    pub last: Option<Step>,
    pub steps_done: u32,
    /// What the first step waits for.
    pub waits: Waits,
    pub elsewhere: Elsewhere,
    pub repair: Repairing,
}

impl Job {
    /// One that runs alone and has all the time there is.
    pub fn new(reply: Reply, base: State, next: State, steps: Vec<Step>) -> Job {
        Job {
            asked: Asked {
                reply,
                title: "a change of the server's own".to_owned(),
                since: Time::ZERO,
                deadline: Time::NEVER,
            },
            claims: Claims::everything(),
            base,
            next,
            steps: steps.into(),
            last: None,
            steps_done: 0,
            waits: Waits::No,
            elsewhere: Elsewhere::default(),
            repair: Repairing::default(),
        }
    }

    /// The first step is done.
    ///
    /// # Panics
    /// If there is none, or something it waits for was not told.
    pub fn step_done(&mut self) {
        if let Waits::Stores(tokens) = &self.waits {
            assert!(tokens.is_empty(), "I-S9: a step is done when all stores answered it");
        }
        assert!(self.elsewhere.awaited.is_empty(), "I-S9: a step is done when all shards answered it");
        assert!(self.elsewhere.refusal.is_none(), "I-S9: a step that a shard refused is not done");
        self.last = self.steps.pop_front();
        assert!(self.last.is_some(), "I-S9: a step that is done was to be done");
        self.steps_done += 1;
        self.waits = Waits::No;
        (self.elsewhere.is_ordered, self.elsewhere.is_done_here) = (false, false);
    }

    /// Whether channels may be on their way between shards for it.
    pub fn is_giving_channels(&self) -> bool {
        self.steps.front().is_some_and(Step::gives_channels)
            && (self.elsewhere.is_ordered || !self.elsewhere.awaited.is_empty())
    }

    /// Whether the catalog is being written for it.
    pub fn is_persisting(&self) -> bool {
        matches!(self.waits, Waits::Catalog(..))
    }

    /// Whether a group of tenants is between two shards for it: neither would tell of it.
    pub fn is_moving(&self) -> bool {
        matches!(self.steps.front(), Some(Step::Leave(_) | Step::Arrive(_) | Step::Release(..)))
    }
}
