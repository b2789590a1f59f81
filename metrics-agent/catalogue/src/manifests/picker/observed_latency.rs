//! `latency-observer-producer-hub` and `latency-observation-scorer-hub`: lowered to the plugins of predicted
//! latency, which learn times to first outputs from responses too.

use core::time::Duration;

use endpoint_picker::plugin::parameter::duration;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Value as Json, json};

/// The type of the observer, which is its name where it has none of its own.
pub(super) const OBSERVER: &str = "latency-observer-producer-hub";

/// The type of the scorer.
pub(super) const SCORER: &str = "latency-observation-scorer-hub";

/// The type that an observer becomes.
pub(super) const PREDICTOR: &str = "predicted-latency-producer";

/// The parameters of `latency-observer-producer-hub`. All but the last are about windows of observations,
/// which are not kept here.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LatencyObserver {
    #[serde(deserialize_with = "above_zero")]
    interval_duration: Duration,
    #[serde(deserialize_with = "above_zero")]
    max_observation_age: Duration,
    max_requests: u64,
    min_requests: u64,
    low_percentile: f64,
    typical_percentile: f64,
    window_size: u64,
    #[serde(deserialize_with = "above_zero")]
    bucket_duration: Duration,
    bucket_history_size: u64,
    in_flight_load_producer_name: String,
}

impl Default for LatencyObserver {
    fn default() -> Self {
        Self {
            interval_duration: Duration::from_secs(1),
            max_observation_age: Duration::from_secs(180),
            max_requests: 100,
            min_requests: 10,
            low_percentile: 25.0,
            typical_percentile: 50.0,
            window_size: 5_000,
            bucket_duration: Duration::from_secs(60),
            bucket_history_size: 1_000,
            in_flight_load_producer_name: String::new(),
        }
    }
}

impl LatencyObserver {
    /// The parameters of `predicted-latency-producer`.
    pub(super) fn lower(self) -> Result<Json, String> {
        let Self { max_requests, window_size, low_percentile, typical_percentile, .. } = self;
        if max_requests > window_size {
            return Err(format!(
                "maxRequests is {max_requests}; allowed is at most windowSize, {window_size}"
            ));
        }
        if !(0.0 < low_percentile && low_percentile < typical_percentile && typical_percentile < 100.0) {
            return Err(format!(
                "lowPercentile is {low_percentile} and typicalPercentile {typical_percentile}; allowed are numbers between 0 and 100, the low one first"
            ));
        }
        if self.bucket_history_size < 2 {
            return Err(format!("bucketHistorySize is {}; allowed is 2 and above", self.bucket_history_size));
        }
        Ok(json!({
            "streamingMode": true,
            "inFlightLoadProducerName": self.in_flight_load_producer_name,
        }))
    }
}

/// The parameters of `latency-observation-scorer-hub`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct LatencyObservationScorer {
    exploration_rate: f64,
    min_inflight_gap: f64,
    #[serde(rename = "roundTTFTStep", deserialize_with = "any_duration")]
    _round_ttft_step: Duration,
    ttft_percentiles_producer_name: String,
    #[serde(rename = "inFlightLoadProducerName")]
    _in_flight_load_producer_name: String,
}

impl Default for LatencyObservationScorer {
    fn default() -> Self {
        Self {
            exploration_rate: 0.1,
            min_inflight_gap: 2.0,
            _round_ttft_step: Duration::ZERO,
            ttft_percentiles_producer_name: OBSERVER.to_owned(),
            _in_flight_load_producer_name: String::new(),
        }
    }
}

impl LatencyObservationScorer {
    /// The parameters of `latency-scorer`: the time to the first token alone counts.
    pub(super) fn lower(self) -> Result<Json, String> {
        let Self { exploration_rate, min_inflight_gap, ttft_percentiles_producer_name: observer, .. } = self;
        if !(0.0..=1.0).contains(&exploration_rate) {
            return Err(format!("explorationRate is {exploration_rate}; allowed is 0 to 1"));
        }
        if min_inflight_gap <= 0.0 {
            return Err(format!("minInflightGap is {min_inflight_gap}; allowed is above 0"));
        }
        let observer = if observer.is_empty() { OBSERVER } else { &observer };
        Ok(json!({"ttftWeight": 1, "tpotWeight": 0, "latencyPredictionInfoProducerName": observer}))
    }
}

fn any_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration::parse(&text).ok_or_else(|| {
        D::Error::custom(format_args!(
            "{text:?} is not a duration; allowed is one such as 200ms, 1.5s, 1m30s"
        ))
    })
}

fn above_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let given = any_duration(deserializer)?;
    if given.is_zero() { Err(D::Error::custom("is 0; allowed is above 0")) } else { Ok(given) }
}
