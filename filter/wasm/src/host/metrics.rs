//! Envoy's metrics.

use endpoint_picker_engine::metrics::{MetricId, MetricKind, MetricSink};
use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use super::envoy::{Envoy, refused};

impl MetricSink for Envoy {
    fn define(&self, kind: MetricKind, name: &str) -> Option<MetricId> {
        let kind = match kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        let id = hostcalls::define_metric(kind, name).map_err(refused("define_metric"));
        id.inspect_err(|error| log::warn!("no metric {name}: {error}")).ok()
    }

    fn add(&self, counter: MetricId, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        if let Err(error) = hostcalls::increment_metric(counter, count).map_err(refused("increment_metric")) {
            log::debug!("{error}");
        }
    }

    fn record(&self, metric: MetricId, value: u64) {
        if let Err(error) = hostcalls::record_metric(metric, value).map_err(refused("record_metric")) {
            log::debug!("{error}");
        }
    }

    fn value(&self, counter: MetricId) -> u64 {
        let value = hostcalls::get_metric(counter).map_err(refused("get_metric"));
        value.inspect_err(|error| log::debug!("{error}")).unwrap_or(0)
    }
}
