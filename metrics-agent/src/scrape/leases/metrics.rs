//! Counters of leases and of the readings that agents share.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counters of leases, for all pools together. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct LeaseMetrics {
    pub(super) held: Gauge,
    pub(super) read: Counter,
    pub(super) failures: Counter,
}

impl LeaseMetrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Endpoints that this agent scrapes for others";
        registry.register("scrape_leases", help, metrics.held.clone());
        let help = "Readings of other agents, from the store";
        registry.register("shared_readings", help, metrics.read.clone());
        let help = "Connections to the store that failed while readings were shared";
        registry.register("scrape_lease_failures", help, metrics.failures.clone());
        metrics
    }
}
