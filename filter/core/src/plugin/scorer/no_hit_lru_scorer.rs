//! `no-hit-lru-scorer`: requests without a cache hit go to the endpoint that got one longest ago.

use std::sync::Arc;

use serde::Deserialize;

use crate::decision::Records;
use crate::input::cycle::Cycle;
use crate::plugin::{Need, Plugin, Recorder, Roles, Routed, Scorer};
use crate::state::{ColdOrder, PluginState, Words};

/// Spreads cold requests: no candidate was sent a block of their prompt before.
///
/// Cold: with n candidates, the one that got a cold request longest ago scores 1, the next 1 − 1/(n−1), and
/// so on; those that never got one come first, in the pool's order. Not cold: every candidate scores 0.5.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NoHitLruScorer {
    /// Endpoints whose last cold request is remembered; 0 counts as 1024.
    lru_size: usize,
    /// The prefix producer whose matches determine whether a request is cold.
    prefix_match_info_producer_name: String,
    /// Accepted, without effect: the producer's type in earlier releases.
    prefix_plugin_type: String,
    /// Accepted, without effect.
    prefix_plugin_name: String,
}

const DEFAULT_SIZE: usize = 1024;

impl Default for NoHitLruScorer {
    fn default() -> Self {
        let prefix_match_info_producer_name = "approx-prefix-cache-producer".to_owned();
        Self {
            lru_size: DEFAULT_SIZE,
            prefix_match_info_producer_name,
            prefix_plugin_type: String::new(),
            prefix_plugin_name: String::new(),
        }
    }
}

/// Whether the prompt has no match at these endpoints.
fn is_cold(cycle: &Cycle<'_>, mut endpoints: impl Iterator<Item = usize>) -> bool {
    let prefix = cycle.prefix();
    endpoints.all(|endpoint| prefix.blocks(endpoint) == 0)
}

impl Plugin for NoHitLruScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self.clone()), recorder: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::prefix_producer(&self.prefix_match_info_producer_name)]
    }
}

impl Scorer for NoHitLruScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        if !is_cold(cycle, candidates.iter().copied()) {
            scores.fill(0.5);
            return;
        }
        let [_, _, ..] = candidates else {
            scores.fill(1.0);
            return;
        };
        let Some(order) = cycle.state::<ColdOrder>() else { return };
        let last = (candidates.len() - 1) as f64;
        let by_rank = |rank: usize| (1.0 - rank as f64 / last).max(0.0);
        let positions = order.positions(cycle.pool.as_slice().len());
        let position = |endpoint: usize| positions.get(endpoint).copied().flatten();
        let mut unused = 0;
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            if position(endpoint).is_none() {
                *score = by_rank(unused);
                unused += 1;
            }
        }
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            if let Some(position) = position(endpoint) {
                *score = by_rank(unused + position);
            }
        }
    }
}

impl Recorder for NoHitLruScorer {
    fn new_state(&self) -> Option<Box<dyn PluginState>> {
        Some(Box::new(ColdOrder::new(if self.lru_size == 0 { DEFAULT_SIZE } else { self.lru_size })))
    }

    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>, records: &mut Records) {
        if routed.rated.is_some_and(|rated| is_cold(cycle, rated.iter().copied())) {
            let change = |endpoint| cycle.state_change(endpoint, Words::new());
            records.changes.extend(routed.endpoints().map(change));
        }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::plugin::Stage;
    use crate::plugin::fixture::{Fixture, records};
    use crate::state::PluginStates;
    use crate::state::prefix::PrefixMatch;
    use crate::test;

    fn scores(used: &[usize], matched: &[u32]) -> Vec<f64> {
        let mut order = ColdOrder::new(9);
        for &endpoint in used {
            order.apply(endpoint, Duration::ZERO, &[]);
        }
        let mut fixture = Fixture::of(matched.len());
        fixture.states = PluginStates::only(Box::new(order));
        fixture.prefix(PrefixMatch {
            matched: matched.to_vec(),
            total: 4,
            block_size: 64,
            ..PrefixMatch::default()
        });
        fixture.scores(&NoHitLruScorer::default())
    }

    #[test]
    fn a_request_that_hits_somewhere_scores_neutral() {
        assert_eq!(scores(&[0], &[0, 1, 0]), [0.5, 0.5, 0.5]);
    }

    #[test]
    fn unused_endpoints_come_first_then_the_one_used_longest_ago() {
        assert_eq!(scores(&[], &[0, 0, 0]), [1.0, 0.5, 0.0]);
        assert_eq!(scores(&[0], &[0, 0, 0]), [0.0, 1.0, 0.5]);
        assert_eq!(scores(&[2, 0, 1], &[0, 0, 0]), [0.5, 0.0, 1.0]);
    }

    #[test]
    fn a_single_candidate_scores_one() {
        assert_eq!(scores(&[0], &[0]), [1.0]);
    }

    #[test]
    fn cold_requests_are_remembered_and_others_are_not() {
        let stages = [("prefill", 0), ("decode", 1)].map(|(profile, endpoint)| (profile, [endpoint]));
        let stages = stages.each_ref().map(|(profile, picked)| Stage { profile, picked });
        let record = |matched: &[u32], rated| {
            let routed = Routed { stages: &stages, primary: &stages[1], rated, hashes: None, matches: None };
            let mut fixture = Fixture::of(2);
            fixture.prefix(PrefixMatch {
                matched: matched.to_vec(),
                total: 4,
                block_size: 64,
                ..PrefixMatch::default()
            });
            fixture.with_cycle(|cycle| records(&NoHitLruScorer::default(), cycle, &routed).changes)
        };
        let both = [1, 0]
            .map(|endpoint| Fixture::of(2).with_cycle(|cycle| cycle.state_change(endpoint, Words::new())));
        assert_eq!(record(&[0, 0], Some(&[0, 1]))[..], both);
        assert_eq!(record(&[1, 0], Some(&[0, 1]))[..], []);
        assert_eq!(record(&[1, 0], Some(&[1]))[..], both, "only the endpoints that were scored count");
        assert_eq!(record(&[0, 0], None)[..], [], "nothing was scored");
    }
}
