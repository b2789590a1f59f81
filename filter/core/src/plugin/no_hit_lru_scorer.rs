//! `no-hit-lru-scorer`: requests that hit no cache go around, longest unused first.

use std::collections::VecDeque;

use serde::Deserialize;

use super::{Plugin, Recorder, Routed, Scorer};
use crate::cycle::Cycle;
use crate::plugin_state::{Change, PluginState};

/// Spreads cold requests, those of whose prompt no candidate has seen a block.
///
/// Cold: with n candidates, the one that got a cold request longest ago scores 1, the next 1 − 1/(n−1), and so on; those
/// that never got one come first, in the pool's order. Not cold: every candidate scores 0.5.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct NoHitLruScorer {
    /// Endpoints whose last cold request is remembered; 0 counts as 1024.
    lru_size: usize,
    /// Whose matches tell whether a request is cold.
    prefix_match_info_producer_name: String,
    /// Accepted, without effect: what earlier releases called the producer.
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

impl NoHitLruScorer {
    fn is_cold(&self, cycle: &Cycle<'_>, mut endpoints: impl Iterator<Item = usize>) -> bool {
        let prefix = cycle.prefix(&self.prefix_match_info_producer_name);
        endpoints.all(|endpoint| prefix.blocks(endpoint) == 0)
    }
}

impl Plugin for NoHitLruScorer {
    fn as_scorer(&self) -> Option<&dyn Scorer> {
        Some(self)
    }

    fn as_recorder(&self) -> Option<&dyn Recorder> {
        Some(self)
    }

    fn reads_prefixes_of(&self) -> Option<&str> {
        Some(&self.prefix_match_info_producer_name)
    }
}

impl Scorer for NoHitLruScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        if !self.is_cold(cycle, candidates.iter().copied()) {
            scores.fill(0.5);
            return;
        }
        let [_, _, ..] = candidates else {
            scores.fill(1.0);
            return;
        };
        let PluginState::ColdOrder(order) = cycle.state() else { return };
        let last = (candidates.len() - 1) as f64;
        let by_rank = |rank: usize| (1.0 - rank as f64 / last).max(0.0);
        let positions = order.positions(cycle.pool.endpoints().len());
        let mut unused = 0;
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            if positions[endpoint].is_none() {
                *score = by_rank(unused);
                unused += 1;
            }
        }
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            if let Some(position) = positions[endpoint] {
                *score = by_rank(unused + position);
            }
        }
    }
}

impl Recorder for NoHitLruScorer {
    fn new_state(&self) -> PluginState {
        PluginState::ColdOrder(ColdOrder::new(if self.lru_size == 0 { DEFAULT_SIZE } else { self.lru_size }))
    }

    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>) -> Vec<Change> {
        if routed.asked.is_some_and(|asked| self.is_cold(cycle, asked.iter().copied())) {
            routed.endpoints().map(|endpoint| Change::SentCold { endpoint }).collect()
        } else {
            Vec::new()
        }
    }
}

/// Endpoints in the order of their last cold request.
#[derive(Debug)]
pub struct ColdOrder {
    /// Oldest first.
    order: VecDeque<usize>,
    size: usize,
}

impl ColdOrder {
    fn new(size: usize) -> Self {
        Self { order: VecDeque::new(), size }
    }

    /// For each of a pool's endpoints: 0 if its last cold request is the oldest, and so on; `None` if none is remembered.
    fn positions(&self, endpoints: usize) -> Vec<Option<usize>> {
        let mut positions = vec![None; endpoints];
        for (position, &endpoint) in self.order.iter().enumerate() {
            if let Some(known) = positions.get_mut(endpoint) {
                *known = Some(position);
            }
        }
        positions
    }

    /// Makes the endpoint the most recent.
    pub(crate) fn touch(&mut self, endpoint: usize) {
        self.order.retain(|&known| known != endpoint);
        self.order.push_back(endpoint);
        if self.order.len() > self.size {
            self.order.pop_front();
        }
    }

    /// Follows a change of the pool.
    pub(crate) fn remap(&mut self, moves: &[Option<usize>]) {
        self.order = self.order.iter().filter_map(|&old| moves.get(old).copied().flatten()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Stage;
    use crate::plugin::fixture::Fixture;
    use crate::plugin_state::PluginStates;
    use crate::prefix::PrefixMatch;
    use crate::test;

    fn scores(used: &[usize], matched: &[u32]) -> Vec<f64> {
        let mut order = ColdOrder::new(9);
        for &endpoint in used {
            order.touch(endpoint);
        }
        let mut fixture = Fixture::of(matched.len());
        fixture.states = PluginStates::only(PluginState::ColdOrder(order));
        fixture.prefix(PrefixMatch { matched: matched.to_vec(), total: 4, block_size: 64 });
        fixture.scores(&NoHitLruScorer::default())
    }

    #[test]
    fn a_request_that_hits_somewhere_has_no_opinion() {
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
        let record = |matched: &[u32], asked| {
            let routed = Routed { stages: &stages, primary: 1, asked, hashes: None };
            let mut fixture = Fixture::of(2);
            fixture.prefix(PrefixMatch { matched: matched.to_vec(), total: 4, block_size: 64 });
            fixture.with_cycle(|cycle| NoHitLruScorer::default().record(cycle, &routed))
        };
        let both = [Change::SentCold { endpoint: 1 }, Change::SentCold { endpoint: 0 }];
        assert_eq!(record(&[0, 0], Some(&[0, 1])), both);
        assert_eq!(record(&[1, 0], Some(&[0, 1])), []);
        assert_eq!(record(&[1, 0], Some(&[1])), both, "only the endpoints that were scored count");
        assert_eq!(record(&[0, 0], None), [], "nothing was scored");
    }

    #[test]
    fn the_order_is_bounded_and_follows_the_pool() {
        let mut order = ColdOrder::new(2);
        for endpoint in [0, 1, 2, 1] {
            order.touch(endpoint);
        }
        assert_eq!(order.order, [2, 1]);
        order.remap(&[None, Some(0), None]);
        assert_eq!(order.order, [0]);
    }
}
