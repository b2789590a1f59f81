//! Counters of requests whose clients have limits for the latency.

use core::time::Duration;

use endpoint_picker::input::prediction::ResponseLimits;
use endpoint_picker::state::latency::CompleteResponse;
use endpoint_picker_wire::statistics::Count;

use super::Metrics;
use super::sink::MetricSink;

impl<M: MetricSink> Metrics<M> {
    /// Counts a response whose first chunk came this long after the decision.
    pub(crate) fn count_first_chunk(&self, limits: &ResponseLimits, took: Duration) {
        self.count_kept(limits.keeps_first_chunk(took), Count::SloTtftKept, Count::SloTtftMissed);
    }

    /// Counts a complete response by its limits.
    pub(crate) fn count_limits(&self, limits: &ResponseLimits, response: &CompleteResponse) {
        self.count_kept(limits.keeps_end(response), Count::SloTtftKept, Count::SloTtftMissed);
        self.count_kept(limits.keeps_tokens(response), Count::SloTpotKept, Count::SloTpotMissed);
    }

    fn count_kept(&self, is_kept: Option<bool>, kept: Count, missed: Count) {
        match is_kept {
            Some(true) => self.count(kept),
            Some(false) => self.count(missed),
            None => {}
        }
    }
}
