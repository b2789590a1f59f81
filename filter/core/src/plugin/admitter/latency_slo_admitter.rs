//! `latency-slo-admitter`: turns sheddable requests away whose limits no endpoint would keep.

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use super::{Admitter, NotAdmitted};
use crate::input::cycle::Cycle;
use crate::plugin::{Need, Plugin, Roles};
use crate::rng::Rng;

/// An endpoint with a smaller share of its KV cache in use has room for any request. The EPP's number.
const EMPTY_CACHE: f64 = 0.02;

/// Bounds of the time after which the client may retry.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Turns a request of negative priority away that has a limit for its latency, if no candidate would keep it
/// by its prediction, none runs no request, and none has an empty KV cache.
///
/// The client may retry when the predicted time of the best candidate has shrunk to the limit: it shrinks by
/// a millisecond in each, if no further requests come. The response is a 429, and a 500 in the EPP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LatencySloAdmitter {
    /// Empty: the default one.
    latency_prediction_info_producer_name: String,
}

impl Plugin for LatencySloAdmitter {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { admitter: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::latency_predictor(&self.latency_prediction_info_producer_name)]
    }
}

impl Admitter for LatencySloAdmitter {
    fn admit(&self, cycle: &Cycle<'_>, candidates: &[usize], _: &mut dyn Rng) -> Result<(), NotAdmitted> {
        if cycle.request.priority >= 0 {
            return Ok(());
        }
        let limits = cycle.limits;
        if !limits.is_any() {
            return Ok(());
        }
        let predictions = cycle.predictions();
        let Some(predictions) = predictions else { return Ok(()) };
        let predicted = || candidates.iter().filter_map(|&endpoint| predictions.at(endpoint));
        let has_room = |&endpoint: &usize| {
            let reading = cycle.reading(endpoint);
            reading.running.unwrap_or(0) == 0 || reading.kv_usage.unwrap_or(0.0) < EMPTY_CACHE
        };
        if predicted().any(|prediction| prediction.is_valid) || candidates.iter().any(has_room) {
            return Ok(());
        }
        // The time for a token does not shrink with the queue.
        let late = predicted().filter(|_| limits.ttft > 0.0).map(|prediction| -prediction.ttft_headroom);
        let late = late.reduce(f64::min).map_or(Duration::ZERO, |milliseconds| {
            Duration::try_from_secs_f64(milliseconds.max(0.0) / 1e3).unwrap_or(RETRY_AFTER.1)
        });
        let retry_after = Some(late.clamp(RETRY_AFTER.0, RETRY_AFTER.1));
        let reason = "no valid endpoint available to serve the request".to_owned();
        Err(NotAdmitted { reason, retry_after, misses_limits: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::prediction::Prediction;
    use crate::plugin::fixture::{Fixture, headers};
    use crate::pool::reading::Reading;
    use crate::rng::SplitMix64;
    use crate::test;

    /// A sheddable request with a limit, and busy endpoints that miss it by these milliseconds; 0 and less:
    /// they keep it.
    fn fixture(late: &[f64]) -> Fixture {
        let busy = Reading { running: Some(3), kv_usage: Some(0.5), ..Reading::default() };
        let mut fixture = Fixture::with_readings(&vec![busy; late.len()]);
        fixture.request.priority = -1;
        fixture.request.headers = headers(&[("x-llm-d-slo-ttft-ms", "100")]);
        fixture.predictions(late.iter().map(|late| Prediction {
            ttft: 100.0 + late,
            ttft_headroom: -late,
            is_valid: *late <= 0.0,
            ..Prediction::default()
        }));
        fixture
    }

    fn admit(fixture: &Fixture) -> Result<(), NotAdmitted> {
        let candidates: Vec<usize> = (0..fixture.readings.len()).collect();
        fixture.with_cycle(|cycle| {
            LatencySloAdmitter::default().admit(cycle, &candidates, &mut SplitMix64::new(1))
        })
    }

    #[test]
    fn a_request_whose_limit_none_would_keep_is_turned_away_until_the_best_one_would() {
        let refused = admit(&fixture(&[5_000.0, 2_300.0])).unwrap_err();
        assert_eq!(refused.reason, "no valid endpoint available to serve the request");
        assert_eq!(refused.retry_after, Some(Duration::from_millis(2_300)));
        let retry_after = |late| admit(&fixture(&[late])).unwrap_err().retry_after.unwrap().as_secs();
        assert_eq!([0.5, 59_000.0, 1e30].map(retry_after), [1, 59, 60]);
        // A limit for tokens alone: the headroom of the first token is that to a limit of 0.
        let mut for_tokens = fixture(&[5_000.0]);
        for_tokens.request.headers = headers(&[("x-llm-d-slo-tpot-ms", "100")]);
        assert_eq!(admit(&for_tokens).unwrap_err().retry_after, Some(Duration::from_secs(1)));
    }

    #[test]
    fn a_request_that_an_endpoint_may_serve_in_time_is_admitted() {
        assert_eq!(admit(&fixture(&[5.0, 0.0])), Ok(()));
        let mut idle = fixture(&[5.0; 2]);
        idle.readings[1].running = Some(0);
        assert_eq!(admit(&idle), Ok(()));
        let mut empty = fixture(&[5.0; 2]);
        empty.readings[0].kv_usage = Some(0.019);
        assert_eq!(admit(&empty), Ok(()));
        empty.readings[0].kv_usage = Some(0.02);
        assert!(admit(&empty).is_err());
    }

    #[test]
    fn other_requests_are_admitted() {
        let mut normal = fixture(&[5.0]);
        normal.request.priority = 0;
        assert_eq!(admit(&normal), Ok(()));
        let mut without_limit = fixture(&[5.0]);
        without_limit.request.headers = headers(&[("x-llm-d-slo-ttft-ms", "0")]);
        assert_eq!(admit(&without_limit), Ok(()));
        let mut unpredicted = fixture(&[5.0]);
        unpredicted.no_predictions();
        assert_eq!(admit(&unpredicted), Ok(()));
        assert!(admit(&fixture(&[5.0])).is_err());
    }
}
