//! States of the zones of one namespace: what commands, limits and the medium make of them (NVMe Zoned Namespace Command Set 1.1,
//! sections 2.1 and 3.4). Values only: no erase block and no data is known here. Whoever holds it carries out what it decides.
//!
//! A command is checked as a whole before anything changes: an error leaves every zone as it is. Changes are told in the order in which they
//! happen, so a zone that is closed to make room for another one is told first.

use diecut_units::mutant;
use std::collections::VecDeque;

/// State of a zone, with the value that a zone descriptor has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ZoneState {
    /// Nothing was written since the last reset.
    Empty = 0x1,
    /// Written to, and closed by itself if another zone needs its place.
    ImplicitlyOpen = 0x2,
    /// A host asked for it to be open; only a host closes it.
    ExplicitlyOpen = 0x3,
    /// Not open, and it can be written on.
    Closed = 0x4,
    /// It takes no writes any more, and can be read.
    ReadOnly = 0xd,
    /// It takes no writes before a reset.
    Full = 0xe,
    /// It takes nothing any more.
    Offline = 0xf,
}

impl ZoneState {
    /// Whether it counts for the limit of open zones.
    pub const fn is_open(self) -> bool {
        matches!(self, ZoneState::ImplicitlyOpen | ZoneState::ExplicitlyOpen)
    }

    /// Whether it counts for the limit of active zones.
    pub const fn is_active(self) -> bool {
        self.is_open() || matches!(self, ZoneState::Closed)
    }
}

/// Why a zone refuses; each is one status of the command set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneRefusal {
    /// Its state does not allow the transition.
    #[error("the state of the zone does not allow it")]
    InvalidTransition,
    /// There are as many active zones as may be.
    #[error("as many zones are active as may be")]
    TooManyActive,
    /// There are as many open zones as may be, and none of them can be closed.
    #[error("as many zones are open as may be")]
    TooManyOpen,
    /// It is full.
    #[error("the zone is full")]
    Full,
    /// It is read-only.
    #[error("the zone is read-only")]
    ReadOnly,
    /// It is offline.
    #[error("the zone is offline")]
    Offline,
    /// The range ends beyond what the zone can hold.
    #[error("the range ends beyond the zone's capacity")]
    Boundary,
    /// The write does not begin at the write pointer, or lies outside of the random write area.
    #[error("the write does not begin at the zone's write pointer")]
    InvalidWrite,
    /// The zone has a random write area, or none, and the command needs it to be otherwise.
    #[error("the zone's random write area does not allow it")]
    InvalidOperation,
    /// As many zones have a random write area as may have one.
    #[error("as many zones have a random write area as may have one")]
    NoRandomArea,
    /// The range to be committed does not end where it can.
    #[error("a commit ends at a multiple of the flush granularity, in the random write area")]
    InvalidCommit,
}

/// What a host asks of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneAction {
    /// Close Zone.
    Close,
    /// Finish Zone.
    Finish,
    /// Open Zone; `random` gives an empty one a random write area (ZRWAA).
    Open {
        /// See above.
        random: bool,
    },
    /// Reset Zone.
    Reset,
    /// Offline Zone: one that is read-only takes nothing more.
    Offline,
}

/// A zone that came from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The zone.
    pub zone: u32,
    /// Its state before.
    pub from: ZoneState,
    /// Its state now.
    pub to: ZoneState,
}

/// How many zones may be open and active at once, and what they can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLimits {
    /// IUs that a zone holds.
    pub capacity_ius: u32,
    /// Zones that may be active at once, at least 1.
    pub active_max: u32,
    /// Zones that may be open at once, at least 1 and not more than active ones.
    pub open_max: u32,
    /// IUs of a random write area; 0: no zone can have one.
    pub random_ius: u32,
    /// A commit takes a multiple of so many IUs.
    pub commit_ius: u32,
}

/// One zone, as far as values go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneView {
    /// Its state.
    pub state: ZoneState,
    /// IUs before the write pointer.
    pub written_ius: u32,
    /// It has a random write area.
    pub is_random: bool,
    /// It has a descriptor extension.
    pub has_extension: bool,
}

const EMPTY: ZoneView =
    ZoneView { state: ZoneState::Empty, written_ius: 0, is_random: false, has_extension: false };

