//! `active-request-scorer`: the fewer requests are in flight at an endpoint, the better.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::{Need, Plugin, Roles, Scorer};

/// 1 for an endpoint with at most `idle_threshold` requests in flight, else (max − c) / max ·
/// `max_busy_score`, c the endpoint's requests, max the maximum of all candidates.
///
/// Requests of other proxies that share their changes count as [averages](crate::state::deferred_load); less
/// than half a request above the threshold counts as idle. The busiest candidate scores 0, also when it is
/// the only one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ActiveRequestScorer {
    /// Requests with which an endpoint still counts as idle; less than 0 counts as 0.
    idle_threshold: i64,
    /// The limit of the scores of busy endpoints, 0..=1; anything else counts as 1.
    max_busy_score: f64,
    /// Name of the `inflight-load-producer`; empty: the only one configured.
    in_flight_load_producer_name: String,
    /// Accepted, without effect, as in the EPP.
    request_timeout: String,
}

impl Default for ActiveRequestScorer {
    fn default() -> Self {
        Self {
            idle_threshold: 0,
            max_busy_score: 1.0,
            in_flight_load_producer_name: String::new(),
            request_timeout: String::new(),
        }
    }
}

impl Plugin for ActiveRequestScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::load_producer(&self.in_flight_load_producer_name)]
    }
}

impl Scorer for ActiveRequestScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let idle = self.idle_threshold.max(0) as f64 + 0.5;
        let top = if (0.0..=1.0).contains(&self.max_busy_score) { self.max_busy_score } else { 1.0 };
        let requests = |&endpoint: &usize| cycle.comparable_load(endpoint).requests;
        let most = candidates.iter().map(requests).fold(0.0, f64::max);
        for (score, active) in scores.iter_mut().zip(candidates.iter().map(requests)) {
            *score = if active < idle { 1.0 } else { (most - active) / most * top };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, assert_near};
    use crate::pool::load::{FractionalLoad, Load};
    use crate::test;

    fn score(scorer: &ActiveRequestScorer, requests: &[u64], endpoints: usize) -> Vec<f64> {
        let mut fixture = Fixture::of(endpoints);
        fixture.in_flight = requests.iter().map(|&requests| Load { requests, tokens: 0 }).collect();
        fixture.scores(scorer)
    }

    #[test]
    fn idle_endpoints_score_one_and_the_busiest_zero() {
        let scorer = ActiveRequestScorer::default();
        assert_near(&score(&scorer, &[3, 0, 6], 3), &[0.5, 1.0, 0.0]);
        assert_near(&score(&scorer, &[4, 0, 1], 3), &[0.0, 1.0, 0.75]);
        assert_near(&score(&scorer, &[3, 11], 2), &[8.0 / 11.0, 0.0]);
        assert_near(&score(&scorer, &[2], 1), &[0.0]);
    }

    #[test]
    fn an_endpoint_never_sent_a_request_is_idle() {
        assert_near(&score(&ActiveRequestScorer::default(), &[], 2), &[1.0, 1.0]);
    }

    #[test]
    fn what_is_deferred_of_other_proxies_requests_does_not_count() {
        let mut fixture = Fixture::of(3);
        fixture.in_flight = [6, 6, 1].map(|requests| Load { requests, tokens: 0 }).to_vec();
        fixture.deferred =
            [2.0, -2.0, 0.75].map(|requests| FractionalLoad { requests, tokens: 0.0 }).to_vec();
        assert_near(&fixture.scores(&ActiveRequestScorer::default()), &[0.5, 0.0, 1.0]);
    }

    #[test]
    fn busy_endpoints_can_be_kept_apart_from_idle_ones() {
        let scorer =
            ActiveRequestScorer { idle_threshold: 1, max_busy_score: 0.5, ..ActiveRequestScorer::default() };
        assert_near(&score(&scorer, &[1, 2, 0], 3), &[1.0, 0.0, 1.0]);
        assert_near(&score(&scorer, &[1, 2, 4], 3), &[1.0, 0.25, 0.0]);
    }

    #[test]
    fn parameters_out_of_range_are_the_defaults() {
        for max_busy_score in [-0.1, 1.1, f64::NAN] {
            let scorer =
                ActiveRequestScorer { idle_threshold: -3, max_busy_score, ..ActiveRequestScorer::default() };
            assert_near(&score(&scorer, &[3, 0, 6], 3), &[0.5, 1.0, 0.0]);
        }
    }
}
