//! The proxy's metrics: counters, gauges and histograms.

/// The proxy's number of a metric.
pub type MetricId = u32;

/// The kinds of metrics that a proxy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// The last value.
    Gauge,
    /// The distribution of all values.
    Histogram,
}

/// A proxy that keeps metrics, over all of its workers.
///
/// A metric that the proxy refuses is not counted; requests go on all the same. So the implementation logs errors and does not
/// return them.
pub trait MetricSink: Clone {
    /// Defines a metric, or finds the one of this name; `None` if the proxy refuses it.
    fn define(&self, kind: MetricKind, name: &str) -> Option<MetricId>;

    /// Adds to a counter.
    fn add(&self, counter: MetricId, count: u64);

    /// Sets a gauge, or adds a value to a histogram.
    fn record(&self, metric: MetricId, value: u64);

    /// The value of a counter, over all workers; 0 if the proxy refuses to return it.
    fn value(&self, counter: MetricId) -> u64;
}

/// A counter; does nothing if the proxy refused to define it.
#[derive(Clone, Debug)]
pub(crate) struct Counter<M> {
    sink: M,
    id: Option<MetricId>,
}

impl<M: MetricSink> Counter<M> {
    pub(crate) fn define(sink: &M, name: &str) -> Self {
        Self { sink: sink.clone(), id: sink.define(MetricKind::Counter, name) }
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, count: u64) {
        if let Some(id) = self.id {
            self.sink.add(id, count);
        }
    }

    /// The count of all workers.
    pub(crate) fn value(&self) -> u64 {
        self.id.map_or(0, |id| self.sink.value(id))
    }
}

/// A gauge; does nothing if the proxy refused to define it.
#[derive(Clone, Debug)]
pub(crate) struct Gauge<M> {
    sink: M,
    id: Option<MetricId>,
}

impl<M: MetricSink> Gauge<M> {
    pub(crate) fn define(sink: &M, name: &str) -> Self {
        Self { sink: sink.clone(), id: sink.define(MetricKind::Gauge, name) }
    }

    /// Replaces the value, whichever worker set it.
    pub(crate) fn set(&self, value: u64) {
        if let Some(id) = self.id {
            self.sink.record(id, value);
        }
    }
}

/// A histogram; does nothing if the proxy refused to define it.
#[derive(Clone, Debug)]
pub(crate) struct Histogram<M> {
    sink: M,
    id: Option<MetricId>,
}

impl<M: MetricSink> Histogram<M> {
    pub(crate) fn define(sink: &M, name: &str) -> Self {
        Self { sink: sink.clone(), id: sink.define(MetricKind::Histogram, name) }
    }

    /// Adds a value; one beyond 64 bits counts as the largest.
    pub(crate) fn record(&self, value: u128) {
        if let Some(id) = self.id {
            self.sink.record(id, u64::try_from(value).unwrap_or(u64::MAX));
        }
    }
}
