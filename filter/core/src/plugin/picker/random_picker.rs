//! `random-picker`: any candidate that passed the filters, at random.

use std::sync::Arc;

use serde::Deserialize;

use crate::Few;
use crate::plugin::parameter::list_length;
use crate::plugin::{Picker, Plugin, Roles};
use crate::rng::Rng;

/// `max_num_of_endpoints` of the candidates in uniformly random order; scores do not matter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct RandomPicker {
    /// Length of the ordered list the proxy walks on failure; 0 and less count as 1.
    max_num_of_endpoints: i64,
}

impl RandomPicker {
    /// A picker of up to `length` endpoints.
    pub(super) fn of(length: usize) -> Self {
        Self { max_num_of_endpoints: i64::try_from(length).unwrap_or(i64::MAX) }
    }
}

impl Default for RandomPicker {
    fn default() -> Self {
        Self { max_num_of_endpoints: 1 }
    }
}

impl Plugin for RandomPicker {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { picker: Some(self), ..Roles::default() }
    }
}

impl Picker for RandomPicker {
    fn pick(&self, candidates: &[usize], _: &[f64], rng: &mut dyn Rng) -> Few<usize> {
        let length = self.max_endpoints().min(candidates.len());
        if length == 1 {
            return candidates.get(rng.below(candidates.len())).copied().into_iter().collect();
        }
        // The first steps of a Fisher-Yates shuffle.
        let mut picked = candidates.to_vec();
        for at in 0..length {
            let from = at + rng.below(picked.len() - at);
            picked.swap(at, from);
        }
        picked.truncate(length);
        picked.into()
    }

    fn max_endpoints(&self) -> usize {
        list_length(self.max_num_of_endpoints)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SplitMix64;
    use crate::test;

    fn pick(max_num_of_endpoints: i64, seed: u64) -> Vec<usize> {
        let picker = RandomPicker { max_num_of_endpoints };
        picker.pick(&[4, 5, 6, 7], &[9.0, 0.0, 0.0, -1.0], &mut SplitMix64::new(seed)).into_vec()
    }

    #[test]
    fn every_candidate_comes_first_equally_often_whatever_its_score() {
        for length in [1, 2, 9] {
            let mut first = [0; 4];
            for seed in 0..8_000 {
                first[pick(length, seed)[0] - 4] += 1;
            }
            assert!(first.iter().all(|n| (1_850..2_150).contains(n)), "length {length}: {first:?}");
        }
    }

    #[test]
    fn a_list_names_each_endpoint_once() {
        for seed in 0..50 {
            let mut picked = pick(3, seed);
            picked.sort_unstable();
            picked.dedup();
            assert_eq!(picked.len(), 3, "seed {seed}");
            assert_eq!(pick(9, seed).len(), 4);
            assert_eq!(pick(0, seed).len(), 1);
        }
    }
}
