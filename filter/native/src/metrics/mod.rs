//! Envoy's metrics, with labels.
//!
//! All workers and configurations count into one [registry] of the process, in memory. Once a second a
//! [`Flusher`](flusher::Flusher) writes what has changed into Envoy. Requests call Envoy for no metric.

pub(crate) mod flusher;
mod registry;

use std::sync::{Arc, LazyLock};

use endpoint_picker_engine::metrics::{Labels, Metric, MetricSink};
use endpoint_picker_engine::resume::ResumeMetrics;
use endpoint_picker_wire::figures::Figures;
use endpoint_picker_wire::statistics::MetricKind;

use self::registry::{Definition, REGISTRY, Recorded, SeriesCell};
use crate::process::subscribers::{Subscribers, Subscription};
use crate::process::sync::Mutex;

/// One worker's way to the metrics. Its clones record in one place.
#[derive(Clone, Debug)]
pub(crate) struct Sink {
    recorded: Arc<Mutex<Recorded>>,
}

/// A metric of one pool.
#[derive(Clone, Debug)]
pub(crate) struct Family {
    definition: usize,
    kind: MetricKind,
    pool: String,
}

/// One series.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    place: usize,
    cell: Arc<SeriesCell>,
}

impl Sink {
    /// The sink of a new worker.
    pub(crate) fn new() -> Self {
        Self { recorded: REGISTRY.new_recorder() }
    }
}

/// Defines metrics without any series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DefinitionsOnly;

impl MetricSink for DefinitionsOnly {
    type Family = ();
    type Series = ();

    fn family(&self, metric: &Metric<'_>) {
        REGISTRY.definition(Definition::of(metric));
    }

    fn series(&self, (): &(), _values: &Labels) -> Option<()> {
        None
    }

    fn add(&self, (): &(), _count: u64) {}

    fn record(&self, (): &(), _value: u64) {}

    fn value(&self, (): &()) -> u64 {
        0
    }
}

impl MetricSink for Sink {
    type Family = Family;
    type Series = Series;

    fn family(&self, metric: &Metric<'_>) -> Family {
        let definition = REGISTRY.definition(Definition::of(metric));
        Family { definition, kind: metric.statistic.kind, pool: metric.pool.to_owned() }
    }

    fn series(&self, family: &Family, values: &Labels) -> Option<Series> {
        let values = core::iter::once(family.pool.as_str()).chain(values.values());
        let values: Vec<String> = values.map(str::to_owned).collect();
        let (place, cell) = REGISTRY.series(family.definition, family.kind, &values);
        Some(Series { place, cell })
    }

    fn add(&self, counter: &Series, count: u64) {
        counter.cell.add(count);
    }

    fn record(&self, series: &Series, value: u64) {
        match series.cell.kind {
            MetricKind::Counter | MetricKind::Gauge => series.cell.set(value),
            MetricKind::Histogram => self.record_times(series, value, 1),
        }
    }

    fn record_times(&self, histogram: &Series, value: u64, times: u32) {
        if times > 0 {
            *self.recorded.lock().entry((histogram.place, value)).or_default() += times;
        }
    }

    fn value(&self, counter: &Series) -> u64 {
        counter.cell.amount()
    }
}

/// The pool of a filter that resumes streams, and its counters.
pub(crate) type PoolResumptions = (String, Arc<ResumeMetrics<Sink>>);

/// The filters of the process that resume streams.
static RESUMERS: LazyLock<Arc<Subscribers<PoolResumptions>>> = LazyLock::new(Arc::default);

/// Has the reports on a pool include these counters, until the subscription is dropped.
pub(crate) fn report_resumptions(
    pool: &str,
    metrics: &Arc<ResumeMetrics<Sink>>,
) -> Subscription<PoolResumptions> {
    RESUMERS.add((pool.to_owned(), Arc::clone(metrics)))
}

/// The streams of the filter that names this pool; `None` without such a filter. Several filters of one pool
/// have the same counters.
pub(crate) fn resumptions_of(pool: &str) -> Option<Figures<u64>> {
    let mut totals = None;
    RESUMERS.for_each(|(name, metrics)| {
        if totals.is_none() && name == pool {
            totals = Some(metrics.totals());
        }
    });
    totals
}
