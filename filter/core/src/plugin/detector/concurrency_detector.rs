//! `concurrency-detector`: saturation from what is in flight, by this proxy's own count.

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use crate::cycle::Cycle;
use crate::load::Load;
use crate::plugin::parameter::allow;
use crate::plugin::{Filter, Need, Plugin, Roles, SaturationDetector};
use crate::rng::Rng;

/// The EPP's: its own count changes at once, but other threads see that a moment later.
const LAG: Duration = Duration::from_millis(10);

/// As a detector: the load in flight at all endpoints / what they are to have at most. In `hybrid` mode the mean over
/// the endpoints of the greater of requests / `max_concurrency` and tokens / `max_token_concurrency`.
///
/// As a filter: keeps endpoints below their limits times (1 + `headroom`); none, if there are none.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ConcurrencyDetector {
    /// Requests in flight at which an endpoint counts as saturated, above 0.
    max_concurrency: i64,
    /// Tokens in flight at which an endpoint counts as saturated, above 0.
    max_token_concurrency: i64,
    /// What counts.
    concurrency_mode: Mode,
    /// Share by which the filter lets an endpoint exceed its limits, 0 or more.
    headroom: f64,
    /// Whose counts are read; empty: those of the only producer there is.
    in_flight_load_producer_name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Mode {
    Requests,
    Tokens,
    Hybrid,
}

impl Default for ConcurrencyDetector {
    fn default() -> Self {
        Self {
            max_concurrency: 100,
            max_token_concurrency: 1_000_000,
            concurrency_mode: Mode::Requests,
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
        candidates.retain(|&endpoint| {
            let load = cycle.load(endpoint);
            let requests_fit = (load.requests as f64) < requests;
            let tokens_fit = (load.tokens as f64) < tokens;
            match self.concurrency_mode {
                Mode::Requests => requests_fit,
                Mode::Tokens => tokens_fit,
                Mode::Hybrid => requests_fit && tokens_fit,
            }
        });
    }
}

impl SaturationDetector for ConcurrencyDetector {
    fn saturation(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> f64 {
        if candidates.is_empty() {
            return 1.0;
        }
        let saturation = |&endpoint: &usize| self.saturation_of(cycle.load(endpoint));
        candidates.iter().map(saturation).sum::<f64>() / candidates.len() as f64
    }

    fn needs_readings(&self) -> bool {
        false
    }

    fn lag(&self) -> Duration {
        LAG
    }
}

impl ConcurrencyDetector {
    /// Every endpoint has the same limits, so the mean of these is the share of the whole.
    fn saturation_of(&self, load: Load) -> f64 {
        let requests = load.requests as f64 / self.max_concurrency as f64;
        let tokens = load.tokens as f64 / self.max_token_concurrency as f64;
        match self.concurrency_mode {
            Mode::Requests => requests,
            Mode::Tokens => tokens,
            Mode::Hybrid => requests.max(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::Fixture;
    use crate::test;

    fn detector(concurrency_mode: Mode) -> ConcurrencyDetector {
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
    fn assert_saturation(mode: Mode, loads: &[(u64, u64)], expected: f64) {
        let candidates: Vec<usize> = (0..loads.len()).collect();
        let saturation = fixture(loads).with_cycle(|cycle| detector(mode).saturation(cycle, &candidates));
        assert!((saturation - expected).abs() < 1e-9, "{saturation} is not {expected}");
    }

    #[test]
    fn the_load_of_all_endpoints_is_compared_with_what_they_are_to_have() {
        assert_saturation(Mode::Requests, &[(5, 0), (10, 9_999)], 0.75);
        assert_saturation(Mode::Requests, &[(15, 0), (5, 0)], 1.0);
        assert_saturation(Mode::Tokens, &[(99, 500), (0, 250)], 0.375);
        assert_saturation(Mode::Requests, &[(20, 0)], 2.0);
    }

    #[test]
    fn in_hybrid_mode_each_endpoint_counts_by_its_scarcer_side() {
        assert_saturation(Mode::Hybrid, &[(10, 0), (0, 1_000)], 1.0);
        assert_saturation(Mode::Hybrid, &[(5, 100), (1, 300)], 0.4);
    }

    #[test]
    fn no_endpoints_are_saturated_and_idle_ones_are_not() {
        assert_saturation(Mode::Requests, &[], 1.0);
        let idle = Fixture::of(2).with_cycle(|cycle| detector(Mode::Requests).saturation(cycle, &[0, 1]));
        assert!(idle.abs() < 1e-9);
    }

    #[test]
    fn the_filter_keeps_endpoints_strictly_below_the_limits_and_none_if_there_are_none() {
        let loads = [(9, 2_000), (10, 0), (0, 999), (0, 1_000)];
        assert_eq!(fixture(&loads).kept(&detector(Mode::Requests), 1), [0, 2, 3]);
        assert_eq!(fixture(&loads).kept(&detector(Mode::Tokens), 1), [1, 2]);
        assert_eq!(fixture(&loads).kept(&detector(Mode::Hybrid), 1), [2]);
        assert_eq!(fixture(&[(10, 0)]).kept(&detector(Mode::Requests), 1), [0; 0]);
    }

    #[test]
    fn headroom_raises_the_filters_limits_to_a_whole_number() {
        let roomy = ConcurrencyDetector { headroom: 0.25, ..detector(Mode::Requests) };
        assert_eq!(fixture(&[(11, 0), (12, 0)]).kept(&roomy, 1), [0]);
    }

    #[test]
    fn limits_of_nothing_are_refused() {
        let error = ConcurrencyDetector { max_concurrency: 0, ..detector(Mode::Tokens) }.check().unwrap_err();
        assert_eq!(error, "maxConcurrency is 0; allowed is 1 and above");
        assert!(ConcurrencyDetector { max_token_concurrency: -1, ..detector(Mode::Tokens) }.check().is_err());
        assert!(ConcurrencyDetector { headroom: -0.1, ..detector(Mode::Tokens) }.check().is_err());
    }
}
