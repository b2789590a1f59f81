//! `prefix-cache-affinity-filter`: endpoints that have the prompt, unless waiting for them costs more than it
//! saves.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::input::prediction::Predictions;
use crate::plugin::parameter::{PREFIX_PRODUCER, allow, or_default};
use crate::plugin::{Filter, Need, Plugin, Roles};
use crate::rng::Rng;

/// An endpoint that was sent at least `affinity_threshold` of the prompt before is *sticky*. Keeps the sticky
/// ones; all
///
/// - if there is one candidate, no sticky one, or the threshold is 0 or less;
/// - with probability `exploration_probability`;
/// - if the lowest time to the first token of sticky endpoints exceeds the lowest of the others by more than
///   `max_ttft_penalty_ms`. An endpoint's time is estimated as tokens in flight / `peak_prefill_throughput`,
///   or it is the predicted one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PrefixCacheAffinityFilter {
    /// Share of the prompt from which an endpoint is sticky, at most 1.
    affinity_threshold: f64,
    /// 0..=1.
    exploration_probability: f64,
    /// Milliseconds, 0 or more; 0: no limit.
    #[serde(rename = "maxTTFTPenaltyMs")]
    max_ttft_penalty_ms: f64,
    /// How the time to the first token is estimated.
    ttft_source: TtftSource,
    /// Prompt tokens that an endpoint computes in a second, above 0.
    peak_prefill_throughput: f64,
    /// Name of the prefix producer; empty: `approx-prefix-cache-producer`.
    prefix_match_info_producer_name: String,
    /// Name of the `inflight-load-producer`; empty: the only one configured.
    in_flight_load_producer_name: String,
    /// Name of the predictor; empty: `predicted-latency-producer`.
    latency_prediction_info_producer_name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum TtftSource {
    PrefillThroughput,
    LatencyPredictor,
}

impl Default for PrefixCacheAffinityFilter {
    /// The throughput is the EPP's, measured with a 32-billion-parameter model on two H100.
    fn default() -> Self {
        Self {
            affinity_threshold: 0.8,
            exploration_probability: 0.0,
            max_ttft_penalty_ms: 18_000.0,
            ttft_source: TtftSource::PrefillThroughput,
            peak_prefill_throughput: 15_928.0,
            prefix_match_info_producer_name: String::new(),
            in_flight_load_producer_name: String::new(),
            latency_prediction_info_producer_name: String::new(),
        }
    }
}

impl Plugin for PrefixCacheAffinityFilter {
    fn check(&self) -> Result<(), String> {
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        let threshold = self.affinity_threshold;
        allow(threshold <= 1.0, "affinityThreshold", threshold, "1 and below")?;
        let exploration = self.exploration_probability;
        allow(is_share(exploration), "explorationProbability", exploration, "0 to 1")?;
        let penalty = self.max_ttft_penalty_ms;
        allow(penalty >= 0.0, "maxTTFTPenaltyMs", penalty, "0 and above")?;
        let throughput = self.peak_prefill_throughput;
        let is_needed = penalty > 0.0 && self.ttft_source == TtftSource::PrefillThroughput;
        allow(
            throughput > 0.0 || throughput == 0.0 && !is_needed,
            "peakPrefillThroughput",
            throughput,
            "above 0, or 0 if it is not used",
        )
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        let mut needs = vec![Need::prefix_producer(self.producer())];
        if self.max_ttft_penalty_ms > 0.0 {
            needs.push(match self.ttft_source {
                TtftSource::PrefillThroughput => Need::load_producer(&self.in_flight_load_producer_name),
                TtftSource::LatencyPredictor => {
                    Need::latency_predictor(&self.latency_prediction_info_producer_name)
                }
            });
        }
        needs
    }
}

impl Filter for PrefixCacheAffinityFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, rng: &mut dyn Rng) {
        if candidates.len() <= 1 || self.affinity_threshold <= 0.0 {
            return;
        }
        if rng.unit() < self.exploration_probability {
            return;
        }
        let prefix = cycle.prefix();
        let is_sticky = |endpoint: usize| prefix.ratio(endpoint) >= self.affinity_threshold;
        let times = self.times(cycle);
        let least_time = |sticky: bool| {
            let of_kind = candidates.iter().filter(|&&endpoint| is_sticky(endpoint) == sticky);
            of_kind.map(|&endpoint| times.milliseconds(cycle, endpoint)).reduce(f64::min)
        };
        let Some(sticky) = least_time(true) else { return };
        if let Some(other) = least_time(false)
            && self.max_ttft_penalty_ms > 0.0
            && sticky - other > self.max_ttft_penalty_ms
        {
            return;
        }
        candidates.retain(|&endpoint| is_sticky(endpoint));
    }
}

impl PrefixCacheAffinityFilter {
    fn producer(&self) -> &str {
        or_default(&self.prefix_match_info_producer_name, PREFIX_PRODUCER)
    }

    fn times<'a>(&self, cycle: &Cycle<'a>) -> Times<'a> {
        match self.ttft_source {
            TtftSource::PrefillThroughput => Times::Estimated { throughput: self.peak_prefill_throughput },
            TtftSource::LatencyPredictor => Times::Predicted(cycle.predictions()),
        }
    }
}

