//! `concurrency-detector`: saturation from the requests or tokens in flight, by this proxy's own count.

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::parameter::allow;
use crate::plugin::{Filter, Need, Plugin, Roles, SaturationDetector};
use crate::pool::load::Load;
use crate::rng::Rng;

/// The EPP's: its own count changes at once, but other threads see that a moment later.
const LAG: Duration = Duration::from_millis(10);

/// As a detector: the load in flight at all endpoints / the sum of their limits. In `hybrid` mode the mean
/// over the endpoints of the greater of requests / `max_concurrency` and tokens / `max_token_concurrency`.
///
/// As a filter: keeps endpoints below their limits times (1 + `headroom`). If there are none, it keeps none;
/// by the rules of the EPP's v0.11 (#2883) it keeps all.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ConcurrencyDetector {
    /// Requests in flight at which an endpoint counts as saturated, above 0.
    max_concurrency: i64,
    /// Tokens in flight at which an endpoint counts as saturated, above 0.
    max_token_concurrency: i64,
    /// The unit of load.
    concurrency_mode: ConcurrencyMode,
    /// Share by which the filter lets an endpoint exceed its limits, 0 or more.
    headroom: f64,
    /// Name of the `inflight-load-producer`; empty: the only one configured.
    in_flight_load_producer_name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ConcurrencyMode {
    Requests,
    Tokens,
    Hybrid,
}

impl Default for ConcurrencyDetector {
    fn default() -> Self {
        Self {
            max_concurrency: 100,
            max_token_concurrency: 1_000_000,
            concurrency_mode: ConcurrencyMode::Requests,
            headroom: 0.0,
            in_flight_load_producer_name: String::new(),
        }
    }
}

impl Plugin for ConcurrencyDetector {
    fn check(&self) -> Result<(), String> {
        allow(self.max_concurrency > 0, "maxConcurrency", self.max_concurrency, "1 and above")?;
        allow(
            self.max_token_concurrency > 0,
            "maxTokenConcurrency",
            self.max_token_concurrency,
            "1 and above",
        )?;
        allow(self.headroom >= 0.0 && self.headroom.is_finite(), "headroom", self.headroom, "0 and above")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self.clone()), saturation_detector: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::load_producer(&self.in_flight_load_producer_name)]
    }
}

impl Filter for ConcurrencyDetector {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        // Limits are whole numbers, cut off, as in the EPP.
        let limit = |most: i64| (most as f64 * (1.0 + self.headroom)).floor();
        let (requests, tokens) = (limit(self.max_concurrency), limit(self.max_token_concurrency));
        let fits = |&endpoint: &usize| {
            let load = cycle.load(endpoint);
            let requests_fit = (load.requests as f64) < requests;
            let tokens_fit = (load.tokens as f64) < tokens;
            match self.concurrency_mode {
                ConcurrencyMode::Requests => requests_fit,
                ConcurrencyMode::Tokens => tokens_fit,
                ConcurrencyMode::Hybrid => requests_fit && tokens_fit,
            }
        };
        if !cycle.epp_rules().is_v011() || candidates.iter().any(fits) {
            candidates.retain(fits);
        }
    }
}

impl SaturationDetector for ConcurrencyDetector {
    /// Every endpoint has the same limits, so sums are compared with the sum of the limits.
    fn saturation(&self, cycle: &Cycle<'_>, candidates: &[usize], pending: u64) -> f64 {
        if candidates.is_empty() {
            return 1.0;
        }
        let share = |count: u128, max: i64| count as f64 / (candidates.len() as f64 * max as f64);
        let of_requests = |count: u128| share(u128::from(pending) + count, self.max_concurrency);
        let of_tokens = |count: u128| share(count, self.max_token_concurrency);
        let loads = || candidates.iter().map(|&endpoint| cycle.load(endpoint));
        match self.concurrency_mode {
            ConcurrencyMode::Requests => of_requests(loads().map(|load| u128::from(load.requests)).sum()),
            ConcurrencyMode::Tokens => of_tokens(loads().map(|load| u128::from(load.tokens)).sum()),
            ConcurrencyMode::Hybrid => {
                let (mut requests, mut tokens) = (0, 0);
                for load in loads() {
                    if self.has_scarce_requests(load) {
                        requests += u128::from(load.requests);
                    } else {
                        tokens += u128::from(load.tokens);
                    }
                }
                of_requests(requests) + of_tokens(tokens)
            }
        }
    }

    fn holds_until(&self, _: &Cycle<'_>, _: &[usize]) -> Option<Duration> {
        None
    }

    fn needs_readings(&self) -> bool {
        false
    }

    fn lag(&self) -> Duration {
        LAG
    }
}

