//! Random numbers of tests.

/// A xorshift generator with a multiplication behind it: small, and good enough to choose what a test does next.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator that gives the same numbers for the same seed; any seed will do.
    pub const fn of(seed: u64) -> Random {
        // Seeds that differ in a bit begin far from each other; zero would stay zero.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below a limit.
    pub const fn below(&mut self, limit: u64) -> u64 {
        // The high bits are the best ones.
        (self.next() >> 11) % limit
    }
}

#[cfg(test)]
mod test {
    use super::Random;

    #[test]
    fn numbers_differ_by_seed_and_stay_below_their_limit() {
        let of = |seed| {
            let mut random = Random::of(seed);
            (0..1000).map(|_| random.below(10)).collect::<Vec<u64>>()
        };
        assert_eq!(of(0), of(0));
        assert_ne!(of(0), of(1));
        for seed in 0..20 {
            for number in 0..10 {
                let times = of(seed).iter().filter(|one| **one == number).count();
                assert!((50..200).contains(&times), "seed {seed}: {number} came {times} times of 1,000");
            }
        }
    }
}
