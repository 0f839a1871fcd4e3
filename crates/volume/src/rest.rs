//! When steps of a store are left out: reads come in numbers, and what a store does in a step has nothing to do with most of them.

/// What a step that found nothing to do depends on. Everything else that it looks at changes with an event that ends the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Sequence that the next entry gets.
    pub next_sequence: u64,
    /// What the space says of its blocks.
    pub free_changes: u64,
}

/// Whether a store rests: its next step would do what the last one did, which was nothing.
#[derive(Default)]
pub(crate) struct Rest {
    seen: Option<Seen>,
    holds: bool,
}

impl Rest {
    /// Something came that a step may have to do something about.
    pub fn end(&mut self) {
        *self = Rest::default();
    }

    /// Whether a step would find nothing to do.
    #[inline]
    pub fn holds(&self, free_changes: Option<u64>) -> bool {
        self.holds && self.seen.map(|seen| seen.free_changes) == free_changes
    }

    /// A step is over; `seen` if it left nothing to do. The first such one may have done something, so the store rests after the second one
    /// that saw the same.
    pub fn step(&mut self, seen: Option<Seen>) {
        self.holds = seen.is_some() && seen == self.seen;
        self.seen = seen;
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: a store rests only while nothing it looks at changes. Method: steps that see this and that.
    #[test]
    fn rest_begins_when_two_steps_saw_the_same() {
        let mut rest = Rest::default();
        let seen = Seen { next_sequence: 7, free_changes: 3 };
        rest.step(Some(seen));
        assert!(!rest.holds(Some(3)), "what was seen first may be what was done");
        rest.step(Some(seen));
        assert!(rest.holds(Some(3)));
        assert!(!rest.holds(Some(4)) && !rest.holds(None), "blocks came or went");
        rest.step(Some(Seen { next_sequence: 8, ..seen }));
        assert!(!rest.holds(Some(3)));
        rest.step(None);
        rest.step(None);
        assert!(!rest.holds(Some(3)) && !rest.holds(None));
        rest.step(Some(seen));
        rest.end();
        rest.step(Some(seen));
        assert!(!rest.holds(Some(3)), "an event came between the two");
    }
}
