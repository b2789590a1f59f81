//! Counters of watches.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::runtime::telemetry::Labels;

/// Counters of watches. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics {
    pub(super) lists: Family<Labels<1>, Counter>,
    pub(super) errors: Family<Labels<2>, Counter>,
    pub(super) objects: Family<Labels<1>, Gauge>,
    pub(super) ignored: Family<Labels<1>, Gauge>,
    pub(super) watches: Family<Labels<2>, Gauge>,
}

impl WatchMetrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help =
            "Lists of a kind of objects, by resource: the first one, and those after changes were missed";
        registry.register("kubernetes_lists", help, metrics.lists.clone());
        let help = "Failed lists and watches, by resource and reason";
        registry.register("kubernetes_watch_errors", help, metrics.errors.clone());
        let help = "Objects that the agent uses, by resource; of pods those that are ready";
        registry.register("kubernetes_objects", help, metrics.objects.clone());
        let help = "Objects that the agent cannot use, by resource; the log has the reasons";
        registry.register("kubernetes_ignored_objects", help, metrics.ignored.clone());
        let help = "Watches, by resource and state";
        registry.register("kubernetes_watches", help, metrics.watches.clone());
        metrics
    }
}
