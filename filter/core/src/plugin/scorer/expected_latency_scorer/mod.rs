//! `expected-latency-scorer`: the sooner an endpoint is expected to send its first output, the better.

mod adapter;
mod cost;
#[expect(clippy::inline_always, reason = "loops over endpoints are vectorized only without calls")]
mod formula;
mod runs;

use core::cell::OnceCell;
use std::sync::Arc;

use serde::Deserialize;

use self::cost::CostParameters;
pub(in crate::plugin) use self::cost::Costs;
use crate::decision::Records;
use crate::input::cycle::Cycle;
use crate::plugin::parameter::{PREFIX_PRODUCER, allow, or_default};
use crate::plugin::{Need, Plugin, Recorder, Roles, Routed, Scorer};
use crate::state::PluginState;
use crate::state::latency::LatencyState;

/// 1 / (1 + cost / 1000): the cost is the expected time to the first output of the response and the delay of
/// other requests, in milliseconds, rounded to half of one, so that endpoints that differ by less are equal.
///
/// Everything that the cost depends on is counted by the proxy, read from the servers or
/// [learnt](LatencyState) from responses.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ExpectedLatencyScorer {
    /// Tokens of prompts that a server reads in a second, before the first response shows it; 1..=1e9.
    prefill_throughput: f64,
    /// Requests that a server works on at once; 0: learnt.
    max_running: u64,
    /// Milliseconds that loading a LoRA adapter takes, 0..=600 000.
    lora_load_ms: f64,
    /// The prefix producer whose matches count as cached; empty: the approximate one.
    prefix_match_info_producer_name: String,
    /// Name of the `inflight-load-producer`; empty: the only one configured.
    in_flight_load_producer_name: String,
}

impl Default for ExpectedLatencyScorer {
    fn default() -> Self {
        Self {
            prefill_throughput: PREFILL_THROUGHPUT,
            max_running: Self::DEFAULT_PARAMETERS.max_running,
            lora_load_ms: Self::DEFAULT_PARAMETERS.lora_load,
            prefix_match_info_producer_name: String::new(),
            in_flight_load_producer_name: String::new(),
        }
    }
}

/// The default of tokens of prompts that a server reads in a second. It only has to be in the magnitude,
/// and rather too low: from 8 000 and from 100 000 the slope came to 53 to 57 µs a token in simulated time;
/// a fixed 100 000 in front of servers of 25 000 made the p90 148 times as long at 95 % of the capacity, a
/// fixed 6 000 harmed one of five loads.
const PREFILL_THROUGHPUT: f64 = 8_000.0;

impl ExpectedLatencyScorer {
    /// The parameters of a cost by default.
    pub(in crate::plugin) const DEFAULT_PARAMETERS: CostParameters =
        CostParameters { prior: 1_000.0 / PREFILL_THROUGHPUT, max_running: 0, lora_load: 40.0 };

    /// Milliseconds per token before the first response.
    fn prior(&self) -> f64 {
        1_000.0 / self.prefill_throughput
    }

    fn cost_parameters(&self) -> CostParameters {
        CostParameters { prior: self.prior(), max_running: self.max_running, lora_load: self.lora_load_ms }
    }

    fn prefix_producer(&self) -> &str {
        or_default(&self.prefix_match_info_producer_name, PREFIX_PRODUCER)
    }
}

impl Plugin for ExpectedLatencyScorer {
    fn check(&self) -> Result<(), String> {
        let Self { prefill_throughput, lora_load_ms, .. } = *self;
        let is_speed = (1.0..=1e9).contains(&prefill_throughput);
        allow(is_speed, "prefillThroughput", prefill_throughput, "1 to 1e9 tokens per second")?;
        let is_time = (0.0..=600_000.0).contains(&lora_load_ms);
        allow(is_time, "loraLoadMs", lora_load_ms, "0 to 600000")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self.clone()), recorder: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![
            Need::prefix_producer(self.prefix_producer()),
            Need::prompt_load_producer(&self.in_flight_load_producer_name),
        ]
    }
}

impl Scorer for ExpectedLatencyScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let nothing = OnceCell::new();
        Costs::new(self.cost_parameters(), cycle, &nothing).score(candidates, scores);
    }

    fn explain(&self, cycle: &Cycle<'_>, candidates: &[usize], endpoint: usize) -> Option<String> {
        let nothing = OnceCell::new();
        let mut costs = Costs::new(self.cost_parameters(), cycle, &nothing);
        let requests: Vec<f64> = candidates.iter().map(|&endpoint| costs.requests(endpoint)).collect();
        costs.compare(&requests);
        let terms = costs.terms(endpoint, costs.requests(endpoint));
        Some(costs.explain(endpoint, &terms))
    }
}

impl Recorder for ExpectedLatencyScorer {
    fn new_state(&self) -> Option<Box<dyn PluginState>> {
        Some(Box::new(LatencyState::new(self.prior())))
    }

    fn reads_rated(&self) -> bool {
        false
    }

    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>, records: &mut Records) {
        let nothing = OnceCell::new();
        let costs = Costs::new(self.cost_parameters(), cycle, &nothing);
        let change = |endpoint| cycle.state_change(endpoint, costs.sent(endpoint, None));
        records.changes.extend(routed.endpoints().map(change));
        records.expectations.extend(costs.expectations(routed));
    }
}

#[cfg(test)]
mod adapter_tests;
#[cfg(test)]
mod random_pools;
#[cfg(test)]
mod tests;
