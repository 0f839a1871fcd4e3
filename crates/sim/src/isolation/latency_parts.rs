//! Where a read's time goes: on the shard's core before it is begun, in the device and on its host link, and on the core
//! again until it is answered.

use diecut_namespace::contract::CommandToken;
use diecut_shard::TracePoint;
use diecut_units::Time;
use std::collections::BTreeMap;

/// Reads on each side of a quantile, as a part of all, that stand for it.
const AROUND: f64 = 0.0025;

/// When a command was begun, and done.
type OnTheWay = (Time, Time);

/// See the module.
#[derive(Default)]
pub(super) struct LatencyParts {
    under_way: BTreeMap<u64, OnTheWay>,
    /// Nanoseconds of each read that is over: all, until it was begun, until it was done, until it was answered.
    over: Vec<[u64; 4]>,
}

impl LatencyParts {
    /// Hears what happened to commands.
    pub fn note(&mut self, trace: &mut Vec<(CommandToken, TracePoint, Time)>) {
        for (token, point, at) in trace.drain(..) {
            let (admitted, done) = self.under_way.entry(token.0).or_default();
            match point {
                TracePoint::Admitted => *admitted = at,
                TracePoint::Done => *done = at,
            }
        }
    }

    /// A command was answered.
    pub fn end(&mut self, token: CommandToken) -> OnTheWay {
        self.under_way.remove(&token.0).expect("it was begun and done")
    }

    /// Keeps a read that was due, begun, done and answered then.
    pub fn keep(&mut self, due: Time, (admitted, done): OnTheWay, answered: Time) {
        let parts = [admitted.since(due), done.since(admitted), answered.since(done)].map(|span| span.0);
        self.over.push([parts.iter().sum(), parts[0], parts[1], parts[2]]);
    }

    /// Mean parts of the reads around a quantile of the whole, in microseconds.
    pub fn parts_us(&mut self, quantile: f64) -> [f64; 3] {
        self.over.sort_unstable();
        let place = |quantile: f64| (self.over.len() as f64 * quantile.clamp(0.0, 1.0)) as usize;
        let around = &self.over[place(quantile - AROUND)..place(quantile + AROUND)];
        let mean = |part: usize| {
            around.iter().map(|read| read[part] as f64).sum::<f64>() / around.len().max(1) as f64 / 1000.0
        };
        [mean(1), mean(2), mean(3)]
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// The parts are of the reads at the quantile, not of all, and each is where it belongs.
    #[test]
    fn parts_are_those_of_the_reads_at_the_quantile() {
        let mut parts = LatencyParts::default();
        for number in 0..1000u64 {
            let slow = u64::from(number % 50 == 0);
            let (token, due) = (CommandToken(number), Time(number * 1_000_000));
            let admitted = Time(due.0 + 2_000);
            let done = Time(admitted.0 + 50_000 + slow * 100_000);
            let answered = Time(done.0 + 3_000);
            let mut trace = vec![(token, TracePoint::Admitted, admitted), (token, TracePoint::Done, done)];
            parts.note(&mut trace);
            let on_the_way = parts.end(token);
            parts.keep(due, on_the_way, answered);
        }
        assert_eq!(parts.parts_us(0.5), [2.0, 50.0, 3.0]);
        assert_eq!(parts.parts_us(0.99), [2.0, 150.0, 3.0]);
    }
}
