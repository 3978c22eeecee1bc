//! Pseudo-random numbers from a seed: xoshiro256**, seeded by splitmix64 (Blackman and Vigna).
//!
//! The same seed gives the same numbers on every machine and in every release. For traffic and for tests, never for
//! secrets.

use rand_xoshiro::Xoshiro256StarStar;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::unit::Nanos;

/// A generator of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256StarStar);

impl Random {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Random {
        Random(Xoshiro256StarStar::seed_from_u64(seed))
    }

    /// Any number of 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number less than `n`; 0 if `n` is 0. Its bias is less than `n` in 2^64.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low.saturating_add(self.below(high.saturating_sub(low).saturating_add(1)))
    }

    /// True `percent` times in a hundred.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `items`; `None` if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// Time until the next of independent events that come once in `mean` on average: exponentially distributed, at
    /// most 32 times the mean.
    ///
    /// The logarithm is computed with additions and shifts alone, so that the result is the same on every machine.
    pub fn exponential(&mut self, mean: Nanos) -> Nanos {
        // -ln(u) for u = m * 2^-e, m in [1, 2): e * ln 2 - ln m; in units of 2^-32.
        const LN_2: u64 = 2_977_044_472;
        let u = self.next_u64() | 1;
        let exponent = u64::from(u.leading_zeros()) + 1;
        let mut mantissa = (u << u.leading_zeros()) >> 1;
        // ln m bit by bit: squaring m doubles its logarithm (base 2).
        let mut log2 = 0u64;
        for _ in 0..32 {
            mantissa = ((u128::from(mantissa) * u128::from(mantissa)) >> 62) as u64;
            log2 <<= 1;
            if mantissa >= 1 << 63 {
                log2 |= 1;
                mantissa >>= 1;
            }
        }
        let log = (exponent << 32).saturating_sub(log2);
        let natural = (u128::from(log) * u128::from(LN_2)) >> 32;
        let nanos = (u128::from(mean.0) * natural.min(32 << 32)) >> 32;
        Nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_published_sequence() {
        // splitmix64 of seed 1234567 begins so, in its authors' reference implementation; and the first number is made
        // of the second word of the state.
        let state = [6_457_827_717_110_365_317u64, 3_203_168_211_198_807_973];
        let first = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        assert_eq!(Random::new(1_234_567).next_u64(), first);
        // xoshiro256** from the state 1, 2, 3, 4, likewise.
        let mut seed = [0; 32];
        (1..).zip(seed.chunks_mut(8)).for_each(|(word, bytes)| bytes[0] = word);
        let mut random = Random(Xoshiro256StarStar::from_seed(seed));
        let begin = [(); 4].map(|()| random.next_u64());
        assert_eq!(begin, [11520, 0, 1_509_978_240, 1_215_971_899_390_074_240]);
    }

    #[test]
    fn distributions() {
        let mut random = Random::new(7);
        let mut counts = [0u32; 10];
        let mut sum = 0.0;
        let (mut long, mut hits) = (0, 0);
        for _ in 0..100_000 {
            counts[random.below(10) as usize] += 1;
            hits += u32::from(random.chance(30));
            let wait = random.exponential(Nanos(1_000_000)).0 as f64 / 1e6;
            sum += wait;
            long += u32::from(wait > 2.0);
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert!((29_000..31_000).contains(&hits));
        assert!((sum / 1e5 - 1.0).abs() < 0.02, "mean {}", sum / 1e5);
        // e^-2 is 0.1353.
        assert!((13_000..14_100).contains(&long), "{long}");
        assert_eq!(random.below(0), 0);
        assert_eq!(random.pick::<u8>(&[]), None);
        assert_eq!(random.between(5, 5), 5);
    }
}
