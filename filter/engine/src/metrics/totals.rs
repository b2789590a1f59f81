//! Counts of requests for reports and pages.

use endpoint_picker_wire::report;

use super::Metrics;
use super::sink::MetricSink;

/// Counts of requests, of all workers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// The requests that were routed.
    pub routed: u64,
    /// The routed requests whose first attempt went to a server that is not among their destinations.
    pub served_elsewhere: u64,
    /// The requests that were left to the proxy.
    pub abstained: u64,
    /// The requests that were rejected, by status, without statuses that never occurred.
    pub rejected: Vec<report::Rejected>,
    /// The blocks of the prompts of routed requests.
    pub prompt_blocks: u64,
    /// Blocks of them that the endpoint had been sent before.
    pub prompt_blocks_matched: u64,
    /// The filter is itself the shadow of another picker.
    pub is_shadow: bool,
    /// The decisions with which the shadow agreed.
    pub shadow_agreed: u64,
    /// The decisions with which the shadow did not agree.
    pub shadow_disagreed: u64,
    /// Streams of the filter that resumes them; `None`: there is none for this pool, or the shell does not know it.
    pub resumptions: Option<report::Resumptions>,
}

impl<M: MetricSink> Metrics<M> {
    /// The counts that all workers have flushed, of a filter that picks.
    pub(crate) fn totals(&self) -> Totals {
        let rejected = self.rejected.iter().map(|(code, counter)| (code.status(), counter.value()));
        let rejected = rejected.filter(|&(_, requests)| requests > 0);
        Totals {
            routed: self.routed.value(),
            served_elsewhere: self.served_elsewhere.value(),
            abstained: self.abstained_no_snapshot.value()
                + self.abstained_body_too_large.value()
                + self.abstained_body_compressed.value(),
            rejected: rejected
                .map(|(status, requests)| report::Rejected { status: status.into(), requests })
                .collect(),
            prompt_blocks: self.prompt_blocks.value(),
            prompt_blocks_matched: self.prompt_blocks_matched.value(),
            is_shadow: false,
            shadow_agreed: self.shadow_agreed.value(),
            shadow_disagreed: self.shadow_disagreed.value(),
            resumptions: None,
        }
    }
}
