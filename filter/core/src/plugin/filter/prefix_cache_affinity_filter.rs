//! `prefix-cache-affinity-filter`: endpoints that have the prompt, unless waiting for them costs more than it saves.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::parameter::{PREFIX_PRODUCER, allow, or_default};
use crate::plugin::{Filter, Need, Plugin, Roles};
use crate::rng::Rng;

/// An endpoint that was sent at least `affinity_threshold` of the prompt before is *sticky*. Keeps the sticky ones; all
///
/// - if there is one candidate, no sticky one, or the threshold is 0 or less;
/// - with probability `exploration_probability`;
/// - if the lowest time to the first token of sticky endpoints exceeds the lowest of the others by more than
///   `max_ttft_penalty_ms`. An endpoint's time is estimated as tokens in flight / `peak_prefill_throughput`.
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
    /// A parameter of the EPP's latency predictor; only the empty value is accepted.
    latency_prediction_info_producer_name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum TtftSource {
    PrefillThroughput,
    /// Known, to be refused by name.
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
        let predictor = self.ttft_source == TtftSource::LatencyPredictor;
        allow(
            !predictor,
            "ttftSource",
            "latencyPredictor",
            "prefillThroughput; there is no latency predictor here",
        )?;
        let predictor = &self.latency_prediction_info_producer_name;
        allow(
            predictor.is_empty(),
            "latencyPredictionInfoProducerName",
            predictor,
            "nothing; there is no latency predictor here",
        )?;
        let is_share = |share: f64| (0.0..=1.0).contains(&share);
        let threshold = self.affinity_threshold;
        allow(threshold <= 1.0, "affinityThreshold", threshold, "1 and below")?;
        let exploration = self.exploration_probability;
        allow(is_share(exploration), "explorationProbability", exploration, "0 to 1")?;
        let penalty = self.max_ttft_penalty_ms;
        allow(penalty >= 0.0, "maxTTFTPenaltyMs", penalty, "0 and above")?;
        let throughput = self.peak_prefill_throughput;
        let is_needed = penalty > 0.0;
        allow(
            throughput > 0.0 || throughput == 0.0 && !is_needed,
            "peakPrefillThroughput",
            throughput,
            "above 0, or 0 if maxTTFTPenaltyMs is 0",
        )
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        let mut needs = vec![Need::prefix_producer(self.producer())];
        if self.max_ttft_penalty_ms > 0.0 {
            needs.push(Need::load_producer(&self.in_flight_load_producer_name));
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
        let prefix = cycle.prefix(self.producer());
        let is_sticky = |endpoint: usize| prefix.ratio(endpoint) >= self.affinity_threshold;
        let least_tokens = |sticky: bool| {
            let of_kind = candidates.iter().filter(|&&endpoint| is_sticky(endpoint) == sticky);
            of_kind.map(|&endpoint| cycle.load(endpoint).tokens).min()
        };
        let Some(sticky) = least_tokens(true) else { return };
        if let Some(other) = least_tokens(false)
            && self.max_ttft_penalty_ms > 0.0
            && self.milliseconds(sticky) - self.milliseconds(other) > self.max_ttft_penalty_ms
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

    fn milliseconds(&self, tokens: u64) -> f64 {
        tokens as f64 / self.peak_prefill_throughput * 1_000.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::Fixture;
    use crate::pool::load::Load;
    use crate::state::prefix::PrefixMatch;
    use crate::test;

    fn fixture(matched: &[u32], tokens: &[u64]) -> Fixture {
        let mut fixture = Fixture::of(matched.len());
        fixture.prefix(PrefixMatch { matched: matched.to_vec(), total: 10, block_size: 64 });
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
    fn parameters_out_of_range_and_the_predictor_are_refused() {
        let refusal = |json: &str| serde_json::from_str::<PrefixCacheAffinityFilter>(json).unwrap().check();
        for json in [
            r#"{"affinityThreshold": 1.1}"#,
            r#"{"explorationProbability": -0.1}"#,
            r#"{"maxTTFTPenaltyMs": -1}"#,
            r#"{"peakPrefillThroughput": 0}"#,
            r#"{"latencyPredictionInfoProducerName": "p"}"#,
        ] {
            assert!(refusal(json).is_err(), "{json}");
        }
        let error = refusal(r#"{"ttftSource": "latencyPredictor"}"#).unwrap_err();
        assert!(error.contains("latencyPredictor") && error.contains("prefillThroughput"), "{error}");
        assert_eq!(refusal(r#"{"maxTTFTPenaltyMs": 0, "peakPrefillThroughput": 0}"#), Ok(()));
    }
}
