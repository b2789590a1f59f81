//! `weighted-random-picker`: at random, in proportion to the totals.

use std::sync::Arc;

use serde::Deserialize;

use crate::Few;
use crate::plugin::parameter::list_length;
use crate::plugin::{Picker, Plugin, RandomPicker, Roles};
use crate::rng::{Rng, shuffle};

/// Draws `max_num_of_endpoints` candidates without replacement, each draw in proportion to the totals; those
/// of 0 or less come last. If no total is above 0, every candidate is as likely as any other.
///
/// Weighted sampling by keys (Efraimidis and Spirakis, 2006, algorithm A-Res): the largest U^(1/w) first, w
/// the total and U uniform over 0..1. The keys here are ln(U)/w, which has the same order and does not
/// underflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct WeightedRandomPicker {
    /// Length of the ordered list the proxy walks on failure; 0 and less count as 1.
    max_num_of_endpoints: i64,
}

impl Plugin for WeightedRandomPicker {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { picker: Some(self), ..Roles::default() }
    }
}

impl Picker for WeightedRandomPicker {
    fn pick(&self, candidates: &[usize], totals: &[f64], rng: &mut dyn Rng) -> Few<usize> {
        let length = self.max_endpoints();
        if !totals.iter().any(|&total| total > 0.0) {
            return RandomPicker::of(length).pick(candidates, totals, rng);
        }
        let keyed = candidates.iter().zip(totals).map(|(&endpoint, &total)| (key(total, rng), endpoint));
        if length == 1 {
            let first = keyed.max_by(|a, b| a.0.total_cmp(&b.0));
            return first.map(|(_, endpoint)| endpoint).into_iter().collect();
        }
        let mut ranked: Vec<(f64, usize)> = keyed.collect();
        // Shuffled before, those whose totals are 0 or less stay in random order.
        shuffle(&mut ranked, rng);
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0));
        ranked.into_iter().take(length).map(|(_, endpoint)| endpoint).collect()
    }

    fn max_endpoints(&self) -> usize {
        list_length(self.max_num_of_endpoints)
    }
}

fn key(weight: f64, rng: &mut dyn Rng) -> f64 {
    // The EPP's replacement for 0, which has no logarithm.
    const LEAST: f64 = 1e-10;
    if weight > 0.0 { rng.unit().max(LEAST).ln() / weight } else { f64::NEG_INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::test;

    fn pick(endpoints: i64, totals: &[f64], seed: u64) -> Vec<usize> {
        let candidates: Vec<usize> = (0..totals.len()).collect();
        let picker = WeightedRandomPicker { max_num_of_endpoints: endpoints };
        picker.pick(&candidates, totals, &mut SplitMix64::new(seed)).into_vec()
    }

    fn firsts<const N: usize>(endpoints: i64, totals: [f64; N]) -> [u32; N] {
        let mut first = [0; N];
        for seed in 0..10_000 {
            first[pick(endpoints, &totals, seed)[0]] += 1;
        }
        first
    }

    #[test]
    fn an_endpoint_comes_first_in_proportion_to_its_total() {
        for endpoints in [1, 3] {
            let [one, three, six] = firsts(endpoints, [0.1, 0.3, 0.6]);
            assert!((900..1_100).contains(&one), "{one}");
            assert!((2_850..3_150).contains(&three), "{three}");
            assert!((5_850..6_150).contains(&six), "{six}");
        }
    }

    #[test]
    fn tiny_totals_keep_their_proportion() {
        let [one, three] = firsts(1, [1e-9, 3e-9]);
        assert!((2_350..2_650).contains(&one) && one + three == 10_000, "{one}");
    }

    #[test]
    fn a_total_of_nothing_comes_last() {
        for seed in 0..200 {
            let picked = pick(3, &[0.0, 0.5, -2.0], seed);
            assert_eq!((picked[0], picked.len()), (1, 3), "seed {seed}");
            assert_eq!(pick(1, &[0.0, 0.5, -2.0], seed), [1], "seed {seed}");
        }
    }

    #[test]
    fn without_a_total_above_zero_all_are_equally_likely() {
        let first = firsts(1, [0.0, -1.0, 0.0, 0.0]);
        assert!(first.iter().all(|n| (2_350..2_650).contains(n)), "{first:?}");
    }
}
