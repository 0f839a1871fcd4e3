//! Zones of a lane: one for each erase block. Who may be written, and which one gives way when the drive has no place for another.

use diecut_media::{Zone, ZoneCondition};
use diecut_units::{IU_SIZE_BYTES, mutant};
use std::collections::VecDeque;

/// How the zone of an erase block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Reset: it takes programs.
    Empty,
    /// Partly written in this life: it takes programs.
    Open,
    /// It gives way: it takes no programs, and is finished as soon as none is under way.
    Closing,
    /// It takes no programs before a reset. The drive has a place for it.
    Left,
    /// It takes no programs before a reset, because it is full, or was finished.
    Over,
}

/// May a zone be written?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Now.
    Now,
    /// When another zone has given way.
    Later,
    /// Not before a reset: it gave way itself, or a program failed.
    Never,
}

/// Why a zone takes no programs before a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// A program failed.
    Failed,
    /// It gave way to another one.
    GaveWay,
}

/// See the module. The drive has places for so many zones that are partly written.
#[derive(Debug)]
pub(crate) struct Zones {
    states: Vec<State>,
    places: u32,
    /// The first ones, so many, never give way while they take programs.
    kept: u32,
    /// Zones that have a place.
    taken: u32,
    /// Zones that are open, with when each was written last, counted in writes.
    open: Vec<(u32, u64)>,
    /// Zones that have a place and take no programs.
    left: Vec<u32>,
    /// Erase blocks whose first program waits for a place.
    waiting: VecDeque<u32>,
    /// The one that gives way already.
    closing: Option<u32>,
    writes: u64,
}

impl Zones {
    /// Places where the drive has one for each zone.
    pub const UNLIMITED: u32 = u32::MAX;

    /// The zones as the drive reported them, in the order of erase blocks.
    pub fn new(conditions: impl Iterator<Item = ZoneCondition>, places: u32, kept: u32) -> Zones {
        let state = |condition| match condition {
            ZoneCondition::Empty => State::Empty,
            ZoneCondition::Active => State::Left,
            _ => State::Over,
        };
        let states: Vec<State> = conditions.map(state).collect();
        let left: Vec<u32> =
            (0..).zip(&states).filter(|(_, state)| **state == State::Left).map(|(block, _)| block).collect();
        let taken = if places == Zones::UNLIMITED { 0 } else { left.len() as u32 };
        let (open, waiting) = (Vec::new(), VecDeque::new());
        Zones { states, places, kept, taken, open, left, waiting, closing: None, writes: 0 }
    }

    /// Whether a reset of it would change nothing.
    pub fn is_empty(&self, block: u32) -> bool {
        self.states[block as usize] == State::Empty
    }

    /// Why it takes no programs before a reset, if so.
    pub fn closed(&self, block: u32) -> Option<Closed> {
        match self.states[block as usize] {
            State::Empty | State::Open => None,
            State::Left => Some(Closed::Failed),
            State::Closing | State::Over => Some(Closed::GaveWay),
        }
    }

    /// A program is to begin. It takes a place if it may.
    pub fn admit(&mut self, block: u32) -> Admission {
        match self.states[block as usize] {
            State::Open => {}
            State::Empty if self.places == Zones::UNLIMITED => self.states[block as usize] = State::Open,
            State::Empty if self.taken < self.places => {
                self.states[block as usize] = State::Open;
                self.taken += 1;
                self.open.push((block, 0));
            }
            State::Empty => {
                if !self.waiting.contains(&block) {
                    self.waiting.push_back(block);
                }
                return Admission::Later;
            }
            State::Closing | State::Left | State::Over => return Admission::Never,
        }
        if self.places == Zones::UNLIMITED {
            return Admission::Now;
        }
        self.writes += 1;
        let open = self.open.iter_mut().find(|(open, _)| *open == block).expect("it is open");
        open.1 = self.writes;
        Admission::Now
    }

    /// All programs that were under way were answered, and it takes more. Whether it is to be finished now.
    pub fn programmed(&mut self, block: u32) -> bool {
        self.states[block as usize] == State::Closing
    }

    /// It was written to its end.
    pub fn filled(&mut self, block: u32) {
        self.leave(block, State::Over);
    }

    /// A program or a reset failed: where its write pointer is, the drive alone knows.
    pub fn failed(&mut self, block: u32) {
        if matches!(self.states[block as usize], State::Open | State::Closing) {
            self.closing = self.closing.filter(|closing| *closing != block);
            self.open.retain(|(open, _)| *open != block);
            self.states[block as usize] = State::Left;
            self.left.push(block);
        }
    }

    /// It was finished.
    pub fn finished(&mut self, block: u32) {
        self.leave(block, State::Over);
    }

    /// It was reset.
    pub fn reset(&mut self, block: u32) {
        self.leave(block, State::Empty);
    }

    /// A reset of it worked, or did not.
    pub fn reset_ended(&mut self, block: u32, worked: bool) {
        if worked { self.reset(block) } else { self.failed(block) }
    }

    fn leave(&mut self, block: u32, now: State) {
        // It needs to give way no more, whoever saw to that: else none would ever again.
        self.closing = self.closing.filter(|closing| *closing != block);
        let before = std::mem::replace(&mut self.states[block as usize], now);
        match before {
            State::Open | State::Closing => self.open.retain(|(open, _)| *open != block),
            State::Left => self.left.retain(|left| *left != block),
            State::Empty | State::Over => return,
        }
        if self.places != Zones::UNLIMITED {
            self.taken -= 1;
        }
    }

    /// An erase block that waits for a place which is there now.
    pub fn take_waiting(&mut self) -> Option<u32> {
        if self.taken < self.places { self.waiting.pop_front() } else { None }
    }

