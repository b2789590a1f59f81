//! Counters of the store.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Counters of the store, for all pools together. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct StoreMetrics {
    pub(super) written: Counter,
    pub(super) read: Counter,
    pub(super) unreadable: Counter,
    pub(in crate::sharing) dropped: Counter,
    pub(super) failures: Counter,
    pub(super) connected: Gauge,
}

impl StoreMetrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let counters = [
            ("store_written", "Messages with changes that the store took", &metrics.written),
            ("store_read", "Messages with changes of other agents, from the store", &metrics.read),
            ("store_unreadable", "Entries of the store that were passed over", &metrics.unreadable),
            (
                "store_dropped",
                "Messages that were dropped because the store did not take them",
                &metrics.dropped,
            ),
            ("store_failures", "Connections to the store that failed", &metrics.failures),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let help = "Pools whose changes are exchanged with the store now";
        registry.register("store_connected_pools", help, metrics.connected.clone());
        metrics
    }
}