impl ConcurrencyDetector {
    /// Whether requests are a greater share of their limit than tokens of theirs. Divisions would take longer
    /// than all the rest.
    fn has_scarce_requests(&self, load: Load) -> bool {
        let times = |count: u64, max: i64| u128::from(count) * u128::from(max.unsigned_abs());
        times(load.requests, self.max_token_concurrency) >= times(load.tokens, self.max_concurrency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epp_rules::EppRules;
    use crate::plugin::fixture::Fixture;
    use crate::rng::SplitMix64;
    use crate::test;

    fn detector(concurrency_mode: ConcurrencyMode) -> ConcurrencyDetector {
        ConcurrencyDetector {
            max_concurrency: 10,
            max_token_concurrency: 1_000,
            concurrency_mode,
            ..ConcurrencyDetector::default()
        }
    }

    /// (requests, tokens) in flight.
    fn fixture(loads: &[(u64, u64)]) -> Fixture {
        let mut fixture = Fixture::of(loads.len());
        fixture.in_flight = loads.iter().map(|&(requests, tokens)| Load { requests, tokens }).collect();
        fixture
    }

    #[track_caller]
    fn assert_saturation(mode: ConcurrencyMode, loads: &[(u64, u64)], expected: f64) {
        let candidates: Vec<usize> = (0..loads.len()).collect();
        let saturation = fixture(loads).with_cycle(|cycle| detector(mode).saturation(cycle, &candidates, 0));
        assert!((saturation - expected).abs() < 1e-9, "{saturation} is not {expected}");
    }

    #[test]
    fn the_load_of_all_endpoints_is_compared_with_what_they_are_to_have() {
        assert_saturation(ConcurrencyMode::Requests, &[(5, 0), (10, 9_999)], 0.75);
        assert_saturation(ConcurrencyMode::Requests, &[(15, 0), (5, 0)], 1.0);
        assert_saturation(ConcurrencyMode::Tokens, &[(99, 500), (0, 250)], 0.375);
        assert_saturation(ConcurrencyMode::Requests, &[(20, 0)], 2.0);
    }

    #[test]
    fn in_hybrid_mode_each_endpoint_counts_by_its_scarcer_side() {
        assert_saturation(ConcurrencyMode::Hybrid, &[(10, 0), (0, 1_000)], 1.0);
        assert_saturation(ConcurrencyMode::Hybrid, &[(5, 100), (1, 300)], 0.4);
    }

    #[test]
    fn sums_give_the_mean_of_what_each_endpoint_has() {
        for seed in 0..200 {
            let mut rng = SplitMix64::new(seed);
            let loads: Vec<(u64, u64)> =
                (0..=rng.below(9)).map(|_| (rng.below(25) as u64, rng.below(2_500) as u64)).collect();
            let share = |&(requests, tokens): &(u64, u64)| (requests as f64 / 10.0, tokens as f64 / 1_000.0);
            let mean = |of: fn((f64, f64)) -> f64| {
                loads.iter().map(|load| of(share(load))).sum::<f64>() / loads.len() as f64
            };
            assert_saturation(ConcurrencyMode::Requests, &loads, mean(|(requests, _)| requests));
            assert_saturation(ConcurrencyMode::Tokens, &loads, mean(|(_, tokens)| tokens));
            assert_saturation(
                ConcurrencyMode::Hybrid,
                &loads,
                mean(|(requests, tokens)| requests.max(tokens)),
            );
        }
    }

    #[test]
    fn requests_on_their_way_count_as_requests() {
        let saturation = |mode| {
            fixture(&[(5, 0), (0, 500)]).with_cycle(|cycle| detector(mode).saturation(cycle, &[0, 1], 3))
        };
        assert!((saturation(ConcurrencyMode::Requests) - 0.4).abs() < 1e-9);
        assert!((saturation(ConcurrencyMode::Tokens) - 0.25).abs() < 1e-9);
        assert!((saturation(ConcurrencyMode::Hybrid) - 0.65).abs() < 1e-9);
    }

    #[test]
    fn no_endpoints_are_saturated_and_idle_ones_are_not() {
        assert_saturation(ConcurrencyMode::Requests, &[], 1.0);
        let idle = Fixture::of(2)
            .with_cycle(|cycle| detector(ConcurrencyMode::Requests).saturation(cycle, &[0, 1], 0));
        assert!(idle.abs() < 1e-9);
    }

    #[test]
    fn the_filter_keeps_endpoints_strictly_below_the_limits_and_none_if_there_are_none() {
        let loads = [(9, 2_000), (10, 0), (0, 999), (0, 1_000)];
        assert_eq!(fixture(&loads).kept(&detector(ConcurrencyMode::Requests), 1), [0, 2, 3]);
        assert_eq!(fixture(&loads).kept(&detector(ConcurrencyMode::Tokens), 1), [1, 2]);
        assert_eq!(fixture(&loads).kept(&detector(ConcurrencyMode::Hybrid), 1), [2]);
        assert_eq!(fixture(&[(10, 0)]).kept(&detector(ConcurrencyMode::Requests), 1), [0; 0]);
    }

    #[test]
    fn headroom_raises_the_filters_limits_to_a_whole_number() {
        let roomy = ConcurrencyDetector { headroom: 0.25, ..detector(ConcurrencyMode::Requests) };
        assert_eq!(fixture(&[(11, 0), (12, 0)]).kept(&roomy, 1), [0]);
    }

    #[test]
    fn limits_of_nothing_are_refused() {
        let error = ConcurrencyDetector { max_concurrency: 0, ..detector(ConcurrencyMode::Tokens) }
            .check()
            .unwrap_err();
        assert_eq!(error, "maxConcurrency is 0; allowed is 1 and above");
        assert!(
            ConcurrencyDetector { max_token_concurrency: -1, ..detector(ConcurrencyMode::Tokens) }
                .check()
                .is_err()
        );
        assert!(ConcurrencyDetector { headroom: -0.1, ..detector(ConcurrencyMode::Tokens) }.check().is_err());
    }

    #[test]
    fn by_the_rules_of_v0_11_the_filter_keeps_all_rather_than_none() {
        let kept = |epp_rules, requests: [u64; 2]| {
            let in_flight = requests.map(|requests| Load { requests, tokens: 0 }).to_vec();
            let detector = ConcurrencyDetector { max_concurrency: 5, ..ConcurrencyDetector::default() };
            let mut fixture = Fixture::of(2);
            (fixture.epp_rules, fixture.in_flight) = (epp_rules, in_flight);
            fixture.kept(&detector, 1)
        };
        assert_eq!(kept(EppRules::V010, [5, 6]), [0; 0]);
        assert_eq!(kept(EppRules::V011, [5, 6]), [0, 1]);
        assert_eq!(kept(EppRules::V011, [4, 6]), [0]);
    }
}