    /// The zone that gives way now, if one has to: one that holds nothing, else one that takes no programs, else the one that was written least
    /// recently, of those at which nothing is under way if there are any. Its programs under way end first.
    pub fn close_one(
        &mut self,
        is_idle: impl Fn(u32) -> bool,
        is_nobodys: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        if self.waiting.is_empty() || self.taken < self.places || self.closing.is_some() {
            return None;
        }
        let all = || self.left.iter().copied().chain(self.open.iter().map(|(open, _)| *open));
        let unused = all().find(|block| is_nobodys(*block) && is_idle(*block));
        let block = match unused.or_else(|| self.left.iter().copied().find(|left| is_idle(*left))) {
            Some(block) => block,
            None => {
                let may = |open: &&(u32, u64)| {
                    open.0 >= self.kept || mutant!("drives: a zone of the catalog gives way")
                };
                // I-D8.
                self.open.iter().filter(may).min_by_key(|(block, written)| (!is_idle(*block), *written))?.0
            }
        };
        self.closing = Some(block);
        if self.states[block as usize] == State::Open {
            self.states[block as usize] = State::Closing;
        }
        Some(block)
    }
}

/// Pages of a zone that may hold something.
pub(crate) fn written_pages(zone: &Zone) -> u32 {
    match zone.condition {
        ZoneCondition::Empty => 0,
        // What a cut left of the last page is read, as on any drive, and counts if it is whole. Were it hidden now, it would show later, when the zone is
        // finished: two openings would tell two stories.
        ZoneCondition::Active | ZoneCondition::Closed => {
            let (written, page) = (zone.write_pointer - zone.offset, IU_SIZE_BYTES as u64);
            let hides_torn = mutant!("drives: a torn page shows when its zone is full");
            (if hides_torn { written / page } else { written.div_ceil(page) }) as u32
        }
        _ => u32::MAX,
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn zones(conditions: &[ZoneCondition], places: u32) -> Zones {
        Zones::new(conditions.iter().copied(), places, 0)
    }

    fn close_one(zones: &mut Zones) -> Option<u32> {
        zones.close_one(|_| true, |_| false)
    }

    /// Goal: what never gives way does not, and what an earlier life left of it does.
    #[test]
    fn who_never_gives_way() {
        use ZoneCondition::{Active, Empty};
        let mut zones = Zones::new([Active, Empty, Empty, Empty].into_iter(), 2, 3);
        assert_eq!([1, 2].map(|block| zones.admit(block)), [Admission::Now, Admission::Later]);
        assert_eq!(close_one(&mut zones), Some(0));
        zones.finished(0);
        assert_eq!((zones.take_waiting(), zones.admit(2)), (Some(2), Admission::Now));
        assert_eq!((zones.admit(3), close_one(&mut zones)), (Admission::Later, None));
    }

    /// Goal: what an earlier life left gives way first, then what was written least recently; nothing is written that gave way.
    #[test]
    fn who_gives_way() {
        use ZoneCondition::{Active, Empty, Full};
        let mut zones = zones(&[Active, Empty, Empty, Empty, Full, Empty], 3);
        assert_eq!([1, 2, 1].map(|block| zones.admit(block)), [Admission::Now; 3]);
        assert_eq!(zones.admit(3), Admission::Later);
        assert_eq!(close_one(&mut zones), Some(0), "of an earlier life");
        assert_eq!(close_one(&mut zones), None, "one at a time");
        assert_eq!(zones.take_waiting(), None);
        zones.finished(0);
        assert_eq!((zones.take_waiting(), zones.admit(3)), (Some(3), Admission::Now));
        assert_eq!(zones.admit(5), Admission::Later);
        assert_eq!(
            zones.close_one(|block| block != 2, |_| false),
            Some(1),
            "the least recent one of those that are idle"
        );
        assert_eq!(zones.admit(1), Admission::Never);
        assert!(zones.programmed(1) && !zones.programmed(2));
        zones.filled(1);
        assert_eq!((zones.take_waiting(), zones.admit(5)), (Some(5), Admission::Now));
        zones.failed(5);
        assert_eq!((zones.admit(5), zones.admit(4)), (Admission::Never, Admission::Never));
        zones.reset(1);
        assert_eq!(zones.admit(1), Admission::Later, "a zone whose program failed keeps its place");
        zones.reset(5);
        assert_eq!((zones.take_waiting(), zones.admit(1)), (Some(1), Admission::Now));
        assert!(zones.is_empty(5) && !zones.is_empty(2) && !zones.is_empty(4));
    }

    /// Goal: a zone that was to give way and is reset meanwhile, or fails, is not waited for; one that holds nothing is the first to give way.
    #[test]
    fn what_is_reset_need_not_give_way() {
        use ZoneCondition::{Active, Empty};
        let mut zones = zones(&[Active, Empty, Empty, Empty, Empty], 2);
        assert_eq!([1, 2].map(|block| zones.admit(block)), [Admission::Now, Admission::Later]);
        assert_eq!(zones.close_one(|_| true, |block| block == 1), Some(1), "it holds nothing");
        zones.reset(1);
        assert_eq!((zones.take_waiting(), zones.admit(2)), (Some(2), Admission::Now));
        assert_eq!(zones.admit(3), Admission::Later);
        assert_eq!(zones.close_one(|block| block == 2, |_| false), Some(2));
        zones.failed(2);
        assert_eq!(zones.close_one(|block| block == 2, |_| false), Some(2), "it has its place still");
        zones.failed(2);
        zones.finished(2);
        assert_eq!((zones.take_waiting(), zones.admit(3)), (Some(3), Admission::Now));
    }
}
