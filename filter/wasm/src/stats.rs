//! The filter's counters and gauges, `wasmcustom.endpoint_picker.<pool>.<name>` among Envoy's statistics.

use endpoint_picker::decision::{Abstention, Outcome};
use endpoint_picker_wire::report::Rejected;

use crate::host;

/// One counter per rung of what can happen to a request, and per result of a poll; and what is under way.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) routed: Counter,
    /// Those of `routed` that no readings were used for, because the agent has been silent for too long.
    pub(crate) routed_stale: Counter,
    pub(crate) abstained_no_snapshot: Counter,
    pub(crate) abstained_body_too_large: Counter,
    pub(crate) rejected_400: Counter,
    pub(crate) rejected_404: Counter,
    pub(crate) rejected_413: Counter,
    pub(crate) rejected_429: Counter,
    pub(crate) rejected_503: Counter,
    pub(crate) snapshots: Counter,
    pub(crate) snapshot_failures: Counter,
    /// Requests under way at the pool's endpoints, of all workers together.
    pub(crate) in_flight: Gauge,
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

    /// What all VMs together have counted; 0 if Envoy would not define the counter.
    pub(crate) fn value(self) -> u64 {
        let value = self.0.map_or(Ok(0), host::counted);
        value.inspect_err(|error| log::debug!("{error}")).unwrap_or(0)
    }
}

/// A gauge; nothing happens if Envoy would not define it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauge(Option<u32>);

impl Gauge {
    /// Puts this value in the place of the last one, whichever VM set it.
    pub(crate) fn set(self, value: u64) {
        if let Some(id) = self.0
            && let Err(error) = host::set(id, value)
        {
            log::debug!("{error}");
        }
    }
}

impl Stats {
    pub(crate) fn new(pool: &str) -> Self {
        let define = |kind: fn(&str) -> host::Result<u32>, name: &str| {
            let id = kind(&format!("endpoint_picker.{pool}.{name}"));
            id.inspect_err(|error| log::warn!("no statistic {name}: {error}")).ok()
        };
        let counter = |name| Counter(define(host::define_counter, name));
        Self {
            routed: counter("routed"),
            routed_stale: counter("routed_stale"),
            abstained_no_snapshot: counter("abstained_no_snapshot"),
            abstained_body_too_large: counter("abstained_body_too_large"),
            rejected_400: counter("rejected_400"),
            rejected_404: counter("rejected_404"),
            rejected_413: counter("rejected_413"),
            rejected_429: counter("rejected_429"),
            rejected_503: counter("rejected_503"),
            snapshots: counter("snapshots"),
            snapshot_failures: counter("snapshot_failures"),
            in_flight: Gauge(define(host::define_gauge, "in_flight")),
        }
    }

    /// The rejected requests by status, where there were any.
    pub(crate) fn rejected(&self) -> Vec<Rejected> {
        [
            (400, self.rejected_400),
            (404, self.rejected_404),
            (413, self.rejected_413),
            (429, self.rejected_429),
            (503, self.rejected_503),
        ]
        .map(|(status, counter)| Rejected { status, requests: counter.value() })
        .into_iter()
        .filter(|rejected| rejected.requests > 0)
        .collect()
    }

    /// Counts a request that was not routed.
    pub(crate) fn count(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Reject(rejection) => match rejection.code.status() {
                404 => self.rejected_404.increment(),
                413 => self.rejected_413.increment(),
                429 => self.rejected_429.increment(),
                503 => self.rejected_503.increment(),
                _ => self.rejected_400.increment(),
            },
            Outcome::Abstain(Abstention::BodyTooLarge) => self.abstained_body_too_large.increment(),
            Outcome::Abstain(_) => self.abstained_no_snapshot.increment(),
            _ => self.routed.increment(),
        }
    }
}
