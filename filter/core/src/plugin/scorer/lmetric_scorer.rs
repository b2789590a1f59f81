//! `lmetric-scorer`: the fewer tokens an endpoint has to read, times the requests that wait for it meanwhile,
//! the better.

use std::sync::Arc;

use serde::Deserialize;

use super::score_by_least;
use crate::input::cycle::Cycle;
use crate::plugin::parameter::{PREFIX_PRODUCER, or_default};
use crate::plugin::{Need, Plugin, Roles, Scorer};

/// (max − cost) / (max − min) over the candidates, all equal → 1. The cost is (T + U) · (n + 1): T the tokens
/// in flight at the endpoint, U the request's tokens that it has not cached, n the requests in flight there.
///
/// The formula is from a [paper](https://arxiv.org/abs/2603.15202), section 5.1: reading a prompt delays all
/// requests of the batch.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LmetricScorer {
    /// The prefix producer whose matches count as cached; empty: the approximate one.
    prefix_match_info_producer_name: String,
    /// Name of the `inflight-load-producer`; empty: the only one configured.
    in_flight_load_producer_name: String,
    /// Whether T counts. Without it the cost is U · (n + 1), as in the EPP.
    count_tokens_in_flight: bool,
}

impl Default for LmetricScorer {
    fn default() -> Self {
        Self {
            prefix_match_info_producer_name: String::new(),
            in_flight_load_producer_name: String::new(),
            count_tokens_in_flight: true,
        }
    }
}

impl LmetricScorer {
    fn prefix_producer(&self) -> &str {
        or_default(&self.prefix_match_info_producer_name, PREFIX_PRODUCER)
    }
}

impl Plugin for LmetricScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![
            Need::prefix_producer(self.prefix_producer()),
            Need::load_producer(&self.in_flight_load_producer_name),
        ]
    }
}

impl Scorer for LmetricScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let prompt = cycle.request.input_tokens();
        let prefix = cycle.prefix();
        score_by_least(candidates, scores, |endpoint| {
            let load = cycle.comparable_load(endpoint);
            let in_flight = if self.count_tokens_in_flight { load.tokens } else { 0.0 };
            (in_flight + prefix.missing_tokens(prompt, endpoint) as f64) * (load.requests + 1.0)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, assert_near, prompt_of};
    use crate::pool::load::{FractionalLoad, Load};
    use crate::state::prefix::PrefixMatch;
    use crate::test;

    /// Costs 0, 1000, 3000: an idle endpoint with the whole prompt, one with half of it, and a busy one.
    fn fixture() -> Fixture {
        let mut fixture = Fixture::of(3);
        fixture.request.prompt = Some(prompt_of(128));
        fixture.in_flight =
            [(0, 0), (1, 436), (4, 472)].map(|(requests, tokens)| Load { requests, tokens }).to_vec();
        fixture.prefix(PrefixMatch {
            matched: vec![2, 1, 0],
            total: 2,
            block_size: 64,
            ..PrefixMatch::default()
        });
        fixture
    }

    #[test]
    fn tokens_to_read_count_once_for_each_request_that_waits_for_them() {
        assert_near(&fixture().scores(&LmetricScorer::default()), &[1.0, 2.0 / 3.0, 0.0]);
    }

    #[test]
    fn as_the_epp_only_the_requests_own_tokens_count() {
        let scorer = LmetricScorer { count_tokens_in_flight: false, ..LmetricScorer::default() };
        assert_near(&fixture().scores(&scorer), &[1.0, 1.0 - 128.0 / 640.0, 0.0]);
    }

    #[test]
    fn equal_costs_score_one() {
        assert_near(&Fixture::of(2).scores(&LmetricScorer::default()), &[1.0, 1.0]);
    }

    #[test]
    fn what_is_deferred_of_other_proxies_loads_does_not_count() {
        let mut fixture = fixture();
        fixture.deferred = vec![FractionalLoad::default(); 2];
        fixture.deferred.push(FractionalLoad { requests: 3.0, tokens: 100.0 });
        assert_near(&fixture.scores(&LmetricScorer::default()), &[1.0, 0.0, 0.0]);
    }

    #[test]
    fn the_largest_loads_have_finite_costs() {
        let mut fixture = fixture();
        fixture.in_flight = vec![Load { requests: u64::MAX, tokens: u64::MAX }; 2];
        assert_near(&fixture.scores(&LmetricScorer::default()), &[0.0, 0.0, 1.0]);
    }
}
