//! How often the cleaner tries: what it does while hosts write little must come to an end.
//!
//! Copies of a victim become safe behind filler, and each stream of the cleaner has a segment that is not full. So in a log that is full to its
//! last segments cleaning may give nothing, as often as it is done.

/// Victims for a segment's worth of host data at most, while writers do not wait. More than the write amplification that a store is used with.
const VICTIMS_PER_SEGMENT: u32 = 16;

/// See the module.
#[derive(Default)]
pub(super) struct Patience {
    /// Victims since hosts had written so much.
    victims: u32,
    since_ius: u64,
}

impl Patience {
    /// Whether another victim is worth a try, in a log where hosts wrote `user_ius` so far.
    pub fn tries(&mut self, user_ius: u64, segment_ius: u32) -> bool {
        // What was taken back is not written.
        if user_ius >= self.since_ius.saturating_add(segment_ius.into()) || user_ius < self.since_ius {
            (self.victims, self.since_ius) = (0, user_ius);
        }
        !self.is_over()
    }

    /// A victim was begun.
    pub fn count(&mut self) {
        self.victims += 1;
    }

    /// Whether hosts must write before another one is tried.
    pub fn is_over(&self) -> bool {
        self.victims >= VICTIMS_PER_SEGMENT
    }
}

#[cfg(test)]
mod test {
    use super::*;

    /// Goal: a log that nobody writes to is cleaned so often and no more, and one that is written to goes on.
    #[test]
    fn tries_come_back_with_what_hosts_write() {
        let mut patience = Patience::default();
        let mut tried = |user_ius| {
            let tries = patience.tries(user_ius, 100);
            patience.victims += u32::from(tries);
            tries
        };
        assert_eq!((0..50).filter(|_| tried(0)).count(), VICTIMS_PER_SEGMENT as usize);
        assert!(!tried(99));
        assert_eq!((0..50).filter(|_| tried(100)).count(), VICTIMS_PER_SEGMENT as usize);
        assert!((3..40).all(|segment| tried(segment * 100)));
    }
}
