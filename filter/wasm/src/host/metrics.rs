//! Envoy's metrics, in Envoy `wasmcustom.endpoint_picker.<pool>.<name>`. They have no labels: the values are appended to the name, each
//! behind a `|`, and the `stats_tags` of envoy.yaml make labels of them.

use endpoint_picker_engine::metrics::{Labels, Metric, MetricKind, MetricSink};
use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use super::envoy::{Envoy, refused};

/// The kind of a metric, and the beginning of its name.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    kind: MetricType,
    prefix: String,
}

impl MetricSink for Envoy {
    type Family = Family;
    type Series = u32;

    fn family(&self, metric: &Metric<'_>) -> Family {
        let kind = match metric.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        Family { kind, prefix: format!("endpoint_picker.{}.{}", metric.pool, metric.name) }
    }

    fn series(&self, Family { kind, prefix }: &Family, values: &Labels) -> Option<u32> {
        let name = format!("{prefix}{}", values.suffix());
        let id = hostcalls::define_metric(*kind, &name).map_err(refused("define_metric"));
        id.inspect_err(|error| log::warn!("no metric {name}: {error}")).ok()
    }

    fn add(&self, &counter: &u32, count: u64) {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        if let Err(error) = hostcalls::increment_metric(counter, count).map_err(refused("increment_metric")) {
            log::debug!("{error}");
        }
    }

    fn record(&self, &metric: &u32, value: u64) {
        if let Err(error) = hostcalls::record_metric(metric, value).map_err(refused("record_metric")) {
            log::debug!("{error}");
        }
    }

    fn value(&self, &counter: &u32) -> u64 {
        let value = hostcalls::get_metric(counter).map_err(refused("get_metric"));
        value.inspect_err(|error| log::debug!("{error}")).unwrap_or(0)
    }
}
