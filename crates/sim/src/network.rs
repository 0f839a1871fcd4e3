//! One direction of a byte stream in virtual time: segments arrive in order, whole and soon, or cut into pieces
//! and delayed, as the seed says.

use diecut_units::{Span, Time};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// Time a segment travels at least.
const LATENCY: Span = Span::from_micros(10);

/// Bytes on their way in one direction.
#[derive(Debug, Default)]
pub struct Pipe {
    segments: VecDeque<(Time, Vec<u8>)>,
    /// Nothing overtakes what was sent before.
    last_arrival: Time,
}

impl Pipe {
    /// Sends bytes at `now`.
    pub fn send(&mut self, bytes: &[u8], now: Time, smooth: bool, random: &mut Xoshiro256PlusPlus) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = if smooth || random.random_ratio(1, 2) {
                rest.len()
            } else {
                random.random_range(1..=rest.len().min(3000))
            };
            let delay = match random.random_range(0..64) {
                _ if smooth => Span::ZERO,
                0 => Span::from_micros(random.random_range(1_000..20_000)),
                1..16 => Span::from_micros(random.random_range(1..200)),
                _ => Span::ZERO,
            };
            let (piece, after) = rest.split_at(length);
            self.last_arrival = self.last_arrival.max(now + LATENCY + delay);
            self.segments.push_back((self.last_arrival, piece.to_vec()));
            rest = after;
        }
    }

    /// When the next segment arrives.
    pub fn next_arrival(&self) -> Time {
        self.segments.front().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Takes the next segment if it has arrived.
    pub fn receive(&mut self, now: Time) -> Option<Vec<u8>> {
        (self.next_arrival() <= now).then(|| self.segments.pop_front().expect("has an arrival").1)
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn bytes_arrive_in_order_whatever_the_cuts() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut pipe = Pipe::default();
        let sent: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
        for chunk in sent.chunks(999) {
            pipe.send(chunk, Time(5), false, &mut random);
        }
        let (mut received, mut pieces, mut now) = (Vec::new(), 0, Time::ZERO);
        while !pipe.is_empty() {
            assert!(pipe.next_arrival() >= now);
            now = pipe.next_arrival();
            received.extend(pipe.receive(now).unwrap());
            pieces += 1;
        }
        assert_eq!(received, sent);
        assert!(pieces > 25, "{pieces} pieces");
    }
}
