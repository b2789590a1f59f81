//! `predicted-latency-producer`: the predicted latency of a request at each candidate.

use core::cell::OnceCell;
use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use crate::decision::Records;
use crate::input::cycle::Cycle;
use crate::input::prediction::{LatencyLimits, Prediction};
use crate::plugin::parameter::{PREFILL, PREFIX_PRODUCER, allow, duration, or_default};
use crate::plugin::scorer::{Costs, ExpectedLatencyScorer};
use crate::plugin::{LatencyPredictor, Need, Plugin, Recorder, Roles, Routed};
use crate::state::PluginState;
use crate::state::latency::{Expectation, LatencyState, PredictedTimes};

/// Addend of a time before it is rounded, in microseconds, so that errors of floating-point arithmetic do not
/// decide.
const TIE: f64 = 1e-6;

/// Predicts by the rule of `expected-latency-scorer`, where the EPP asks processes that it trains. The time
/// to the first token is the expected one without the delay of others; the time of a token is
/// [learnt](crate::state::latency::Calibration::token_time). Each is multiplied with the factor that makes
/// nine of ten predictions hold, and rounded to microseconds.
///
/// Without `streaming_mode`, the time to the end of the response is predicted in place of both.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PredictedLatencyProducer {
    /// Factor of the limits for tokens, above 0.
    slo_buffer_factor: f64,
    streaming_mode: bool,
    /// The label with the role of an endpoint. Where it is `prefill`, times of tokens are not compared.
    endpoint_role_label: String,
    /// `false`: it only learns.
    predict_in_produce: bool,
    /// The prefix producer whose matches count as cached; empty: the approximate one.
    prefix_match_info_producer_name: String,
    /// Name of the `inflight-load-producer`; empty: the only one configured.
    in_flight_load_producer_name: String,
    /// Without effect, as are the others below.
    #[serde(rename = "contextTTL", deserialize_with = "duration::deserialize_nanoseconds")]
    context_ttl: Duration,
    use_encoder_cache_features: bool,
    encoder_cache_match_info_producer_name: String,
    sampling_mean: f64,
    max_decode_token_samples_for_prediction: i64,
}

impl Default for PredictedLatencyProducer {
    fn default() -> Self {
        Self {
            slo_buffer_factor: 1.0,
            streaming_mode: false,
            endpoint_role_label: String::new(),
            predict_in_produce: true,
            prefix_match_info_producer_name: String::new(),
            in_flight_load_producer_name: String::new(),
            context_ttl: Duration::from_secs(300),
            use_encoder_cache_features: false,
            encoder_cache_match_info_producer_name: String::new(),
            sampling_mean: 1_000.0,
            max_decode_token_samples_for_prediction: 0,
        }
    }
}

impl Plugin for PredictedLatencyProducer {
    fn check(&self) -> Result<(), String> {
        let factor = self.slo_buffer_factor;
        allow(factor > 0.0 && factor.is_finite(), "sloBufferFactor", factor, "above 0")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { latency_predictor: Some(self.clone()), recorder: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![
            Need::prefix_producer(self.prefix_producer()),
            Need::prompt_load_producer(&self.in_flight_load_producer_name),
        ]
    }

    fn warnings(&self) -> Vec<String> {
        let default = Self::default();
        let encoder_producer = &self.encoder_cache_match_info_producer_name;
        let without_effect = [
            ("contextTTL", self.context_ttl != default.context_ttl, "a request is followed to its end"),
            ("useEncoderCacheFeatures", self.use_encoder_cache_features, IMAGES),
            ("encoderCacheMatchInfoProducerName", !encoder_producer.is_empty(), IMAGES),
            ("samplingMean", (self.sampling_mean - default.sampling_mean).abs() > 0.0, NO_SAMPLES),
            (
                "maxDecodeTokenSamplesForPrediction",
                self.max_decode_token_samples_for_prediction != 0,
                NO_SAMPLES,
            ),
        ];
        let given = without_effect.into_iter().filter(|(_, is_given, _)| *is_given);
        given.map(|(name, _, reason)| format!("{name} has no effect here: {reason}")).collect()
    }
}

const IMAGES: &str = "images count as tokens of the prompt";
const NO_SAMPLES: &str = "nothing is sampled during a response, in the EPP since v0.10 neither";

/// Calls `use_costs` with the terms of expected latencies, by the defaults of `expected-latency-scorer`.
fn with_costs<T>(cycle: &Cycle<'_>, use_costs: impl FnOnce(&Costs<'_>) -> T) -> T {
    let parameters = ExpectedLatencyScorer::DEFAULT_PARAMETERS;
    let nothing = OnceCell::new();
    use_costs(&Costs::new(parameters, cycle, &nothing))
}

