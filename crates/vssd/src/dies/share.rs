//! A vSSD's share of the dies it lies on: weight, rate, and what happens beyond the rate.
//!
//! The token bucket is kept as the time until which what was served is paid for (a virtual scheduling algorithm: exact, one
//! word, nothing to refill). A vSSD within its rate has paid up to now or before; idle time earns at most one burst.

use diecut_spec::Sharing;
use diecut_units::{Span, Time};

/// A vSSD's share of the dies it lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Where vSSDs compete for a die, its time is split by weight; 100 is usual.
    pub weight: u32,
    /// Bytes read and programmed per second, the cleaner's included; 0 for no limit. Erases take no bytes.
    pub rate_bytes_per_second: u64,
    /// What happens beyond the rate.
    pub sharing: Sharing,
}

impl Default for Share {
    fn default() -> Share {
        Share { weight: 100, rate_bytes_per_second: 0, sharing: Sharing::WorkConserving }
    }
}

/// How a vSSD stands to its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    Within,
    /// Served when nobody within their rate waits.
    Beyond,
    /// Not served before the bucket has something again.
    Blocked,
}

/// Token bucket of one vSSD.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    pub share: Share,
    paid_until: Time,
    /// That its rate keeps it waiting is told again from then on.
    told_until: Time,
}

/// How long a vSSD waits at most for what [`Bucket::charge_unused`] took: hosts wait 30 s for a command and more.
const OWED_MAX: Span = Span::from_secs(10);
/// How long a vSSD that its rate keeps waiting is not told of again.
const TOLD_FOR: Span = Span::from_secs(60);

impl Bucket {
    pub fn is_limited(&self) -> bool {
        self.share.rate_bytes_per_second > 0
    }
    pub fn standing(&self, now: Time) -> Standing {
        match self.share.sharing {
            _ if !self.is_limited() || self.paid_until <= now => Standing::Within,
            Sharing::WorkConserving => Standing::Beyond,
            Sharing::Strict => Standing::Blocked,
        }
    }
    /// Whether it is news that its rate keeps it waiting now.
    pub fn is_news(&mut self, now: Time) -> bool {
        let is_news = self.told_until <= now;
        if is_news {
            self.told_until = now + TOLD_FOR;
        }
        is_news
    }
    /// When it is within its rate again.
    pub fn within_at(&self) -> Time {
        self.paid_until
    }
    /// Takes tokens for an operation that is served now. What is served beyond the rate costs nothing: nobody wanted it.
    pub fn charge(&mut self, bytes: u64, now: Time, burst_ns: u64) {
        if self.is_limited() && self.standing(now) == Standing::Within {
            let rate = u128::from(self.share.rate_bytes_per_second);
            let cost_ns = (u128::from(bytes) * 1_000_000_000).div_ceil(rate) as u64;
            let from = self.paid_until.0.max(now.0.saturating_sub(burst_ns));
            self.paid_until = Time(from.saturating_add(cost_ns));
        }
    }
    /// Takes tokens for room on flash that was passed over, whatever the standing: what wears flash is paid for like what is written to it.
    /// The vSSD owes no more than [`OWED_MAX`] for that.
    pub fn charge_unused(&mut self, bytes: u64, now: Time, burst_ns: u64) {
        if self.is_limited() {
            let rate = u128::from(self.share.rate_bytes_per_second);
            let cost_ns = (u128::from(bytes) * 1_000_000_000).div_ceil(rate);
            let from = self.paid_until.0.max(now.0.saturating_sub(burst_ns));
            let until = from.saturating_add(u64::try_from(cost_ns).unwrap_or(u64::MAX));
            self.paid_until = Time(until.min((now + OWED_MAX).0.max(self.paid_until.0)));
        }
    }
    /// A new share starts with an empty past.
    pub fn set(&mut self, share: Share, now: Time) {
        *self = Bucket { share, paid_until: now, ..*self };
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const BURST_NS: u64 = 10_000_000;

    /// Over any stretch no more than rate, one burst and one operation pass; idle time is not saved up beyond the burst.
    #[test]
    fn a_strict_bucket_bounds_every_stretch() {
        let share = Share { rate_bytes_per_second: 3_000_000, sharing: Sharing::Strict, ..Share::default() };
        let mut bucket = Bucket::default();
        bucket.set(share, Time::ZERO);
        let mut served: Vec<(u64, u64)> = Vec::new();
        let mut now = Time(5_000_000_000);
        let mut random = 1u64;
        for _ in 0..20_000 {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let bytes = 4096 * (1 + (random >> 60));
            now = match bucket.standing(now) {
                Standing::Blocked => bucket.within_at(),
                _ => Time(now.0 + if random >> 33 & 255 == 0 { 40_000_000 } else { 1000 }),
            };
            if bucket.standing(now) == Standing::Within {
                bucket.charge(bytes, now, BURST_NS);
                served.push((now.0, bytes));
            }
        }
        assert!(served.len() > 10_000);
        for window in [100_000_000, 1_000_000_000] {
            let (mut first, mut sum) = (0, 0);
            for &(at, bytes) in &served {
                sum += bytes;
                while served[first].0 + window <= at {
                    sum -= served[first].1;
                    first += 1;
                }
                let most = 3_000_000 * (window + BURST_NS) / 1_000_000_000 + 16 * 4096;
                assert!(sum <= most, "{sum} bytes in {window} ns, at most {most}");
            }
        }
    }

    /// Room that is passed over is paid for beyond the rate, too, and holds a vSSD up for so long at most.
    #[test]
    fn unused_room_is_paid_for_up_to_a_bound() {
        let mut bucket = Bucket::default();
        bucket.charge_unused(1 << 40, Time(7), BURST_NS);
        assert_eq!(bucket.standing(Time(7)), Standing::Within, "it has no limit");
        let share = Share { rate_bytes_per_second: 1000, sharing: Sharing::Strict, ..Share::default() };
        bucket.set(share, Time::ZERO);
        bucket.charge_unused(1000, Time::ZERO, 0);
        assert_eq!(bucket.within_at(), Time(1_000_000_000));
        bucket.charge_unused(500, Time(1), 0);
        assert_eq!(bucket.within_at(), Time(1_500_000_000), "what is owed adds up");
        bucket.charge_unused(u64::MAX, Time(1), 0);
        assert_eq!(bucket.within_at(), Time(10_000_000_001));
        bucket.charge_unused(1, Time::ZERO, 0);
        assert_eq!(bucket.within_at(), Time(10_000_000_001), "nothing is forgiven");
    }

    #[test]
    fn beyond_the_rate_is_free_and_no_limit_is_always_within() {
        let mut bucket = Bucket::default();
        bucket.charge(1 << 40, Time(7), BURST_NS);
        assert_eq!(bucket.standing(Time(7)), Standing::Within);
        bucket.set(Share { rate_bytes_per_second: 1000, ..Share::default() }, Time(7));
        bucket.charge(1000, Time(7), 0);
        assert_eq!(bucket.standing(Time(8)), Standing::Beyond);
        bucket.charge(1 << 40, Time(8), 0);
        assert_eq!(bucket.within_at(), Time(1_000_000_007));
        assert_eq!(bucket.standing(bucket.within_at()), Standing::Within);
        // A rate of one byte a second and the largest operation overflow nothing.
        bucket.set(Share { rate_bytes_per_second: 1, ..Share::default() }, Time(7));
        bucket.charge(u64::MAX, Time(7), 0);
    }
}
