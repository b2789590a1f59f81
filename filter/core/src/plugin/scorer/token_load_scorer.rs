//! `token-load-scorer`: the fewer tokens an endpoint has to work on, the better.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::{Need, Plugin, Roles, Scorer};

/// 1 − min(L, t) / t, L the tokens in flight at the endpoint and those this request would add, t =
/// `queue_threshold_tokens`.
///
/// Tokens are counted by `inflight-load-producer`; prompt tokens that the endpoint has cached cost nothing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenLoadScorer {
    /// Tokens from which the score is 0; 0 and less count as 4 194 304.
    queue_threshold_tokens: i64,
    /// Name of the `inflight-load-producer`; empty: the only one configured.
    in_flight_load_producer_name: String,
}

/// 128 requests of 32 Ki tokens each.
const THRESHOLD: i64 = 4_194_304;

impl Default for TokenLoadScorer {
    fn default() -> Self {
        Self { queue_threshold_tokens: THRESHOLD, in_flight_load_producer_name: String::new() }
    }
}

impl Plugin for TokenLoadScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::load_producer(&self.in_flight_load_producer_name)]
    }
}

impl Scorer for TokenLoadScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let threshold =
            if self.queue_threshold_tokens > 0 { self.queue_threshold_tokens } else { THRESHOLD } as f64;
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            let tokens = cycle.comparable_load(endpoint).tokens + cycle.request_tokens(endpoint) as f64;
            *score = 1.0 - tokens.min(threshold) / threshold;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, assert_near, prompt_of};
    use crate::pool::load::{FractionalLoad, Load};
    use crate::state::prefix::PrefixMatch;
    use crate::test;

    fn fixture(tokens: &[u64], input_tokens: u64) -> Fixture {
        let mut fixture = Fixture::of(tokens.len());
        fixture.in_flight = tokens.iter().map(|&tokens| Load { requests: 1, tokens }).collect();
        fixture.request.prompt = Some(prompt_of(input_tokens));
        fixture
    }

    fn scorer(queue_threshold_tokens: i64) -> TokenLoadScorer {
        TokenLoadScorer { queue_threshold_tokens, ..TokenLoadScorer::default() }
    }

    #[test]
    fn the_score_falls_with_the_tokens_in_flight_and_those_to_come() {
        assert_near(&fixture(&[0, 400, 900, 5_000], 100).scores(&scorer(1_000)), &[0.9, 0.5, 0.0, 0.0]);
    }

    #[test]
    fn what_is_deferred_of_other_proxies_tokens_does_not_count() {
        let mut fixture = fixture(&[400, 400], 100);
        fixture.deferred = vec![FractionalLoad { requests: 0.0, tokens: 300.0 }];
        assert_near(&fixture.scores(&scorer(1_000)), &[0.8, 0.5]);
    }

    #[test]
    fn cached_tokens_of_the_request_do_not_count() {
        let mut fixture = fixture(&[0, 0], 128);
        fixture.prefix(PrefixMatch {
            matched: vec![2, 1],
            total: 2,
            block_size: 64,
            ..PrefixMatch::default()
        });
        assert_near(&fixture.scores(&scorer(640)), &[1.0, 0.9]);
    }

    #[test]
    fn an_endpoint_without_load_scores_one_for_a_request_without_a_prompt() {
        assert_near(&Fixture::of(1).scores(&TokenLoadScorer::default()), &[1.0]);
    }

    #[test]
    fn a_threshold_of_nothing_is_the_default() {
        for threshold in [0, -5, THRESHOLD] {
            assert_near(&fixture(&[THRESHOLD.unsigned_abs() / 2], 0).scores(&scorer(threshold)), &[0.5]);
        }
    }
}