impl PredictedLatencyProducer {
    fn prefix_producer(&self) -> &str {
        or_default(&self.prefix_match_info_producer_name, PREFIX_PRODUCER)
    }

    /// The client's limit for a token in microseconds, as the state counts it; 0 without one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, which is the intent"
    )]
    fn token_limit(&self, cycle: &Cycle<'_>) -> u32 {
        if !self.streaming_mode {
            return 0;
        }
        (cycle.limits.tpot * 1e3).ceil() as u32
    }

    /// The prediction for one endpoint.
    fn prediction(&self, cycle: &Cycle<'_>, costs: &Costs<'_>, endpoint: usize) -> Prediction {
        let limits = cycle.limits;
        let first = costs.first_chunk(endpoint);
        let state = costs.state();
        let calibration = state.calibration();
        if !self.streaming_mode {
            let ttft = microseconds((first + state.time_to_end()) * calibration.margin());
            return Prediction {
                ttft,
                ttft_headroom: limits.ttft - ttft,
                is_valid: limits.keeps_ttft(ttft) != Some(false),
                ..Prediction::default()
            };
        }
        let ttft = microseconds(first * calibration.margin());
        let tpot = calibration.token_time(costs.requests(endpoint)) * calibration.token_margin();
        let tpot = microseconds(tpot);
        let is_prefill = !self.endpoint_role_label.is_empty()
            && cycle.endpoint(endpoint).label(&self.endpoint_role_label) == Some(PREFILL);
        let (tpot_headroom, keeps_tpot) = if is_prefill {
            (0.0, true)
        } else {
            // Requests in flight there have to keep their limits, too.
            let least = state.at(endpoint).least_token_limit();
            let least = least.map_or(f64::INFINITY, |least| least.as_secs_f64() * 1e3);
            let bound = LatencyLimits { tpot: limits.tpot.min(least) * self.slo_buffer_factor, ..limits };
            (bound.tpot - tpot, bound.keeps_tpot(tpot) != Some(false))
        };
        let is_valid = keeps_tpot && limits.keeps_ttft(ttft) != Some(false);
        Prediction { ttft, tpot, ttft_headroom: limits.ttft - ttft, tpot_headroom, is_valid }
    }
}

/// Milliseconds, rounded to whole microseconds.
fn microseconds(milliseconds: f64) -> f64 {
    (milliseconds * 1e3 + TIE).round() / 1e3
}

impl LatencyPredictor for PredictedLatencyProducer {
    fn predict(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> Option<Vec<Option<Prediction>>> {
        if !self.predict_in_produce {
            return None;
        }
        let mut by_endpoint = vec![None; cycle.pool.as_slice().len()];
        with_costs(cycle, |costs| {
            for &endpoint in candidates {
                if let Some(slot) = by_endpoint.get_mut(endpoint) {
                    *slot = Some(self.prediction(cycle, costs, endpoint));
                }
            }
        });
        Some(by_endpoint)
    }

    fn predicts_whole(&self) -> bool {
        !self.streaming_mode
    }
}

impl Recorder for PredictedLatencyProducer {
    fn new_state(&self) -> Option<Box<dyn PluginState>> {
        Some(Box::new(LatencyState::new(ExpectedLatencyScorer::DEFAULT_PARAMETERS.prior)))
    }

    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>, records: &mut Records) {
        let (is_whole, token_limit) = (!self.streaming_mode, self.token_limit(cycle));
        let predicted = Some(PredictedTimes { is_whole, token_limit });
        with_costs(cycle, |costs| {
            let change = |endpoint| cycle.state_change(endpoint, costs.sent(endpoint, Some(token_limit)));
            records.changes.extend(routed.endpoints().map(change));
            let expectations = costs.expectations(routed);
            records.expectations.extend(expectations.map(|expected| Expectation { predicted, ..expected }));
        });
    }
}
