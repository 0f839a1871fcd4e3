//! The pace of writers: they may append at the rate at which the cleaner makes room, evenly in time.
//!
//! Writers that may take all room there is take it in bursts, and wait for whole victims between. So, while the cleaner works,
//! room is given out by the clock. The rate follows the room that there is, as a proportional-integral controller: it is the
//! rate of the past, made less as room comes near the least there is to be, and more as it comes near the most. What it learns it
//! learns by IUs taken, not by time, so that it suits erase blocks of any size and dies of any speed. What dies do
//! unevenly meanwhile, erases above all, is evened out by staging.

use diecut_units::{Span, Time, mutant};

/// Writers that wait are let on once in this time, not for each IU: each time costs work of the processor.
const STEP: Span = Span::from_micros(25);
/// Until the first IUs were taken nobody knows how fast the cleaner is: so long for all room that there is for bursts.
const FIRST: Span = Span::from_millis(500);
/// Fixed point of rates and credit.
const SHIFT: u32 = 32;
/// IUs of bursts that are taken while the rate follows a deviation of the whole burst: with less it would swing.
const LEARNING: u128 = 4;
/// Room that comes or goes at once is seen bit by bit: an IU with so many that are taken.
const LUMP_SHARE: u64 = 4;

/// The pace of writers of a reclaim group; see the module.
pub(crate) struct Pace {
    /// `None`: writers take what they want.
    paced: Option<Paced>,
    /// What they may save up, in IUs.
    saved_ius_max: u64,
    /// Room between the least and the most.
    burst_ius: u64,
    /// IUs for each nanosecond that the cleaner can give, as far as is known: fixed point.
    sustained: u64,
    /// A writer was told to wait.
    is_wanted: bool,
}

struct Paced {
    /// Fixed point, as [`Pace::sustained`].
    rate: u64,
    /// IUs that writers may take, fixed point.
    credit: u64,
    /// Until when credit was counted.
    at: Time,
    /// IUs taken since the room was looked at.
    taken_ius: u64,
    room_ius: u64,
    /// Room that came at once and is not yet seen, or went and is still seen.
    lump_ius: i64,
}

impl Pace {
    pub fn new(saved_ius_max: u64, burst_ius: u64) -> Pace {
        let sustained = (burst_ius << SHIFT) / FIRST.0;
        Pace { paced: None, saved_ius_max, burst_ius, sustained, is_wanted: false }
    }

    /// The cleaner rests: there is room enough, or nothing would give more.
    pub fn lift(&mut self) {
        self.paced = None;
    }

    /// The cleaner works: there is room for `room_ius`. With `least_ius` writers nearly stop, with a burst more the cleaner.
    pub fn keep(&mut self, now: Time, room_ius: u64, least_ius: u64) {
        let saved_max = self.saved_ius_max << SHIFT;
        let paced = self.paced.get_or_insert(Paced {
            rate: self.sustained,
            credit: saved_max,
            at: now,
            taken_ius: 0,
            room_ius,
            lump_ius: 0,
        });
        paced.credit = paced.credit_at(now).min(saved_max);
        paced.at = paced.at.max(now);
        let taken = std::mem::take(&mut paced.taken_ius);
        let change = room_ius as i64 + taken as i64 - paced.room_ius as i64;
        paced.room_ius = room_ius;
        if change.unsigned_abs() > self.burst_ius / 8 {
            paced.lump_ius += change;
        }
        let least_seen = u64::from(paced.lump_ius > 0);
        let seen = (taken / LUMP_SHARE).max(least_seen).min(paced.lump_ius.unsigned_abs()) as i64;
        paced.lump_ius -= seen * paced.lump_ius.signum();
        // From 0 at the least to twice a half burst at the most.
        let burst = self.burst_ius as i64;
        let beyond = (room_ius as i64 - paced.lump_ius - least_ius as i64).clamp(0, burst);
        let deviation = beyond - burst / 2;
        let learned = u128::from(self.sustained) * u128::from(taken) * u128::from(deviation.unsigned_abs())
            / (LEARNING * u128::from(self.burst_ius).pow(2));
        let learned = u64::try_from(learned).unwrap_or(u64::MAX);
        self.sustained = if deviation < 0 || mutant!("log: rate of writers never rises") {
            self.sustained.saturating_sub(learned).max(1 << 8)
        } else {
            self.sustained.saturating_add(learned)
        };
        // Never nothing: what ends a shortage may need writers to go on.
        let least_part = if mutant!("log: writers stand still at the least room") { 0 } else { burst / 16 };
        let part = u128::from(self.sustained) * (2 * beyond).max(least_part) as u128 / burst as u128;
        paced.rate = u64::try_from(part).unwrap_or(u64::MAX).max(1);
    }

