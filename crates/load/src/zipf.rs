use rand::{Rng, RngExt};

/// Ranks 1 to `n` with probability proportional to `rank^-theta`, in constant time and memory.
///
/// Rejection inversion: W. Hoermann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", ACM TOMACS 6 (1996). fio computes the zeta sum instead, which takes a pass over all blocks.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    n: f64,
    theta: f64,
    h_first: f64,
    h_last: f64,
    squeeze: f64,
}

impl Zipf {
    /// For `n` ranks.
    ///
    /// # Panics
    /// If there is no rank, or theta is not above zero.
    pub fn new(n: u64, theta: f64) -> Zipf {
        assert!(n > 0 && theta > 0.0, "zipf over {n} ranks with theta {theta}");
        let mut zipf = Zipf { n: n as f64, theta, h_first: 0.0, h_last: 0.0, squeeze: 0.0 };
        zipf.h_first = zipf.h(1.5) - 1.0;
        zipf.h_last = zipf.h(zipf.n + 0.5);
        zipf.squeeze = 2.0 - zipf.h_inverse(zipf.h(2.5) - 2f64.powf(-theta));
        zipf
    }

    /// Integral of `x^-theta`.
    fn h(&self, x: f64) -> f64 {
        let log = x.ln();
        let exponent = 1.0 - self.theta;
        // Near theta = 1 the fraction has no meaning; its limit is the logarithm.
        if (exponent * log).abs() < 1e-8 { log } else { ((exponent * log).exp() - 1.0) / exponent }
    }

    fn h_inverse(&self, x: f64) -> f64 {
        let exponent = 1.0 - self.theta;
        let scaled = (x * exponent).max(-1.0);
        if scaled.abs() < 1e-8 { x.exp() } else { (scaled.ln_1p() / exponent).exp() }
    }

    /// A rank from 1 on; the lowest are the most frequent.
    pub fn sample(&self, random: &mut impl Rng) -> u64 {
        loop {
            let u = self.h_last + random.random::<f64>() * (self.h_first - self.h_last);
            let x = self.h_inverse(u);
            let rank = x.round().clamp(1.0, self.n);
            if rank - x <= self.squeeze || u >= self.h(rank + 0.5) - rank.powf(-self.theta) {
                return rank as u64;
            }
        }
    }
}

#[cfg(test)]
mod test {
    use super::*;
    use rand::SeedableRng;
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// The share of each of the first ranks is the law's, for theta below, at and above 1.
    #[test]
    fn shares_follow_the_law() {
        for theta in [0.6, 1.0, 1.2, 2.0] {
            let (n, samples) = (1000, 400_000);
            let zipf = Zipf::new(n, theta);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
            let mut counts = vec![0u32; n as usize + 1];
            for _ in 0..samples {
                counts[zipf.sample(&mut random) as usize] += 1;
            }
            assert_eq!(counts[0], 0);
            let zeta: f64 = (1..=n).map(|rank| (rank as f64).powf(-theta)).sum();
            for rank in [1usize, 2, 3, 10, 50] {
                let expected = f64::from(samples) * (rank as f64).powf(-theta) / zeta;
                let error = (f64::from(counts[rank]) - expected).abs();
                assert!(
                    error < 6.0 * expected.sqrt() + 1.0,
                    "theta {theta} rank {rank}: {} for {expected}",
                    counts[rank]
                );
            }
        }
    }
}
