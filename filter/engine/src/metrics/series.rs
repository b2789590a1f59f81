//! Metrics with labels whose values come from outside: endpoints, models, names of objects.
//!
//! The values are appended to the metric's name, each behind a [`SEPARATOR`]; the `stats_tags` of envoy.yaml make labels of them. A
//! worker keeps at most [`MAX_SERIES`] series of one metric, as the EPP does; the rest is added up under [`OTHER`].

use hashbrown::HashMap;

use super::sink::{Counter, Gauge, Histogram, MetricSink};

/// Stands before each value. No address, model or resource of Kubernetes has it in its name.
const SEPARATOR: char = '|';

/// Series of one metric, without the one of [`OTHER`].
pub(crate) const MAX_SERIES: usize = 1000;

/// The value of series beyond [`MAX_SERIES`].
const OTHER: &str = "other";

/// Characters of a value that are kept.
const LONGEST_VALUE: usize = 128;

/// A combination of values, in the form that it has at the end of a metric's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Labels(String);

impl Labels {
    pub(crate) fn new(values: &[&str]) -> Self {
        let mut suffix = String::new();
        for value in values {
            suffix.push(SEPARATOR);
            let letters = value.chars().take(LONGEST_VALUE);
            suffix.extend(letters.map(|it| if it.is_control() || it == SEPARATOR { '_' } else { it }));
        }
        Self(suffix)
    }

    /// The same number of values, all [`OTHER`].
    fn other(&self) -> Self {
        Self::new(&vec![OTHER; self.0.matches(SEPARATOR).count()])
    }
}

/// One metric for each combination of values, defined when it is needed first.
#[derive(Debug)]
struct Series<M, T> {
    sink: M,
    name: String,
    by_labels: HashMap<String, T>,
}

impl<M: MetricSink, T> Series<M, T> {
    fn new(sink: &M, name: String) -> Self {
        Self { sink: sink.clone(), name, by_labels: HashMap::new() }
    }

    fn get_or_define(&mut self, labels: &Labels, define: fn(&M, &str) -> T) -> &mut T {
        let Self { sink, name, by_labels } = self;
        let is_beyond_limit = by_labels.len() >= MAX_SERIES && !by_labels.contains_key(&labels.0);
        let Labels(suffix) = if is_beyond_limit { &labels.other() } else { labels };
        by_labels
            .entry_ref(suffix.as_str())
            .or_insert_with_key(|suffix| define(sink, &format!("{name}{suffix}")))
    }
}

/// A counter for each combination of values. Counts are kept here until they are flushed, so that a request costs no call to the
/// proxy.
#[derive(Debug)]
pub(crate) struct LabelledCounter<M>(Series<M, PendingCount<M>>);

#[derive(Debug)]
struct PendingCount<M> {
    counter: Counter<M>,
    /// Counted since the last flush.
    pending: u64,
}

impl<M: MetricSink> LabelledCounter<M> {
    pub(crate) fn new(sink: &M, name: String) -> Self {
        Self(Series::new(sink, name))
    }

    pub(crate) fn increment(&mut self, values: &[&str]) {
        self.add(&Labels::new(values), 1);
    }

    pub(crate) fn add(&mut self, labels: &Labels, count: u64) {
        let define = |sink: &M, name: &str| PendingCount { counter: Counter::define(sink, name), pending: 0 };
        self.0.get_or_define(labels, define).pending += count;
    }

    /// Adds the pending counts to the proxy's counters.
    pub(crate) fn flush(&mut self) {
        for series in self.0.by_labels.values_mut().filter(|series| series.pending > 0) {
            series.counter.add(core::mem::take(&mut series.pending));
        }
    }
}

/// A histogram for each combination of values.
#[derive(Debug)]
pub(crate) struct LabelledHistogram<M>(Series<M, Histogram<M>>);

impl<M: MetricSink> LabelledHistogram<M> {
    pub(crate) fn new(sink: &M, name: String) -> Self {
        Self(Series::new(sink, name))
    }

    /// Adds a value, without a flush.
    pub(crate) fn record(&mut self, labels: &Labels, value: u128) {
        self.0.get_or_define(labels, Histogram::define).record(value);
    }
}

/// A gauge for each value of one label.
#[derive(Debug)]
pub(crate) struct LabelledGauge<M> {
    sink: M,
    name: String,
    gauges: HashMap<String, Gauge<M>>,
}

impl<M: MetricSink> LabelledGauge<M> {
    pub(crate) fn new(sink: &M, name: String) -> Self {
        Self { sink: sink.clone(), name, gauges: HashMap::new() }
    }

    /// Sets the gauges of these values, and all others to zero.
    pub(crate) fn set_all<'a>(&mut self, amounts: impl Iterator<Item = (&'a str, u64)>) {
        let mut next: HashMap<String, u64> = self.gauges.keys().map(|value| (value.clone(), 0)).collect();
        for (value, amount) in amounts {
            let Labels(value) = Labels::new(&[value]);
            let has_series = next.contains_key(&value) || next.len() < MAX_SERIES;
            *next.entry(if has_series { value } else { Labels::new(&[OTHER]).0 }).or_default() += amount;
        }
        for (value, amount) in next {
            self.gauge(&value).set(amount);
        }
    }

    /// Sets the gauges of these values to zero, also those that only another worker has set, and forgets them.
    pub(crate) fn remove<'a>(&mut self, values: impl Iterator<Item = &'a str>) {
        for Labels(value) in values.map(|value| Labels::new(&[value])) {
            self.gauge(&value).set(0);
            self.gauges.remove(&value);
        }
    }

    fn gauge(&mut self, value: &str) -> &mut Gauge<M> {
        let Self { sink, name, gauges } = self;
        gauges.entry_ref(value).or_insert_with(|| Gauge::define(sink, &format!("{name}{value}")))
    }
}
