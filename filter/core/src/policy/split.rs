//! Splitting requests over models by weight.

use crate::rng::Rng;

/// A model that may serve requests, and its part of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The model.
    pub model: String,
    /// Its part, relative to the others.
    pub weight: Option<u32>,
}

/// Targets with their shares of `total`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Split {
    shares: Vec<(String, u64)>,
    total: u64,
}

impl Split {
    /// A target without a weight has no share. If no target has a weight above 0, all have the same share.
    pub(super) fn or_even(targets: Vec<Target>) -> Self {
        let is_even = targets.iter().all(|target| target.weight.unwrap_or(0) == 0);
        Self::new(targets, is_even)
    }

    /// If the first target has no weight, all have the same share. Otherwise a target without a weight has no
    /// share.
    pub(super) fn weighted_unless_first_is_not(targets: Vec<Target>) -> Self {
        let is_even = targets.first().is_some_and(|target| target.weight.is_none());
        Self::new(targets, is_even)
    }

    fn new(targets: Vec<Target>, is_even: bool) -> Self {
        let share = |weight: Option<u32>| if is_even { 1 } else { u64::from(weight.unwrap_or(0)) };
        let shares: Vec<_> = targets.into_iter().map(|target| (target.model, share(target.weight))).collect();
        let total = shares.iter().map(|(_, share)| share).sum();
        Self { shares, total }
    }

    /// A random target; `None` if no share is above 0.
    pub(super) fn draw(&self, rng: &mut dyn Rng) -> Option<&str> {
        let mut at = below(self.total, rng);
        for (model, share) in &self.shares {
            if at < *share {
                return Some(model);
            }
            at -= share;
        }
        None
    }
}

/// Uniform over `0..bound`, as [`Rng::below`] for bounds that a 32-bit host cannot hold.
fn below(bound: u64, rng: &mut dyn Rng) -> u64 {
    ((u128::from(rng.next_u64()) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::test;

    const SEED: u64 = 11;
    const DRAWS: u32 = 10_000;

    fn targets(weights: &[Option<u32>]) -> Vec<Target> {
        let named = weights.iter().enumerate();
        named.map(|(index, &weight)| Target { model: index.to_string(), weight }).collect()
    }

    /// The number of draws of each target.
    fn counts(split: &Split) -> Vec<u32> {
        let mut rng = SplitMix64::new(SEED);
        let mut counts = vec![0; split.shares.len()];
        for _ in 0..DRAWS {
            if let Some(drawn) = split.draw(&mut rng) {
                counts[drawn.parse::<usize>().unwrap()] += 1;
            }
        }
        counts
    }

    /// Checks that every target got its part of the draws, within five standard deviations.
    fn assert_parts(split: &Split, parts: &[f64]) {
        for (index, (&count, &part)) in counts(split).iter().zip(parts).enumerate() {
            let expected = f64::from(DRAWS) * part;
            let tolerance = 5.0 * (expected * (1.0 - part)).sqrt();
            let distance = (f64::from(count) - expected).abs();
            assert!(
                distance <= tolerance,
                "target {index} of {split:?}: {count} draws of {DRAWS}, seed {SEED}"
            );
        }
    }

    #[test]
    fn targets_of_a_rewrite_get_their_weight_of_the_sum_and_all_the_same_if_that_is_nothing() {
        for (weights, parts) in [
            (&[Some(10), Some(90)][..], &[0.1, 0.9][..]),
            (&[Some(1), Some(1), Some(2)], &[0.25, 0.25, 0.5]),
            (&[Some(u32::MAX), Some(u32::MAX)], &[0.5, 0.5]),
            (&[None, None], &[0.5, 0.5]),
            (&[Some(0), Some(0), Some(0), Some(0)], &[0.25, 0.25, 0.25, 0.25]),
            (&[Some(0), None], &[0.5, 0.5]),
            (&[None, Some(3)], &[0.0, 1.0]),
            (&[Some(3), None, Some(0)], &[1.0, 0.0, 0.0]),
            (&[None], &[1.0]),
        ] {
            assert_parts(&Split::or_even(targets(weights)), parts);
        }
    }

    #[test]
    fn targets_of_an_inference_model_are_equal_if_the_first_has_no_weight() {
        for (weights, parts) in [
            (&[Some(10), Some(90)][..], &[0.1, 0.9][..]),
            (&[None, Some(90)], &[0.5, 0.5]),
            (&[None, None, None, None], &[0.25, 0.25, 0.25, 0.25]),
            (&[Some(2), None], &[1.0, 0.0]),
            (&[Some(0), Some(0)], &[0.0, 0.0]),
            (&[Some(0), None], &[0.0, 0.0]),
        ] {
            assert_parts(&Split::weighted_unless_first_is_not(targets(weights)), parts);
        }
    }

    #[test]
    fn nothing_is_drawn_where_there_is_no_target() {
        assert_eq!(Split::or_even(vec![]).draw(&mut SplitMix64::new(SEED)), None);
        assert_eq!(Split::weighted_unless_first_is_not(vec![]).draw(&mut SplitMix64::new(SEED)), None);
    }
}
