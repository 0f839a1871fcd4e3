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
    /// Targets that asked for something to be kept.
    Reservations,
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

/// This shard's part of a step that is carried out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Own {
    /// Nobody was asked for anything yet. A step that only looks stays here until it is done.
    #[default]
    Begins,
    /// The catalog writes the state of this number.
    Catalog(u64, Box<State>),
    /// Stores answer.
    Stores(Vec<u64>),
    /// Exchanges begin.
    Exchanges,
    /// A vSSD that took no writes, for this reason, is repaired.
    Repairs(Repair, &'static str),
    /// It is done, or was never this shard's.
    Over,
}

impl Own {
    /// Whether `next` comes after it.
    fn leads_to(&self, next: &Own) -> bool {
        use Repair::{IsWritten, Opens, WindsDown};
        matches!(
            (self, next),
            (
                Own::Begins,
                Own::Catalog(..) | Own::Stores(_) | Own::Exchanges | Own::Repairs(WindsDown, _) | Own::Over
            ) | (Own::Catalog(..) | Own::Stores(_) | Own::Exchanges | Own::Repairs(IsWritten, _), Own::Over)
                | (Own::Repairs(WindsDown, _), Own::Repairs(Opens, _))
                | (Own::Repairs(Opens, _), Own::Repairs(IsWritten, _))
        )
    }
}

/// How far a repair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    WindsDown,
    Opens,
    IsWritten,
}

/// How far the first step of a job is.
#[derive(Debug, Default)]
pub(crate) enum Stage {
    /// Nothing of it was begun.
    #[default]
    Due,
    /// It is carried out.
    UnderWay {
        /// This shard's part.
        own: Own,
        /// Orders to other shards whose answers are awaited.
        awaited: Vec<u64>,
        /// What they, or this shard, refused.
        refusal: Option<ControlError>,
    },
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
    stage: Stage,
    /// What came of a repair.
    pub report: Option<Box<RepairReport>>,
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
            stage: Stage::Due,
            report: None,
        }
    }

    /// Whether its first step is carried out.
    pub fn is_begun(&self) -> bool {
        matches!(self.stage, Stage::UnderWay { .. })
    }

    /// Its first step is carried out from now on: here, if it `is_own`, and by those who were given these orders.
    ///
    /// # Panics
    /// If it is carried out already.
    pub fn begin(&mut self, is_own: bool, awaited: Vec<u64>) {
        assert!(!self.is_begun(), "I-S9: a step is begun once");
        let own = if is_own { Own::Begins } else { Own::Over };
        self.stage = Stage::UnderWay { own, awaited, refusal: None };
    }

    /// This shard's part of the first step; over if nothing was begun.
    pub fn own(&self) -> &Own {
        match &self.stage {
            Stage::Due => &Own::Over,
            Stage::UnderWay { own, .. } => own,
        }
    }

    /// This shard's part goes on.
    ///
    /// # Panics
    /// If it cannot go there.
    pub fn own_goes(&mut self, next: Own) {
        let Stage::UnderWay { own, .. } = &mut self.stage else {
            panic!("I-S8: a step that goes on was begun")
        };
        assert!(
            own.leads_to(&next),
            "I-S8: a step goes from one state to the next, not from {own:?} to {next:?}"
        );
        *own = next;
    }

    /// This shard's part is done.
    ///
    /// # Panics
    /// If a store did not answer, or it was over already.
    pub fn own_is_done(&mut self) {
        let waits = self.stores().is_some_and(|tokens| !tokens.is_empty());
        assert!(!waits, "I-S9: a step is done when all stores answered it");
        self.own_goes(Own::Over);
    }

    /// Stores whose answers this shard's part waits for.
    pub fn stores(&mut self) -> Option<&mut Vec<u64>> {
        match &mut self.stage {
            Stage::UnderWay { own: Own::Stores(tokens), .. } => Some(tokens),
            _ => None,
        }
    }

    /// Orders whose answers the first step waits for.
    pub fn awaited(&self) -> &[u64] {
        match &self.stage {
            Stage::Due => &[],
            Stage::UnderWay { awaited, .. } => awaited,
        }
    }

    /// Leaves those of the awaited orders that are kept.
    pub fn retain_awaited(&mut self, is_kept: impl FnMut(&u64) -> bool) {
        if let Stage::UnderWay { awaited, .. } = &mut self.stage {
            awaited.retain(is_kept);
        }
    }

    /// This shard, or another one, refused its part of the first step; who refused first is heard.
    pub fn refused(&mut self, error: ControlError) {
        let Stage::UnderWay { refusal, .. } = &mut self.stage else {
            panic!("I-S8: what is refused was begun")
        };
        refusal.get_or_insert(error);
    }

    /// Takes what was refused of the first step.
    pub fn take_refusal(&mut self) -> Option<ControlError> {
        match &mut self.stage {
            Stage::Due => None,
            Stage::UnderWay { refusal, .. } => refusal.take(),
        }
    }

    /// The first step is done; the next one is due.
    ///
    /// # Panics
    /// If there is none, or something of it is not over.
    pub fn step_done(&mut self) {
        assert_eq!(*self.own(), Own::Over, "I-S9: a step is done when its part here is over");
        assert!(self.awaited().is_empty(), "I-S9: a step is done when all shards answered it");
        let is_refused = matches!(self.stage, Stage::UnderWay { refusal: Some(_), .. });
        assert!(!is_refused, "I-S9: a step that a shard refused is not done");
        self.stage = Stage::Due;
        self.last = self.steps.pop_front();
        assert!(self.last.is_some(), "I-S9: a step that is done was to be done");
        self.steps_done += 1;
    }

    /// Whether channels may be on their way between shards for it.
    pub fn is_giving_channels(&self) -> bool {
        self.is_begun() && self.steps.front().is_some_and(Step::gives_channels)
    }

    /// Whether the catalog is being written for it.
    pub fn is_persisting(&self) -> bool {
        matches!(self.own(), Own::Catalog(..))
    }

    /// Whether a group of tenants is between two shards for it: neither would tell of it.
    pub fn is_moving(&self) -> bool {
        matches!(self.steps.front(), Some(Step::Leave(_) | Step::Arrive(_) | Step::Release(..)))
    }
}
