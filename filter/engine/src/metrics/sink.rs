//! The proxy's metrics: counters, gauges and histograms.

use core::cell::Cell;
use core::fmt::Debug;

use endpoint_picker_wire::statistics::Statistic;

/// A metric of one pool: all series that differ only in the values of its labels.
#[derive(Clone, Copy, Debug)]
pub struct Metric<'a> {
    /// The pool's name; empty for a metric of no pool.
    pub pool: &'a str,
    /// The row of the table.
    pub statistic: &'static Statistic,
}

/// The character before each value. No address, model or resource of Kubernetes has it in its name.
const SEPARATOR: char = '|';

/// The value of series beyond the limit of a metric.
pub const OTHER: &str = "other";

/// Maximum length of a value, in characters.
const MAX_VALUE_LENGTH: usize = 128;

/// The values of a series' labels, in their order. They may come from outside: endpoints, models, names of
/// objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(String);

impl Labels {
    pub(crate) fn new(values: &[&str]) -> Self {
        let mut labels = Self::default();
        labels.set(values);
        labels
    }

    /// Replaces the values.
    pub(super) fn set(&mut self, values: &[&str]) {
        let Self(suffix) = self;
        suffix.clear();
        suffix.reserve(values.iter().map(|value| 1 + value.len().min(MAX_VALUE_LENGTH)).sum());
        for value in values {
            suffix.push(SEPARATOR);
            let is_kept = |byte: u8| byte.is_ascii_graphic() && byte != SEPARATOR as u8;
            let has_empty_part =
                value.ends_with('.') || value.as_bytes().windows(2).any(|pair| pair == b"..");
            if value.len() <= MAX_VALUE_LENGTH && value.bytes().all(is_kept) && !has_empty_part {
                suffix.push_str(value);
                continue;
            }
            let mut letters = value.chars().take(MAX_VALUE_LENGTH).peekable();
            while let Some(letter) = letters.next() {
                // Envoy cuts a dot at the end of a name, and with it the label.
                let is_empty_part = letter == '.' && letters.peek().is_none_or(|&next| next == '.');
                let is_replaced = letter.is_control() || letter == SEPARATOR || is_empty_part;
                suffix.push(if is_replaced { '_' } else { letter });
            }
        }
    }

    /// These values, and another one.
    #[must_use]
    pub(super) fn with(&self, value: &str) -> Self {
        Self(format!("{}{}", self.0, Self::new(&[value]).0))
    }

    /// The same number of values, all [`OTHER`].
    #[must_use]
    pub fn other(&self) -> Self {
        Self::new(&vec![OTHER; self.values().count()])
    }

    /// All values, each behind a `|`: the end of a metric's name in a proxy whose metrics have no labels.
    pub fn suffix(&self) -> &str {
        &self.0
    }

    /// The values.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.0.split(SEPARATOR).skip(1)
    }
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

    /// Adds a value to a histogram this many times.
    fn record_times(&self, histogram: &Self::Series, value: u64, times: u32) {
        (0..times).for_each(|_| self.record(histogram, value));
    }

    /// The value of a counter, over all workers; 0 if the proxy refuses to return it.
    fn value(&self, counter: &Self::Series) -> u64;
}

/// Defines the metrics of one pool.
#[derive(Debug)]
pub(crate) struct PoolSink<'a, M> {
    pub(crate) sink: &'a M,
    pub(crate) pool: &'a str,
}

impl<M: MetricSink> PoolSink<'_, M> {
    pub(crate) fn family(&self, statistic: &'static Statistic) -> M::Family {
        self.sink.family(&Metric { pool: self.pool, statistic })
    }

    pub(crate) fn counter(&self, statistic: &'static Statistic) -> Counter<M> {
        Counter::new(self.sink, &self.family(statistic), &Labels::default())
    }

    pub(crate) fn gauge(&self, statistic: &'static Statistic) -> Gauge<M> {
        Gauge::new(self.sink, &self.family(statistic), &Labels::default())
    }

    pub(crate) fn histogram(&self, statistic: &'static Statistic) -> Histogram<M> {
        Histogram::new(self.sink, &self.family(statistic), &Labels::default())
    }
}

/// A counter; does nothing if the proxy refused it. Counts are kept here until they are flushed, so that a
/// request costs no call to the proxy.
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
        self.record_times(value, 1);
    }

    fn record_times(&self, value: u128, times: u32) {
        if let Some(series) = &self.series {
            self.sink.record_times(series, u64::try_from(value).unwrap_or(u64::MAX), times);
        }
    }
}

/// One of this many events is measured: to read a clock and to enter a value take longer than to count.
const SAMPLE: u32 = 16;

/// A histogram of times, of which one in [`SAMPLE`] is measured. The others count as the last measured one.
#[derive(Clone, Debug)]
pub(crate) struct SampledHistogram<M: MetricSink> {
    histogram: Histogram<M>,
    last: Cell<u128>,
    /// Events since the last measured one, with it, that are not in the histogram yet.
    pending: Cell<u32>,
    /// Events before the next measured one.
    left: Cell<u32>,
}

impl<M: MetricSink> SampledHistogram<M> {
    pub(crate) fn new(histogram: Histogram<M>) -> Self {
        Self { histogram, last: Cell::default(), pending: Cell::default(), left: Cell::default() }
    }

    /// Whether the event is to be measured.
    pub(crate) fn is_due(&self) -> bool {
        self.left.get() == 0
    }

    /// The event that is counted next took this long.
    #[cold]
    pub(crate) fn measured(&self, time: u128) {
        self.flush();
        self.last.set(time);
        self.left.set(SAMPLE);
    }

    /// Counts an event.
    pub(crate) fn count(&self) {
        self.pending.set(self.pending.get() + 1);
        self.left.set(self.left.get().saturating_sub(1));
    }

    /// Adds the pending events to the proxy's histogram.
    pub(crate) fn flush(&self) {
        self.histogram.record_times(self.last.get(), self.pending.take());
    }
}
