/// Division by a number that is known when a store opens: a multiplication and a shift in place of a division, which
/// would be the dearest step of an address look-up (Granlund and Montgomery, "Division by invariant integers", 1994).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Divisor {
    divisor: u32,
    factor: u64,
}

const SHIFT: u32 = 40;

impl Divisor {
    /// Exact for dividends below `dividend_end`.
    ///
    /// # Panics
    /// If the divisor is zero or more than 2^16, or `dividend_end` more than 2^24.
    pub fn new(divisor: u32, dividend_end: u64) -> Divisor {
        assert!(
            divisor > 0 && divisor <= 1 << 16 && dividend_end <= 1 << 24,
            "too large for a multiplication"
        );
        Divisor { divisor, factor: (1 << SHIFT) / u64::from(divisor) + 1 }
    }
    /// Quotient.
    #[inline]
    pub fn quotient(&self, dividend: u32) -> u32 {
        ((u64::from(dividend) * self.factor) >> SHIFT) as u32
    }
    /// Quotient and remainder.
    #[inline]
    pub fn split(&self, dividend: u32) -> (u32, u32) {
        let quotient = self.quotient(dividend);
        (quotient, dividend - quotient * self.divisor)
    }
}

#[cfg(test)]
mod test {
    use super::Divisor;

    #[test]
    fn quotients_are_exact_up_to_the_end() {
        for divisor in (1..200).chain([4095, 4096, 16_384, 65_535, 65_536]) {
            let end = 1 << 24;
            let by = Divisor::new(divisor, end.into());
            let near = |n: u32| n.saturating_sub(300)..(n + 300).min(end);
            for dividend in
                (0..2000).chain(near(end)).chain(near(end / 3)).chain(near(end / divisor * divisor))
            {
                assert_eq!(
                    by.split(dividend),
                    (dividend / divisor, dividend % divisor),
                    "{dividend} / {divisor}"
                );
            }
        }
    }
}
