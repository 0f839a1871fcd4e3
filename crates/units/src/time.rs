use std::fmt;
use std::ops::{Add, AddAssign, Mul, Sub};

/// A point in time: nanoseconds since an origin that the driver chose (start of a simulation, or the
/// monotonic clock's origin). Rooms receive it as a value and never ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(pub u64);

impl Time {
    /// The origin.
    pub const ZERO: Time = Time(0);
    /// Later than anything that happens.
    pub const NEVER: Time = Time(u64::MAX);

    /// Time passed since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// From nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Span {
        Span(nanos)
    }
    /// From microseconds.
    pub const fn from_micros(micros: u64) -> Span {
        Span(micros * 1_000)
    }
    /// From milliseconds.
    pub const fn from_millis(millis: u64) -> Span {
        Span(millis * 1_000_000)
    }
    /// From seconds.
    pub const fn from_secs(secs: u64) -> Span {
        Span(secs * 1_000_000_000)
    }
    /// As fractional seconds, for reports only.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
    /// As fractional microseconds, for reports only.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Span) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, factor: u64) -> Span {
        Span(self.0.saturating_mul(factor))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n < 10_000 => write!(f, "{n} ns"),
            n if n < 10_000_000 => write!(f, "{:.1} us", n as f64 / 1e3),
            n if n < 10_000_000_000 => write!(f, "{:.1} ms", n as f64 / 1e6),
            n => write!(f, "{:.2} s", n as f64 / 1e9),
        }
    }
}
