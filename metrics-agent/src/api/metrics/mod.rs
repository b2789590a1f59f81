//! The agent's metrics: its own counters, and gauges of the pools.

mod pool_gauges;
mod queue_metrics;

use core::fmt;
use core::sync::atomic::AtomicU64;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use metrics_agent_catalogue::Refusal;
use metrics_agent_sources::manifests::Source;
use metrics_agent_status::pool::PoolStatus;
use metrics_agent_support::runtime::Labels;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::{ApiState, error_response};
use crate::publish::pool_publisher::EndpointCounts;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(in crate::api) async fn metrics(State(state): State<Arc<ApiState>>) -> Response {
    let publishers = state.pools.publishers();
    let counts = publishers.iter().map(|(_, publisher)| publisher.endpoint_counts());
    let counts = counts.fold(EndpointCounts::default(), |a, b| EndpointCounts {
        endpoints: a.endpoints + b.endpoints,
        ready: a.ready + b.ready,
        oldest: a.oldest.max(b.oldest),
    });
    let statuses = publishers.iter().filter_map(|(_, publisher)| state.status(publisher));
    match text(&state, counts, &statuses.collect::<Vec<_>>()) {
        Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => {
            let problem = format!("cannot write the metrics: {error}");
            error_response(StatusCode::INTERNAL_SERVER_ERROR, &problem)
        }
    }
}

/// The agent's counters, then the gauges of the pools.
fn text(state: &ApiState, counts: EndpointCounts, pools: &[PoolStatus]) -> Result<String, fmt::Error> {
    state.metrics.set_endpoints(counts);
    state.metrics.set_refused_objects(&state.refusals());
    if let Some(events) = &state.kv_events {
        events.set_gauges();
    }
    let mut text = String::new();
    encode_registry(&mut text, &state.registry)?;
    encode_registry(&mut text, &pool_gauges::registry(pools))?;
    encode_eof(&mut text)?;
    Ok(text)
}

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
    /// Registers the metrics. Reports and requests for unknown pools start at zero, because Prometheus sees
    /// no increase in the first value of a new series.
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

    /// Counts the response to a snapshot request.
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
    fn set_endpoints(&self, counts: EndpointCounts) {
        self.endpoints.set(i64::try_from(counts.endpoints).unwrap_or(i64::MAX));
        self.endpoints_ready.set(i64::try_from(counts.ready).unwrap_or(i64::MAX));
        self.oldest_reading.set(counts.oldest.unwrap_or_default().as_secs_f64());
    }
}

/// Counts a waiting snapshot request until it is dropped.
pub(in crate::api) struct WaiterGuard(Gauge);

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

type SeriesLabels = Vec<(&'static str, String)>;
type Numbers = Family<SeriesLabels, Gauge<f64, AtomicU64>>;
type Counts = Family<SeriesLabels, Counter>;

/// Makes families of one registry.
struct Families<'a>(&'a mut Registry);

impl Families<'_> {
    fn gauge(&mut self, name: &str, help: &str) -> Numbers {
        self.gauge_of(name, help, None)
    }

    fn gauge_of(&mut self, name: &str, help: &str, unit: Option<Unit>) -> Numbers {
        let family = Numbers::default();
        self.add(name, help, unit, family.clone());
        family
    }

    fn counter(&mut self, name: &str, help: &str) -> Counts {
        let family = Counts::default();
        self.add(name, help, None, family.clone());
        family
    }

    fn histogram(&mut self, name: &str, help: &str, series: Vec<(SeriesLabels, Distribution)>) {
        self.add(name, help, None, Histograms(series));
    }

    fn add(&mut self, name: &str, help: &str, unit: Option<Unit>, family: impl Metric) {
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, family),
            None => self.0.register(name, help, family),
        }
    }
}

/// Values that proxies counted.
#[derive(Debug)]
struct Distribution {
    sum: f64,
    count: u64,
    /// Upper bounds, the last infinite, each with the number of values up to it and above the bound before.
    buckets: Vec<(f64, u64)>,
}

/// Histograms of one name.
#[derive(Debug)]
struct Histograms(Vec<(SeriesLabels, Distribution)>);

impl EncodeMetric for Histograms {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (labels, Distribution { sum, count, buckets }) in &self.0 {
            let mut series = encoder.encode_family(labels)?;
            series.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Raises a gauge to a value; a greater value stays.
fn raise(family: &Numbers, labels: &SeriesLabels, value: f64) {
    let gauge = family.get_or_create(labels);
    gauge.set(gauge.get().max(value));
}
