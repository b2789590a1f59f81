//! Counters of requests whose clients have limits for the latency.

use core::time::Duration;

use endpoint_picker::input::prediction::ResponseLimits;
use endpoint_picker::state::latency::CompleteResponse;

use super::sink::{Counter, Labels, Metric, MetricKind, MetricSink};

/// The counters of a pool.
#[derive(Debug)]
pub(super) struct LimitMetrics<M: MetricSink> {
    /// Routed requests with a limit.
    pub(super) admitted: Counter<M>,
    /// Requests that were refused because no endpoint would keep their limits.
    pub(super) refused: Counter<M>,
    /// Responses that kept the limit for the first token, and responses that missed it.
    first_token: [Counter<M>; 2],
    /// The same for the limit for tokens.
    tokens: [Counter<M>; 2],
}

impl<M: MetricSink> LimitMetrics<M> {
    pub(super) fn new(sink: &M, pool: &str) -> Self {
        let counter = |name| {
            let family = sink.family(&Metric { kind: MetricKind::Counter, pool, name, labels: &[] });
            Counter::new(sink, &family, &Labels::default())
        };
        Self {
            admitted: counter("slo_admitted"),
            refused: counter("slo_refused"),
            first_token: ["slo_ttft_kept", "slo_ttft_missed"].map(counter),
            tokens: ["slo_tpot_kept", "slo_tpot_missed"].map(counter),
        }
    }

    /// Counts a response whose first chunk came this long after the decision.
    pub(super) fn count_first_chunk(&self, limits: &ResponseLimits, took: Duration) {
        count(&self.first_token, limits.keeps_first_chunk(took));
    }

    pub(super) fn count_complete(&self, limits: &ResponseLimits, response: &CompleteResponse) {
        count(&self.first_token, limits.keeps_end(response));
        count(&self.tokens, limits.keeps_tokens(response));
    }

    pub(super) fn flush(&self) {
        let all = [&self.admitted, &self.refused].into_iter().chain(&self.first_token).chain(&self.tokens);
        all.for_each(Counter::flush);
    }
}

fn count<M: MetricSink>([kept, missed]: &[Counter<M>; 2], is_kept: Option<bool>) {
    match is_kept {
        Some(true) => kept.increment(),
        Some(false) => missed.increment(),
        None => {}
    }
}