/// What a write to a zone does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// First IU in the zone.
    pub first_iu: u32,
    /// IUs that are committed before it: those up to here. Only of a zone with a random write area.
    pub commits_to: Option<u32>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct ZoneStates {
    zones: Vec<ZoneView>,
    limits: ZoneLimits,
    open: u32,
    active: u32,
    /// Zones that were opened implicitly, the one that was opened first in front.
    implicit: VecDeque<u32>,
}

impl ZoneStates {
    /// `zones` empty zones.
    ///
    /// # Panics
    /// If the limits allow nothing.
    pub fn new(zones: u32, limits: ZoneLimits) -> ZoneStates {
        assert!(limits.active_max > 0 && limits.open_max > 0, "I-Z1: limits allow one zone at least");
        assert!(limits.open_max <= limits.active_max, "I-Z1: what is open is active");
        ZoneStates {
            zones: vec![EMPTY; zones as usize],
            limits,
            open: 0,
            active: 0,
            implicit: VecDeque::new(),
        }
    }

    /// Number of zones.
    pub fn count(&self) -> u32 {
        self.zones.len() as u32
    }

    /// The limits.
    pub fn limits(&self) -> &ZoneLimits {
        &self.limits
    }

    /// One zone.
    ///
    /// # Panics
    /// If there is none of this number.
    #[inline]
    pub fn zone(&self, zone: u32) -> ZoneView {
        self.zones[zone as usize]
    }

    /// Zones that are open, and active.
    pub fn in_use(&self) -> [u32; 2] {
        [self.open, self.active]
    }

    /// A zone as it was found on the medium.
    ///
    /// # Panics
    /// If it was given a state before.
    pub fn found(&mut self, zone: u32, view: ZoneView) {
        let place = &mut self.zones[zone as usize];
        assert_eq!(*place, EMPTY, "I-Z2: a zone is found once");
        assert!(!view.state.is_open(), "I-Z2: no zone is open when a store opens");
        *place = view;
        self.active += u32::from(view.state.is_active());
    }

    /// Checks a write and carries it out: where it goes, and what it changes.
    ///
    /// # Errors
    /// See [`ZoneRefusal`]; nothing changed then.
    #[inline]
    pub fn write(
        &mut self,
        zone: u32,
        first_iu: u32,
        iu_count: u32,
        changes: &mut Vec<Change>,
    ) -> Result<Placed, ZoneRefusal> {
        let view = self.zone(zone);
        self.takes_writes(view)?;
        let end_iu = first_iu.checked_add(iu_count).ok_or(ZoneRefusal::Boundary)?;
        if view.is_random {
            let window = self.limits.random_ius;
            // The area can be written once over its own length beyond it: what lies before is committed then.
            if first_iu < view.written_ius || end_iu > view.written_ius + 2 * window {
                return Err(ZoneRefusal::InvalidWrite);
            }
        } else if first_iu != view.written_ius {
            return Err(ZoneRefusal::InvalidWrite);
        }
        if end_iu > self.limits.capacity_ius {
            return Err(ZoneRefusal::Boundary);
        }
        self.open_for_write(zone, changes)?;
        if !view.is_random {
            self.advance(zone, end_iu, changes);
            return Ok(Placed { first_iu, commits_to: None });
        }
        let beyond = end_iu.saturating_sub(view.written_ius + self.limits.random_ius);
        let commits = beyond > 0 && !mutant!("zoned: a write beyond its area commits nothing");
        let commits_to = commits.then(|| {
            let to = view.written_ius + beyond.next_multiple_of(self.limits.commit_ius);
            to.min(self.limits.capacity_ius)
        });
        if let Some(to) = commits_to {
            self.advance(zone, to, changes);
        }
        Ok(Placed { first_iu, commits_to })
    }

    /// As [`ZoneStates::write`], at the write pointer.
    ///
    /// # Errors
    /// See [`ZoneRefusal`]; nothing changed then.
    #[inline]
    pub fn append(
        &mut self,
        zone: u32,
        iu_count: u32,
        changes: &mut Vec<Change>,
    ) -> Result<Placed, ZoneRefusal> {
        let view = self.zone(zone);
        self.takes_writes(view)?;
        if view.is_random {
            return Err(ZoneRefusal::InvalidOperation);
        }
        self.write(zone, view.written_ius, iu_count, changes)
    }