/// Times to the first token.
#[derive(Clone, Copy, Debug)]
enum Times<'a> {
    /// From the tokens in flight, at this number of tokens per second.
    Estimated {
        throughput: f64,
    },
    Predicted(Option<&'a Predictions<'a>>),
}

impl Times<'_> {
    /// The time of the endpoint's response. Without predictions it is the same for all.
    fn milliseconds(self, cycle: &Cycle<'_>, endpoint: usize) -> f64 {
        match self {
            Self::Estimated { throughput } => cycle.load(endpoint).tokens as f64 / throughput * 1_000.0,
            Self::Predicted(predictions) => {
                predictions.and_then(|all| all.at(endpoint)).map_or(f64::MAX, |prediction| prediction.ttft)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::prediction::Prediction;
    use crate::plugin::fixture::Fixture;
    use crate::pool::load::Load;
    use crate::state::prefix::PrefixMatch;
    use crate::test;

    fn fixture(matched: &[u32], tokens: &[u64]) -> Fixture {
        let mut fixture = Fixture::of(matched.len());
        fixture.prefix(PrefixMatch {
            matched: matched.to_vec(),
            total: 10,
            block_size: 64,
            ..PrefixMatch::default()
        });
        fixture.in_flight = tokens.iter().map(|&tokens| Load { requests: 1, tokens }).collect();
        fixture
    }

    fn filter() -> PrefixCacheAffinityFilter {
        PrefixCacheAffinityFilter { peak_prefill_throughput: 1_000.0, ..PrefixCacheAffinityFilter::default() }
    }

    #[test]
    fn endpoints_that_have_most_of_the_prompt_are_kept() {
        assert_eq!(fixture(&[8, 7, 10], &[]).kept(&filter(), 1), [0, 2]);
    }

    #[test]
    fn all_are_kept_when_none_is_sticky_or_the_threshold_is_zero() {
        assert_eq!(fixture(&[7, 0], &[]).kept(&filter(), 1), [0, 1]);
        assert_eq!(Fixture::of(2).kept(&filter(), 1), [0, 1], "no prompt");
        let off = PrefixCacheAffinityFilter { affinity_threshold: 0.0, ..filter() };
        assert_eq!(fixture(&[10, 0], &[]).kept(&off, 1), [0, 1]);
    }

    #[test]
    fn a_sticky_endpoint_that_is_too_far_behind_does_not_count() {
        assert_eq!(fixture(&[10, 0], &[18_000, 0]).kept(&filter(), 1), [0], "18 s behind is allowed");
        assert_eq!(fixture(&[10, 0], &[18_001, 0]).kept(&filter(), 1), [0, 1]);
        assert_eq!(fixture(&[10, 10, 0], &[90_000, 5, 0]).kept(&filter(), 1), [0, 1], "the best one counts");
        let always = PrefixCacheAffinityFilter { max_ttft_penalty_ms: 0.0, ..filter() };
        assert_eq!(fixture(&[10, 0], &[90_000, 0]).kept(&always, 1), [0]);
        assert_eq!(fixture(&[10, 10], &[90_000, 90_000]).kept(&filter(), 1), [0, 1]);
    }

    #[test]
    fn exploration_keeps_all_as_often_as_configured() {
        let explorer = PrefixCacheAffinityFilter { exploration_probability: 0.25, ..filter() };
        let fixture = fixture(&[10, 0], &[]);
        let explored = (0..4_000).filter(|&seed| fixture.kept(&explorer, seed).len() == 2).count();
        assert!((880..1_120).contains(&explored), "{explored} of 4000");
    }

    #[test]
    fn a_predicted_time_counts_in_the_place_of_tokens_in_flight() {
        let predicted = PrefixCacheAffinityFilter { ttft_source: TtftSource::LatencyPredictor, ..filter() };
        let kept = |times: [f64; 2]| {
            let mut fixture = fixture(&[10, 0], &[90_000, 0]);
            fixture.predictions(times.map(|ttft| Prediction { ttft, ..Prediction::default() }));
            fixture.kept(&predicted, 1)
        };
        assert_eq!(kept([19_000.0, 1_000.0]), [0]);
        assert_eq!(kept([19_000.1, 1_000.0]), [0, 1]);
        assert_eq!(fixture(&[10, 0], &[]).kept(&predicted, 1), [0], "no predictions");
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let refusal = |json: &str| serde_json::from_str::<PrefixCacheAffinityFilter>(json).unwrap().check();
        for json in [
            r#"{"affinityThreshold": 1.1}"#,
            r#"{"explorationProbability": -0.1}"#,
            r#"{"maxTTFTPenaltyMs": -1}"#,
            r#"{"peakPrefillThroughput": 0}"#,
        ] {
            assert!(refusal(json).is_err(), "{json}");
        }
        assert_eq!(refusal(r#"{"ttftSource": "latencyPredictor", "peakPrefillThroughput": 0}"#), Ok(()));
        assert_eq!(refusal(r#"{"maxTTFTPenaltyMs": 0, "peakPrefillThroughput": 0}"#), Ok(()));
    }
}
