//! `max-score-picker`: the highest totals, ties broken at random.

use core::num::NonZeroUsize;
use std::sync::Arc;

use serde::Deserialize;

use crate::Few;
use crate::plugin::parameter::list_length;
use crate::plugin::{Picker, Plugin, Roles};
use crate::rng::Rng;

/// The best `max_num_of_endpoints` candidates, best first; candidates of equal total come in uniformly random
/// order.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MaxScorePicker {
    /// Length of the ordered list the proxy walks on failure; 0 and less count as 1.
    max_num_of_endpoints: i64,
}

impl MaxScorePicker {
    /// A picker of up to `endpoints` endpoints.
    pub fn of(endpoints: NonZeroUsize) -> Self {
        Self { max_num_of_endpoints: i64::try_from(endpoints.get()).unwrap_or(i64::MAX) }
    }
}

impl Default for MaxScorePicker {
    fn default() -> Self {
        Self::of(NonZeroUsize::MIN)
    }
}

impl Plugin for MaxScorePicker {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { picker: Some(self), ..Roles::default() }
    }
}

impl Picker for MaxScorePicker {
    fn pick(&self, candidates: &[usize], totals: &[f64], rng: &mut dyn Rng) -> Few<usize> {
        let length = self.max_endpoints();
        if length == 1 {
            return best(candidates, totals, rng).into_iter().collect();
        }
        // A random key for each candidate is the shuffle; sorting by (total, key) keeps equal totals
        // shuffled.
        let mut ranked: Vec<(f64, u64, usize)> = candidates
            .iter()
            .zip(totals)
            .map(|(&endpoint, &total)| (total, rng.next_u64(), endpoint))
            .collect();
        let better = |a: &(f64, u64, usize), b: &(f64, u64, usize)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if length < ranked.len() {
            ranked.select_nth_unstable_by(length, better);
            ranked.truncate(length);
        }
        ranked.sort_unstable_by(better);
        ranked.into_iter().map(|(_, _, endpoint)| endpoint).collect()
    }

    fn takes_the_highest(&self) -> bool {
        true
    }

    fn max_endpoints(&self) -> usize {
        list_length(self.max_num_of_endpoints)
    }
}

/// One of the best, uniformly: the n-th of equals replaces the choice with probability 1/n.
fn best(candidates: &[usize], totals: &[f64], rng: &mut dyn Rng) -> Option<usize> {
    let mut best = None;
    let mut highest = f64::NEG_INFINITY;
    let mut equals = 0;
    for (&endpoint, &total) in candidates.iter().zip(totals) {
        if total > highest {
            best = Some(endpoint);
            highest = total;
            equals = 1;
        } else if total >= highest {
            equals += 1;
            if rng.below(equals) == 0 {
                best = Some(endpoint);
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::test;

    fn pick(endpoints: i64, totals: &[f64], seed: u64) -> Vec<usize> {
        let candidates: Vec<usize> = (0..totals.len()).collect();
        MaxScorePicker { max_num_of_endpoints: endpoints }
            .pick(&candidates, totals, &mut SplitMix64::new(seed))
            .into_vec()
    }

    #[test]
    fn the_highest_total_wins() {
        assert_eq!(pick(1, &[10.0, 25.0, 15.0], 1), [1]);
    }

    #[test]
    fn both_of_two_equal_totals_come_first_in_any_order() {
        for seed in 0..20 {
            let mut picked = pick(2, &[50.0, 50.0, 30.0], seed);
            picked.sort_unstable();
            assert_eq!(picked, [0, 1], "seed {seed}");
        }
    }

    #[test]
    fn a_list_longer_than_the_candidates_is_all_of_them_sorted() {
        assert_eq!(pick(9, &[10.0, 25.0, 15.0], 1), [1, 2, 0]);
    }

    #[test]
    fn a_length_of_nothing_is_one() {
        assert_eq!(pick(0, &[1.0, 2.0], 1), [1]);
        assert_eq!(pick(-3, &[1.0, 2.0], 1), [1]);
    }

    #[test]
    fn ties_are_broken_uniformly() {
        for endpoints in [1, 2] {
            let mut first = [0; 4];
            for seed in 0..8_000 {
                first[pick(endpoints, &[7.0, 7.0, 1.0, 7.0], seed)[0]] += 1;
            }
            let [a, b, never, c] = first;
            assert_eq!(never, 0);
            assert!([a, b, c].iter().all(|n| (2_400..2_940).contains(n)), "{first:?}");
        }
    }
}
