//! Counters of the API.

use core::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use crate::catalogue::Refusal;
use crate::publish::pool_publisher::EndpointCounts;
use crate::runtime::telemetry::Labels;
use crate::sources::problem::Source;

/// Counters of the API, and gauges of all endpoints together. Clones count together.
#[derive(Clone, Debug)]
pub struct ApiMetrics {
    endpoints: Gauge,
    endpoints_ready: Gauge,
    oldest_reading: Gauge<f64, AtomicU64>,
    snapshots: Family<Labels<1>, Counter>,
    refusals: Family<Labels<1>, Counter>,
    refused_objects: Family<Labels<1>, Gauge>,
    waiters: Gauge,
    reports: Family<Labels<1>, Counter>,
    exchanges: Family<Labels<1>, Counter>,
}

impl ApiMetrics {
    /// Registers the metrics. Reports and requests for unknown pools start at zero, because Prometheus sees no increase in the first value of a new series.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            endpoints: Gauge::default(),
            endpoints_ready: Gauge::default(),
            oldest_reading: Gauge::default(),
            snapshots: Family::default(),
            refusals: Family::default(),
            refused_objects: Family::default(),
            waiters: Gauge::default(),
            reports: Family::default(),
            exchanges: Family::default(),
        };
        drop(metrics.snapshots.get_or_create(&[("outcome", "unknown_pool")]));
        for outcome in ["accepted", "refused"] {
            drop(metrics.reports.get_or_create(&[("outcome", outcome)]));
        }
        registry.register("endpoints", "Endpoints of all pools", metrics.endpoints.clone());
        registry.register("endpoints_ready", "Endpoints that are ready", metrics.endpoints_ready.clone());
        let oldest = metrics.oldest_reading.clone();
        registry.register_with_unit("oldest_reading_age", "Age of the oldest reading", Unit::Seconds, oldest);
        registry.register("snapshots", "Answers to snapshot requests, by outcome", metrics.snapshots.clone());
        let help = "Requests without the required host, certificate or token, by reason";
        registry.register("refused_requests", help, metrics.refusals.clone());
        let help = "Objects and files whose newest version is refused, by kind";
        registry.register("refused_objects", help, metrics.refused_objects.clone());
        let help = "Snapshot requests that wait for a newer version";
        registry.register("snapshot_waiters", help, metrics.waiters.clone());
        registry.register("reports", "Reports of proxies, by outcome", metrics.reports.clone());
        for outcome in ["accepted", "refused"] {
            drop(metrics.exchanges.get_or_create(&[("outcome", outcome)]));
        }
        let help = "Requests of proxies that send and read shared changes, by outcome";
        registry.register("exchanges", help, metrics.exchanges.clone());
        metrics
    }

    /// Counts an answered snapshot request.
    pub(in crate::api) fn count_snapshot(&self, outcome: &'static str) {
        self.snapshots.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Sets the numbers of refused objects and files.
    pub(in crate::api) fn set_refused_objects(&self, refusals: &[Refusal]) {
        for kind in Source::KINDS {
            let count = refusals.iter().filter(|refusal| refusal.source.kind() == kind).count();
            let gauge = self.refused_objects.get_or_create(&[("kind", kind)]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Counts a request without the required host, certificate or token.
    pub(in crate::api) fn count_refusal(&self, reason: &'static str) {
        self.refusals.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts a snapshot request as waiting until the guard is dropped.
    pub(in crate::api) fn count_waiter(&self) -> WaiterGuard {
        self.waiters.inc();
        WaiterGuard(self.waiters.clone())
    }

    /// Counts a proxy's report.
    pub(in crate::api) fn count_report(&self, outcome: &'static str) {
        self.reports.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts a request of a proxy that sends and reads shared changes.
    pub(in crate::api) fn count_exchange(&self, outcome: &'static str) {
        self.exchanges.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Sets the gauges of all endpoints.
    pub(super) fn set_endpoints(&self, counts: EndpointCounts) {
        self.endpoints.set(i64::try_from(counts.endpoints).unwrap_or(i64::MAX));
        self.endpoints_ready.set(i64::try_from(counts.ready).unwrap_or(i64::MAX));
        self.oldest_reading.set(counts.oldest.unwrap_or_default().as_secs_f64());
    }
}

/// Counts a waiting snapshot request for as long as it lives.
pub(in crate::api) struct WaiterGuard(Gauge);

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}