    /// Commits a random write area up to an IU, which is not committed itself.
    ///
    /// # Errors
    /// See [`ZoneRefusal`]; nothing changed then.
    pub fn commit(&mut self, zone: u32, end_iu: u32, changes: &mut Vec<Change>) -> Result<(), ZoneRefusal> {
        let view = self.zone(zone);
        if !view.is_random {
            return Err(ZoneRefusal::InvalidOperation);
        }
        let is_inside = end_iu > view.written_ius
            && end_iu <= view.written_ius + self.limits.random_ius
            && end_iu <= self.limits.capacity_ius;
        if !is_inside || !(end_iu - view.written_ius).is_multiple_of(self.limits.commit_ius) {
            return Err(ZoneRefusal::InvalidCommit);
        }
        if !view.state.is_open() {
            return Err(ZoneRefusal::InvalidTransition);
        }
        self.advance(zone, end_iu, changes);
        Ok(())
    }

    /// Carries out what a host asks of one zone. Says whether anything changed: it is not told what is as it is to be.
    ///
    /// # Errors
    /// See [`ZoneRefusal`]; nothing changed then.
    pub fn act(
        &mut self,
        zone: u32,
        action: ZoneAction,
        changes: &mut Vec<Change>,
    ) -> Result<(), ZoneRefusal> {
        use ZoneState::{Closed, Empty, ExplicitlyOpen, Full, ImplicitlyOpen, Offline, ReadOnly};
        let view = self.zone(zone);
        match (action, view.state) {
            (ZoneAction::Close, ImplicitlyOpen | ExplicitlyOpen) => self.go(zone, Closed, changes),
            (ZoneAction::Close, Closed)
            | (ZoneAction::Finish, Full)
            | (ZoneAction::Reset, Empty)
            | (ZoneAction::Offline, Offline) => {}
            (ZoneAction::Finish, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed) => {
                self.go(zone, Full, changes);
            }
            (ZoneAction::Open { random }, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed) => {
                self.open_explicitly(zone, random, changes)?;
            }
            (ZoneAction::Reset, ImplicitlyOpen | ExplicitlyOpen | Closed | Full) => {
                self.go(zone, Empty, changes);
            }
            (ZoneAction::Offline, ReadOnly) => self.go(zone, Offline, changes),
            _ => return Err(ZoneRefusal::InvalidTransition),
        }
        Ok(())
    }

    /// Carries out what a host asks of all zones: of those whose state it concerns (section 3.4.3).
    ///
    /// # Errors
    /// [`ZoneRefusal::TooManyOpen`] if not all closed zones can be opened; nothing changed then.
    pub fn act_on_all(&mut self, action: ZoneAction, changes: &mut Vec<Change>) -> Result<(), ZoneRefusal> {
        use ZoneState::{Closed, Full, ReadOnly};
        let concerns = |state: ZoneState| match action {
            ZoneAction::Close => state.is_open(),
            ZoneAction::Finish => state.is_active(),
            ZoneAction::Open { .. } => state == Closed,
            ZoneAction::Reset => state.is_active() || state == Full,
            ZoneAction::Offline => state == ReadOnly,
        };
        let concerned: Vec<u32> = (0..self.count()).filter(|zone| concerns(self.zone(*zone).state)).collect();
        if matches!(action, ZoneAction::Open { .. }) {
            let explicit = self.open - self.implicit.len() as u32;
            if explicit as usize + concerned.len() > self.limits.open_max as usize {
                return Err(ZoneRefusal::TooManyOpen);
            }
        }
        let action = match action {
            ZoneAction::Open { .. } => ZoneAction::Open { random: false },
            other => other,
        };
        for zone in concerned {
            let done = self.act(zone, action, changes);
            assert_eq!(done, Ok(()), "I-Z1: what was checked for all zones can be done");
        }
        Ok(())
    }

    /// An empty zone gets a descriptor extension, and is closed then.
    ///
    /// # Errors
    /// See [`ZoneRefusal`]; nothing changed then.
    pub fn extend(&mut self, zone: u32, changes: &mut Vec<Change>) -> Result<(), ZoneRefusal> {
        if self.zone(zone).state != ZoneState::Empty {
            return Err(ZoneRefusal::InvalidTransition);
        }
        if self.active >= self.limits.active_max {
            return Err(ZoneRefusal::TooManyActive);
        }
        self.go(zone, ZoneState::Closed, changes);
        self.zones[zone as usize].has_extension = true;
        Ok(())
    }

