//! One direction of a byte stream in virtual time: segments arrive in order, whole and soon, or cut into pieces, delayed
//! and lost (and sent again, later and later, as TCP does), as the seed says. Streams know nothing of one another: what
//! was sent later on one arrives earlier than what was sent first on another.

use diecut_units::{Span, Time, mark};
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::VecDeque;

/// Until a lost segment is sent again; twice as long each time.
const RETRANSMISSION: Span = Span::from_millis(200);

/// Bytes on their way in one direction.
#[derive(Debug, Default)]
pub struct Pipe {
    /// Time a segment travels at least.
    latency: Span,
    segments: VecDeque<(Time, Vec<u8>)>,
    len_bytes: usize,
    /// Nothing overtakes what was sent before.
    last_arrival: Time,
}

impl Pipe {
    /// A pipe whose segments travel so long at least.
    pub fn new(latency: Span) -> Pipe {
        Pipe { latency, ..Pipe::default() }
    }

    /// Sends bytes at `now`.
    pub fn send(&mut self, bytes: &[u8], now: Time, smooth: bool, random: &mut Xoshiro256PlusPlus) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let length = if smooth || random.random_ratio(1, 2) {
                rest.len()
            } else {
                random.random_range(1..=rest.len().min(3000))
            };
            let delay = match random.random_range(0..4096) {
                _ if smooth => Span::ZERO,
                0..64 => Span::from_micros(random.random_range(1_000..20_000)),
                64..1024 => Span::from_micros(random.random_range(1..200)),
                1024..1027 => {
                    mark!("network: segment lost");
                    Span(RETRANSMISSION.0 << random.random_range(0..3))
                }
                _ => Span::ZERO,
            };
            let (piece, after) = rest.split_at(length);
            self.last_arrival = self.last_arrival.max(now + self.latency + delay);
            self.segments.push_back((self.last_arrival, piece.to_vec()));
            self.len_bytes += length;
            rest = after;
        }
    }

    /// What is on its way arrives so much later.
    pub fn delay(&mut self, by: Span) {
        for (at, _) in &mut self.segments {
            *at += by;
        }
        self.last_arrival += by;
    }

    /// When the next segment arrives.
    pub fn next_arrival(&self) -> Time {
        self.segments.front().map_or(Time::NEVER, |(at, _)| *at)
    }

    /// Takes the next segment if it has arrived.
    pub fn receive(&mut self, now: Time) -> Option<Vec<u8>> {
        if self.next_arrival() > now {
            return None;
        }
        let (_, bytes) = self.segments.pop_front()?;
        self.len_bytes -= bytes.len();
        Some(bytes)
    }

    /// Puts bytes back that were not taken: they arrive next.
    pub fn give_back(&mut self, bytes: &[u8], now: Time) {
        self.len_bytes += bytes.len();
        self.segments.push_front((now, bytes.to_vec()));
    }

    /// Bytes on their way.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
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
        let mut pipe = Pipe::new(Span::from_micros(10));
        let sent: Vec<u8> = (0..20_000u32).map(|n| n as u8).collect();
        for chunk in sent.chunks(999) {
            pipe.send(chunk, Time(5), false, &mut random);
        }
        assert_eq!(pipe.len_bytes(), sent.len());
        let (mut received, mut pieces, mut now) = (Vec::new(), 0, Time::ZERO);
        while !pipe.is_empty() {
            assert!(pipe.next_arrival() >= now);
            now = pipe.next_arrival();
            received.extend(pipe.receive(now).unwrap());
            pieces += 1;
        }
        assert_eq!(received, sent);
        assert!(pieces > 25 && pipe.len_bytes() == 0, "{pieces} pieces");
    }

    #[test]
    fn what_is_delayed_is_not_overtaken() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut pipe = Pipe::default();
        pipe.send(&[1], Time::ZERO, true, &mut random);
        pipe.delay(Span::from_secs(1));
        pipe.send(&[2], Time::ZERO, true, &mut random);
        let at = pipe.next_arrival();
        assert!(at >= Time::ZERO + Span::from_secs(1));
        assert_eq!((pipe.receive(at), pipe.receive(at)), (Some(vec![1]), Some(vec![2])));
    }
}
