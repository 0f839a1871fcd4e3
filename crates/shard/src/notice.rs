//! What an operator would ask about, as plain data: a shard tells its driver, which writes a log, or counts. And the limiter that
//! keeps hostile clients from filling a disk with it: sans-IO, time is a value.

pub use diecut_nvmf::{HostAt, HostNotice};
use diecut_spec::Amount;
use diecut_units::{Span, Time};
use std::collections::BTreeMap;

/// Something happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The device is open, and hosts are served.
    Opened {
        /// Starts of the pool so far, this one included.
        starts: u64,
        /// The last end was none: what was staged was recovered.
        was_unclean: bool,
        /// Starts of that kind so far.
        unclean_starts: u64,
    },
    /// Of a host.
    Host(HostNotice),
    /// A vSSD takes no more writes.
    ReadOnly {
        /// Its name; its number if it has none yet.
        vssd: String,
        /// Why.
        reason: &'static str,
    },
    /// A vSSD takes no writes at present: the medium has no room.
    NoRoom {
        /// Its name; its number if it has none yet.
        vssd: String,
        /// Why.
        reason: &'static str,
    },
    /// The medium has room again, and the vSSD takes writes.
    RoomAgain {
        /// Its name.
        vssd: String,
    },
    /// Writes to a vSSD are refused: it stores all that it can. Told once a minute.
    Full {
        /// Its name.
        vssd: String,
    },
    /// A vSSD has met its rate limit: what is beyond waits. Told once a minute.
    RateLimited {
        /// Its name.
        vssd: String,
    },
    /// A vSSD takes writes again after a repair.
    Repaired {
        /// Its name.
        vssd: String,
        /// Bytes that are lost, if that was accepted.
        lost_bytes: Option<u64>,
    },
    /// Erase blocks of a die failed and are not used any more.
    BlocksRetired {
        /// The die, by number in the device.
        die: u32,
        /// How many of it are retired by now.
        retired: u32,
    },
    /// What lies on each of two dies is on its way to the other, for even wear.
    ExchangeBegun([u32; 2]),
    /// They have changed places.
    ExchangeFinished([u32; 2]),
    /// They were to change places, and cannot any more.
    ExchangeFailed([u32; 2]),
    /// One of the two copies of the catalog cannot be written any more.
    CatalogCopyLost,
    /// More is committed to QoS sets than the shaper of the device gives out: so it is at a start after its rate was lowered, and after a
    /// change of a set, until it fits.
    Overcommitted {
        /// What is committed in a second, to sets that count as the device does.
        committed: Amount,
        /// What the device gives out.
        device: Amount,
        /// Sets that count another unit than the device.
        uncounted: u32,
    },
    /// A new vSSD has less protected memory than its placement handles want: reclaim units are filled up early, and hold less.
    StagingShort {
        /// The vSSD.
        vssd: String,
        /// Bytes with which none is.
        wanted_bytes: u64,
        /// Bytes that it has.
        held_bytes: u64,
    },
    /// A request of an administrator was not done in time.
    RequestLate {
        /// What was asked.
        title: String,
    },
}

/// What lines of the log are limited by: so many of one cause say no more than a few and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Hosts that connect.
    HostCame,
    /// Hosts that go.
    HostWent,
    /// Hosts that fell silent.
    HostExpired,
    /// Connects that are refused, for this reason.
    HostRefused(&'static str),
    /// Media.
    Media,
    /// Room on the medium, and in vSSDs.
    Room,
    /// Rate limits that are met.
    RateLimit,
    /// Memory of hosts' connections.
    Memory,
    /// Connections without Connect that make room for new ones.
    Places,
    /// Connections of hosts that are turned away.
    TurnedAway,
    /// Descriptors, of which there are none left.
    Descriptors,
    /// Applications at erase blocks.
    Applications,
    /// Connections of administrators.
    Administrators,
    /// Even wear.
    Wear,
    /// Starts and administrators.
    Server,
}

impl Cause {
    /// Whether it is of everyday life, and no warning.
    pub fn is_everyday(self) -> bool {
        matches!(self, Cause::HostCame | Cause::HostWent)
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Cause::HostCame => "host connected",
            Cause::HostWent => "host gone",
            Cause::HostExpired => "keep-alive expired",
            Cause::HostRefused(reason) => reason,
            Cause::Media => "medium",
            Cause::Room => "no room",
            Cause::RateLimit => "rate limit met",
            Cause::Memory => "memory of connections",
            Cause::Places => "connection closed for a new one",
            Cause::TurnedAway => "connection turned away",
            Cause::Descriptors => "out of descriptors",
            Cause::Administrators => "connections of administrators",
            Cause::Applications => "application turned away",
            Cause::Wear => "even wear",
            Cause::Server => "server",
        }
    }
}