    /// A write that was checked cannot be carried out: its zone is as it was. A zone that was closed for it stays closed.
    pub fn take_back(&mut self, zone: u32, before: ZoneView) {
        let state = self.zone(zone).state;
        if state != before.state {
            self.go(zone, before.state, &mut Vec::new());
        }
        self.zones[zone as usize] = before;
    }

    /// The medium cannot write to a zone any more.
    pub fn wear_out(&mut self, zone: u32, changes: &mut Vec<Change>) {
        if !matches!(self.zone(zone).state, ZoneState::ReadOnly | ZoneState::Offline) {
            self.go(zone, ZoneState::ReadOnly, changes);
        }
    }

    fn takes_writes(&self, view: ZoneView) -> Result<(), ZoneRefusal> {
        match view.state {
            ZoneState::Full => Err(ZoneRefusal::Full),
            ZoneState::ReadOnly => Err(ZoneRefusal::ReadOnly),
            ZoneState::Offline => Err(ZoneRefusal::Offline),
            _ => Ok(()),
        }
    }

    /// The write pointer comes to an IU.
    fn advance(&mut self, zone: u32, written_ius: u32, changes: &mut Vec<Change>) {
        self.zones[zone as usize].written_ius = written_ius;
        if written_ius == self.limits.capacity_ius {
            self.go(zone, ZoneState::Full, changes);
        }
    }

    fn open_for_write(&mut self, zone: u32, changes: &mut Vec<Change>) -> Result<(), ZoneRefusal> {
        if self.zone(zone).state.is_open() {
            return Ok(());
        }
        self.make_place(zone, changes)?;
        self.go(zone, ZoneState::ImplicitlyOpen, changes);
        Ok(())
    }

    fn open_explicitly(
        &mut self,
        zone: u32,
        random: bool,
        changes: &mut Vec<Change>,
    ) -> Result<(), ZoneRefusal> {
        let view = self.zone(zone);
        if random && !view.is_random {
            if self.limits.random_ius == 0 {
                return Err(ZoneRefusal::NoRandomArea);
            }
            if view.state != ZoneState::Empty {
                return Err(ZoneRefusal::InvalidTransition);
            }
        }
        if !view.state.is_open() {
            self.make_place(zone, changes)?;
        }
        self.zones[zone as usize].is_random |= random;
        if view.state != ZoneState::ExplicitlyOpen {
            self.go(zone, ZoneState::ExplicitlyOpen, changes);
        }
        Ok(())
    }

    /// One more zone is to be open: another one is closed for it if need be.
    fn make_place(&mut self, zone: u32, changes: &mut Vec<Change>) -> Result<(), ZoneRefusal> {
        if !self.zone(zone).state.is_active() && self.active >= self.limits.active_max {
            return Err(ZoneRefusal::TooManyActive);
        }
        if self.open < self.limits.open_max {
            return Ok(());
        }
        let first = *self.implicit.front().ok_or(ZoneRefusal::TooManyOpen)?;
        self.go(first, ZoneState::Closed, changes);
        Ok(())
    }

    fn go(&mut self, zone: u32, to: ZoneState, changes: &mut Vec<Change>) {
        let view = &mut self.zones[zone as usize];
        let from = std::mem::replace(&mut view.state, to);
        assert_ne!(from, to, "I-Z2: a zone that changes comes to another state");
        match to {
            ZoneState::Empty => *view = EMPTY,
            ZoneState::Full | ZoneState::ReadOnly | ZoneState::Offline => view.is_random = false,
            _ => {}
        }
        if from == ZoneState::ImplicitlyOpen {
            self.implicit.retain(|implicit| *implicit != zone);
        }
        if to == ZoneState::ImplicitlyOpen {
            self.implicit.push_back(zone);
        }
        self.open = self.open + u32::from(to.is_open()) - u32::from(from.is_open());
        self.active = self.active + u32::from(to.is_active()) - u32::from(from.is_active());
        assert!(self.open <= self.limits.open_max, "I-Z1: zones that are open are within their limit");
        // A cut may bring a zone back that another one had taken the place of: its finish was not durable.
        let is_more = to.is_active() && !from.is_active();
        assert!(
            !is_more || self.active <= self.limits.active_max,
            "I-Z1: no zone more is active than may be"
        );
        changes.push(Change { zone, from, to });
    }
}

#[cfg(test)]
mod test;
