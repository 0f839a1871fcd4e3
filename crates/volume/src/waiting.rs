//! Changes that were made and wait to be durable.

use crate::contract::{VolumeCompletion, VolumeError, VolumeToken};
use diecut_units::{Span, Time};
use std::collections::VecDeque;

/// Completions that wait, in the order of sequences.
pub(crate) struct Waiting {
    /// Each with the sequence before which all is to be durable.
    completions: VecDeque<(u64, VolumeToken)>,
    /// When they do not wait any more for others to fill their chunk.
    pad_at: Time,
}

impl Waiting {
    pub fn new() -> Waiting {
        Waiting { completions: VecDeque::new(), pad_at: Time::NEVER }
    }

    pub fn is_empty(&self) -> bool {
        self.completions.is_empty()
    }

    /// A completion waits.
    pub fn push(&mut self, sequence: u64, token: VolumeToken) {
        let last = self.completions.back().map_or(0, |(last, _)| *last);
        assert!(sequence >= last, "I-M7: completions wait in the order of their changes");
        self.completions.push_back((sequence, token));
    }

    /// Chunks are padded at this time, or earlier.
    pub fn pad_after(&mut self, now: Time, span: Span) {
        if self.pad_at == Time::NEVER {
            self.pad_at = now + span;
        }
    }

    /// The last sequence that is waited for.
    pub fn last(&self) -> Option<u64> {
        self.completions.back().map(|(last, _)| *last)
    }

    /// The last sequence that is waited for, when it is time to pad.
    pub fn take_due(&mut self, now: Time) -> Option<u64> {
        let last = self.last().filter(|_| now >= self.pad_at)?;
        self.pad_at = Time::NEVER;
        Some(last)
    }

    /// Answers what is durable.
    pub fn answer(&mut self, durable: u64, completions: &mut Vec<VolumeCompletion>) {
        while let Some((_, token)) = self.completions.pop_front_if(|(sequence, _)| durable >= *sequence) {
            completions.push(VolumeCompletion { token, result: Ok(()), destination: None });
        }
        if self.completions.is_empty() {
            self.pad_at = Time::NEVER;
        }
    }

    /// Nothing makes the rest durable any more.
    pub fn fail(&mut self, error: &VolumeError, completions: &mut Vec<VolumeCompletion>) {
        let failed = self.completions.drain(..).map(|(_, token)| token);
        completions.extend(failed.map(|token| VolumeCompletion {
            token,
            result: Err(error.clone()),
            destination: None,
        }));
        self.pad_at = Time::NEVER;
    }

    /// When it is time to pad.
    pub fn deadline(&self) -> Time {
        if self.completions.is_empty() { Time::NEVER } else { self.pad_at }
    }
}

#[cfg(test)]
mod test {
    use super::*;

    fn answered(completions: &[VolumeCompletion]) -> Vec<(u64, bool)> {
        completions.iter().map(|one| (one.token.0, one.result.is_ok())).collect()
    }

    /// Goal: nothing is answered before it is durable, and chunks are padded once for all that wait. Method: three completions, with the
    /// durable sequence and the clock moved by hand.
    #[test]
    fn completions_wait_until_they_are_durable() {
        let mut waiting = Waiting::new();
        let mut completions = Vec::new();
        for (sequence, token) in [(3, 30), (3, 31), (7, 70)] {
            waiting.pad_after(Time(100 + token), Span::from_nanos(50));
            waiting.push(sequence, VolumeToken(token));
        }
        assert_eq!((waiting.deadline(), waiting.take_due(Time(179))), (Time(180), None));
        assert_eq!(waiting.take_due(Time(180)), Some(7));
        assert_eq!(waiting.deadline(), Time::NEVER);
        waiting.answer(2, &mut completions);
        assert!(completions.is_empty());
        waiting.answer(3, &mut completions);
        assert_eq!(answered(&completions), [(30, true), (31, true)]);
        waiting.fail(&VolumeError::Gone, &mut completions);
        assert_eq!(answered(&completions)[2..], [(70, false)]);
        assert!(waiting.is_empty());
    }
}