impl Notice {
    /// What it is limited by; `None`: it is always told.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            Notice::Opened { .. }
            | Notice::ReadOnly { .. }
            | Notice::Repaired { .. }
            | Notice::StagingShort { .. }
            | Notice::CatalogCopyLost => None,
            Notice::Host(HostNotice::Came(_)) => Some(Cause::HostCame),
            Notice::Host(HostNotice::Went(_)) => Some(Cause::HostWent),
            Notice::Host(HostNotice::Expired(_)) => Some(Cause::HostExpired),
            Notice::Host(HostNotice::Refused { reason, .. }) => Some(Cause::HostRefused(reason)),
            Notice::Host(HostNotice::MadeRoom) => Some(Cause::Places),
            Notice::Host(HostNotice::WaitsForMemory | HostNotice::Stalled(_)) => Some(Cause::Memory),
            Notice::BlocksRetired { .. } => Some(Cause::Media),
            Notice::NoRoom { .. } | Notice::RoomAgain { .. } | Notice::Full { .. } => Some(Cause::Room),
            Notice::RateLimited { .. } => Some(Cause::RateLimit),
            Notice::ExchangeBegun(_) | Notice::ExchangeFinished(_) | Notice::ExchangeFailed(_) => {
                Some(Cause::Wear)
            }
            Notice::RequestLate { .. } | Notice::Overcommitted { .. } => Some(Cause::Server),
        }
    }
}

/// Lines of one cause that are told in a window.
const TOLD_MAX: u32 = 10;
/// How long what follows is only counted.
const WINDOW: Span = Span::from_secs(10);

#[derive(Clone, Copy, Debug)]
struct Window {
    ends: Time,
    told: u32,
    more: u64,
}

/// Lets a few notices of a cause through in each ten seconds, and counts the rest.
#[derive(Clone, Debug, Default)]
pub struct Limiter {
    windows: BTreeMap<Cause, Window>,
}

impl Limiter {
    /// Whether a notice of this cause is told now.
    pub fn admit(&mut self, cause: Cause, now: Time) -> bool {
        let fresh = Window { ends: now + WINDOW, told: 0, more: 0 };
        let window = self.windows.entry(cause).or_insert(fresh);
        // What was counted is told by `take_over`; a driver calls it first.
        if window.ends <= now && window.more == 0 {
            *window = fresh;
        }
        if window.told < TOLD_MAX {
            window.told += 1;
            return true;
        }
        window.more += 1;
        false
    }

    /// Takes what was counted in a window that is over: a cause, and how many more there were. Once for each.
    pub fn take_over(&mut self, now: Time) -> Option<(Cause, u64)> {
        let over = self.windows.iter().find(|(_, window)| window.ends <= now)?;
        let (cause, more) = (*over.0, over.1.more);
        self.windows.remove(&cause);
        if more > 0 { Some((cause, more)) } else { self.take_over(now) }
    }

    /// When [`Limiter::take_over`] has something; [`Time::NEVER`] if nothing is counted.
    pub fn deadline(&self) -> Time {
        let counted = self.windows.values().filter(|window| window.more > 0);
        counted.map(|window| window.ends).fold(Time::NEVER, Time::min)
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: however many notices come, a cause has ten lines and a number in ten seconds, nothing is counted twice or
    /// forgotten, and causes do not hide each other.
    #[test]
    fn a_flood_is_a_few_lines_and_a_number() {
        let mut limiter = Limiter::default();
        let (mut told, mut counted) = (0, 0);
        // A refused Connect each millisecond for a minute.
        for ms in 0..60_000u64 {
            let now = Time(ms * 1_000_000);
            while let Some((cause, more)) = limiter.take_over(now) {
                assert_eq!(cause, Cause::HostRefused("why"));
                counted += more;
            }
            told += u64::from(limiter.admit(Cause::HostRefused("why"), now));
        }
        let end = Time(80_000_000_000);
        assert!(limiter.deadline() <= end);
        assert!(limiter.admit(Cause::HostCame, Time(60_000_000_000)), "another cause");
        assert!(limiter.admit(Cause::HostRefused("another"), Time(60_000_000_000)), "another reason");
        while let Some((_, more)) = limiter.take_over(end) {
            counted += more;
        }
        assert_eq!(told, 60);
        assert_eq!(told + counted, 60_000);
        assert_eq!(limiter.deadline(), Time::NEVER);
    }

    #[test]
    fn what_is_seldom_is_always_told() {
        let mut limiter = Limiter::default();
        for second in 0..1000 {
            assert!(limiter.admit(Cause::HostWent, Time(second * 1_100_000_000)));
        }
        assert_eq!(limiter.deadline(), Time::NEVER);
    }
}
