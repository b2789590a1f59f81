//! The proxy's metrics: counters, gauges and histograms.

use core::cell::Cell;
use core::fmt::Debug;

use super::series::Labels;

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

/// A metric of one pool: all series that differ only in the values of its labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric<'a> {
    /// The kind.
    pub kind: MetricKind,
    /// The pool's name.
    pub pool: &'a str,
    /// The metric's name.
    pub name: &'static str,
    /// The names of the labels, without the pool.
    pub labels: &'static [&'static str],
}

/// A proxy that keeps metrics, over all of its workers.
///
/// A metric that the proxy refuses is not counted, which must not affect requests: an implementation logs
/// errors and does not return them.
pub trait MetricSink: Clone {
    /// A metric of the proxy, with all its series.
    type Family: Clone + Debug;
    /// One series.
    type Series: Clone + Debug;

    /// Defines a metric, or finds the one of this name. Called only while the configuration is read.
    fn family(&self, metric: &Metric<'_>) -> Self::Family;

    /// Finds or makes the series with these values, one for each label; `None` if the proxy refuses it.
    fn series(&self, family: &Self::Family, values: &Labels) -> Option<Self::Series>;

    /// Adds to a counter.
    fn add(&self, counter: &Self::Series, count: u64);

    /// Sets a gauge, or adds a value to a histogram.
    fn record(&self, series: &Self::Series, value: u64);

    /// The value of a counter, over all workers; 0 if the proxy refuses to return it.
    fn value(&self, counter: &Self::Series) -> u64;
}

/// A counter; does nothing if the proxy refused it. Counts are kept here until they are flushed, so that a request costs no call to
/// the proxy.
#[derive(Clone, Debug)]
pub(crate) struct Counter<M: MetricSink> {
    sink: M,
    series: Option<M::Series>,
    /// Counted since the last flush.
    pending: Cell<u64>,
}

impl<M: MetricSink> Counter<M> {
    pub(crate) fn new(sink: &M, family: &M::Family, values: &Labels) -> Self {
        Self { sink: sink.clone(), series: sink.series(family, values), pending: Cell::default() }
    }

    pub(crate) fn increment(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, count: u64) {
        self.pending.set(self.pending.get().saturating_add(count));
    }

    /// Adds the pending count to the proxy's counter.
    pub(crate) fn flush(&self) {
        let count = self.pending.take();
        if let Some(series) = self.series.as_ref().filter(|_| count > 0) {
            self.sink.add(series, count);
        }
    }

    /// The count that all workers have flushed.
    pub(crate) fn value(&self) -> u64 {
        self.series.as_ref().map_or(0, |series| self.sink.value(series))
    }
}

/// A gauge; does nothing if the proxy refused it.
#[derive(Clone, Debug)]
pub(crate) struct Gauge<M: MetricSink> {
    sink: M,
    series: Option<M::Series>,
}

impl<M: MetricSink> Gauge<M> {
    pub(crate) fn new(sink: &M, family: &M::Family, values: &Labels) -> Self {
        Self { sink: sink.clone(), series: sink.series(family, values) }
    }

    /// Replaces the value, whichever worker set it.
    pub(crate) fn set(&self, value: u64) {
        if let Some(series) = &self.series {
            self.sink.record(series, value);
        }
    }
}

/// A histogram; does nothing if the proxy refused it.
#[derive(Clone, Debug)]
pub(crate) struct Histogram<M: MetricSink> {
    sink: M,
    series: Option<M::Series>,
}

impl<M: MetricSink> Histogram<M> {
    pub(crate) fn new(sink: &M, family: &M::Family, values: &Labels) -> Self {
        Self { sink: sink.clone(), series: sink.series(family, values) }
    }

    /// Adds a value; a value beyond 64 bits is clamped.
    pub(crate) fn record(&self, value: u128) {
        if let Some(series) = &self.series {
            self.sink.record(series, u64::try_from(value).unwrap_or(u64::MAX));
        }
    }
}
