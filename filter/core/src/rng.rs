//! Randomness, handed in by the shell.

/// A source of uniform random numbers. Not for secrets.
pub trait Rng {
    /// Uniform over all 64-bit values.
    fn next_u64(&mut self) -> u64;

    /// Uniform over `0..bound`, 0 when `bound` is 0.
    ///
    /// Multiply-shift (Lemire, 2019) without its rejection step: the bias is below `bound / 2^64`.
    #[expect(clippy::cast_possible_truncation, reason = "below `bound`, which is a usize")]
    fn below(&mut self, bound: usize) -> usize {
        let product = u128::from(self.next_u64()) * bound as u128;
        (product >> 64) as usize
    }

    /// Uniform over `0.0..1.0`, in steps of 2⁻⁵³.
    fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

/// Puts the items into random order, each order equally likely (Fisher and Yates).
pub(crate) fn shuffle<T>(items: &mut [T], rng: &mut dyn Rng) {
    for at in (1..items.len()).rev() {
        items.swap(at, rng.below(at + 1));
    }
}

/// The `SplitMix64` generator (Steele, Lea and Flood, 2014): one addition and a mix per number, any seed is
/// good.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }
}

impl Rng for SplitMix64 {
    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    /// The first outputs for seed 1234567, as published with the EPP implementation's test vectors.
    #[test]
    fn splitmix_gives_the_published_sequence() {
        let mut rng = SplitMix64::new(1_234_567);
        assert_eq!(rng.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_reaches_every_value_and_none_outside() {
        let mut rng = SplitMix64::new(7);
        let mut seen = [0; 5];
        for _ in 0..10_000 {
            seen[rng.below(5)] += 1;
        }
        assert!(seen.iter().all(|&n| (1_800..2_200).contains(&n)), "{seen:?}");
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn unit_stays_below_one() {
        struct Max;
        impl Rng for Max {
            fn next_u64(&mut self) -> u64 {
                u64::MAX
            }
        }
        assert!(Max.unit() < 1.0);
    }
}
