//! The filter's counters, `wasmcustom.endpoint_picker.<pool>.<name>` among Envoy's statistics.

use endpoint_picker::decision::Outcome;

use crate::host;

/// One counter per rung of what can happen to a request, and per result of a poll.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) routed: Counter,
    pub(crate) abstained: Counter,
    pub(crate) rejected_400: Counter,
    pub(crate) rejected_404: Counter,
    pub(crate) rejected_429: Counter,
    pub(crate) rejected_503: Counter,
    pub(crate) snapshots: Counter,
    pub(crate) snapshot_failures: Counter,
}

/// A counter; nothing happens if Envoy would not define it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter(Option<u32>);

impl Counter {
    /// Adds one.
    pub(crate) fn increment(self) {
        if let Some(id) = self.0
            && let Err(error) = host::increment(id)
        {
            log::debug!("{error}");
        }
    }
}

impl Stats {
    pub(crate) fn new(pool: &str) -> Self {
        let counter = |name: &str| {
            let id = host::define_counter(&format!("endpoint_picker.{pool}.{name}"));
            Counter(id.inspect_err(|error| log::warn!("no counter {name}: {error}")).ok())
        };
        Self {
            routed: counter("routed"),
            abstained: counter("abstained"),
            rejected_400: counter("rejected_400"),
            rejected_404: counter("rejected_404"),
            rejected_429: counter("rejected_429"),
            rejected_503: counter("rejected_503"),
            snapshots: counter("snapshots"),
            snapshot_failures: counter("snapshot_failures"),
        }
    }

    /// Counts a request that was not routed.
    pub(crate) fn count(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Reject(rejection) => match rejection.code.status() {
                404 => self.rejected_404.increment(),
                429 => self.rejected_429.increment(),
                503 => self.rejected_503.increment(),
                _ => self.rejected_400.increment(),
            },
            Outcome::Abstain(_) => self.abstained.increment(),
            _ => self.routed.increment(),
        }
    }
}