    /// Whether a writer may take an IU; one that may not is expected to wait.
    #[inline]
    pub fn allows(&mut self) -> bool {
        let allows = self.paced.as_ref().is_none_or(|paced| paced.credit >= 1 << SHIFT);
        self.is_wanted |= !allows;
        allows
    }

    /// A writer took an IU.
    #[inline]
    pub fn take(&mut self) {
        if let Some(paced) = &mut self.paced {
            paced.taken_ius += 1;
            paced.credit = paced.credit.saturating_sub(1 << SHIFT);
        }
    }

    /// Chunks have heads, which take room, too.
    pub fn take_head(&mut self) {
        if let Some(paced) = &mut self.paced {
            paced.taken_ius += 1;
        }
    }

    /// Writers that wait are asked again.
    pub fn begin_step(&mut self) {
        self.is_wanted = false;
    }

    /// When writers that wait may go on.
    pub fn deadline(&self) -> Time {
        let Some(paced) = self.paced.as_ref().filter(|_| self.is_wanted) else { return Time::NEVER };
        if mutant!("log: writers that wait are not woken") {
            return Time::NEVER;
        }
        let missing = (1u64 << SHIFT).saturating_sub(paced.credit);
        Time(paced.at.0.saturating_add(missing.div_ceil(paced.rate).max(STEP.0)))
    }
}

impl Paced {
    fn credit_at(&self, now: Time) -> u64 {
        let more = u128::from(now.since(self.at).0) * u128::from(self.rate);
        u64::try_from(u128::from(self.credit) + more).unwrap_or(u64::MAX)
    }
}

impl std::fmt::Debug for Pace {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let per_s = |rate: u64| (u128::from(rate) * 1_000_000_000) >> SHIFT;
        match &self.paced {
            None => write!(f, "none"),
            Some(paced) => write!(
                f,
                "{}/s of {}/s, credit {} room {} lump {}",
                per_s(paced.rate),
                per_s(self.sustained),
                paced.credit >> SHIFT,
                paced.room_ius,
                paced.lump_ius
            ),
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: however little room there is, writers go on, because what ends a shortage may need them to. Method: room is at the
    /// least, or below, and stays there; writers take what they may, and are asked again when they are told.
    fn go_on_at_the_least_room() {
        const LEAST_IUS: u64 = 10_000;
        for room_ius in [0, LEAST_IUS - 1, LEAST_IUS] {
            let mut pace = Pace::new(64, 4096);
            let (mut now, mut taken) = (Time::ZERO, 0);
            for _ in 0..10_000 {
                pace.keep(now, room_ius, LEAST_IUS);
                pace.begin_step();
                while pace.allows() {
                    pace.take();
                    taken += 1;
                }
                now = pace.deadline();
                if taken > 200 {
                    break;
                }
            }
            assert!(
                taken > 200 && now < Time(1_000_000_000),
                "{taken} IUs in {now:?} with room for {room_ius}"
            );
        }
    }

    #[test]
    fn writers_never_stop() {
        go_on_at_the_least_room();
    }

    #[test]
    fn writers_that_stop_are_noticed() {
        assert!(diecut_units::marks::plant_mutant(Some("log: writers stand still at the least room")));
        let noticed = std::panic::catch_unwind(go_on_at_the_least_room).is_err();
        diecut_units::marks::plant_mutant(None);
        assert!(noticed);
    }
}
