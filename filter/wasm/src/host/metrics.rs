//! Envoy's metrics, in Envoy `wasmcustom.endpoint_picker.<pool>.<name>`. They have no labels: the values are
//! appended to the name, each after a `|`, and the `stats_tags` of envoy.yaml make labels of them.

use core::hash::{Hash, Hasher};
use std::hash::DefaultHasher;

use endpoint_picker_engine::metrics::{Labels, MAX_SERIES, Metric, MetricSink};
use endpoint_picker_engine::proxy::Result;
use endpoint_picker_wire::statistics::{MetricKind, TARGET_MODEL};
use endpoint_picker_workers::{SharedData, Versioned};
use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;

use super::{Envoy, refused};

/// Attempts to add a series to the list that all VMs share.
const ATTEMPTS: usize = 8;

/// The kind of a metric, and the beginning of its name.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    kind: MetricType,
    prefix: String,
    /// Clients choose the values of its labels.
    is_of_models: bool,
}

/// Whether all VMs together have room for the series with this suffix: they have [`MAX_SERIES`] series of a
/// metric, and one series for all other values. Called once for each series of a VM.
fn has_room(prefix: &str, suffix: &str) -> Result<bool> {
    let key = format!("{prefix}.series");
    let mut hasher = DefaultHasher::new();
    suffix.hash(&mut hasher);
    let hash = hasher.finish().to_le_bytes();
    for _ in 0..ATTEMPTS {
        let Versioned { mut bytes, version } = Envoy.get(&key)?;
        if bytes.chunks_exact(hash.len()).any(|known| known == hash) {
            return Ok(true);
        }
        if bytes.len() >= MAX_SERIES * hash.len() {
            return Ok(false);
        }
        bytes.extend(hash);
        if Envoy.compare_and_swap(&key, &bytes, version)? {
            return Ok(true);
        }
    }
    Ok(false)
}

impl MetricSink for Envoy {
    type Family = Family;
    type Series = u32;

    fn family(&self, metric: &Metric<'_>) -> Family {
        let kind = match metric.statistic.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        Family {
            kind,
            prefix: format!("endpoint_picker.{}.{}", metric.pool, metric.statistic.name),
            is_of_models: metric.statistic.labels.contains(&TARGET_MODEL),
        }
    }

    fn series(&self, Family { kind, prefix, is_of_models }: &Family, values: &Labels) -> Option<u32> {
        let has_room = !is_of_models
            || has_room(prefix, values.suffix()).unwrap_or_else(|error| {
                log::debug!("{error}");
                false
            });
        let name = if has_room {
            format!("{prefix}{}", values.suffix())
        } else {
            format!("{prefix}{}", values.other().suffix())
        };
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
