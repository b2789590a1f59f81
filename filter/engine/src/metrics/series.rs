//! Metrics with labels.
//!
//! A worker keeps at most [`MAX_SERIES`] series of one metric, like the EPP; further values are added up
//! under the value `other`. Series of models that no request used for an hour are forgotten. For series of
//! models, the sink limits all workers together in the same way.

use hashbrown::{HashMap, HashSet};

use endpoint_picker_wire::figures::Figures;
use endpoint_picker_wire::statistics::Statistic;

use super::sink::{Counter, Gauge, Histogram, Labels, MetricSink, OTHER, PoolSink};

/// Maximum number of series of one metric, in addition to the series of all other values.
pub const MAX_SERIES: usize = 1000;

/// One metric for each combination of values, made when it is needed first.
#[derive(Debug)]
struct SeriesMap<M: MetricSink, T> {
    sink: M,
    family: M::Family,
    by_labels: HashMap<String, Series<T>>,
}

#[derive(Debug)]
struct Series<T> {
    metric: T,
    /// Calls of [`SeriesMap::age`] since it was used last.
    age: u8,
}

impl<M: MetricSink, T> SeriesMap<M, T> {
    fn new(sink: &PoolSink<'_, M>, statistic: &'static Statistic) -> Self {
        Self { sink: sink.sink.clone(), family: sink.family(statistic), by_labels: HashMap::new() }
    }

    fn get_or_make(&mut self, labels: &Labels, make: fn(&M, &M::Family, &Labels) -> T) -> &mut T {
        let Self { sink, family, by_labels } = self;
        let is_beyond_limit = by_labels.len() >= MAX_SERIES && !by_labels.contains_key(labels.suffix());
        let labels = if is_beyond_limit { &labels.other() } else { labels };
        let made = || Series { metric: make(sink, family, labels), age: 0 };
        let series = by_labels.entry_ref(labels.suffix()).or_insert_with(made);
        series.age = 0;
        &mut series.metric
    }

    /// Forgets the series that were not used since the last three calls, so that others get their places.
    fn age(&mut self, last_use: impl Fn(&T)) {
        self.by_labels.retain(|_, series| {
            series.age += 1;
            let is_kept = series.age < 3;
            if !is_kept {
                last_use(&series.metric);
            }
            is_kept
        });
    }
}

/// A counter for each of some values that are known from the start.
#[derive(Debug)]
pub(crate) struct FixedCounters<M: MetricSink, K> {
    statistic: &'static Statistic,
    by_key: Vec<(K, String, Counter<M>)>,
}

impl<M: MetricSink, K: Copy + PartialEq> FixedCounters<M, K> {
    /// Counters of these keys, each with the value of the label.
    pub(crate) fn new(
        sink: &PoolSink<'_, M>,
        statistic: &'static Statistic,
        values: impl IntoIterator<Item = (K, impl Into<String>)>,
    ) -> Self {
        let family = sink.family(statistic);
        let counter = |value: &str| Counter::new(sink.sink, &family, &Labels::new(&[value]));
        let values = values.into_iter().map(|(key, value)| (key, value.into()));
        let by_key = values.map(|(key, value): (K, String)| {
            let counter = counter(&value);
            (key, value, counter)
        });
        Self { statistic, by_key: by_key.collect() }
    }

    /// Counts one of this key.
    pub(crate) fn increment(&self, key: K) {
        if let Some((_, _, counter)) = self.by_key.iter().find(|(counted, ..)| *counted == key) {
            counter.increment();
        }
    }

    /// Adds the pending counts to the proxy's counters.
    pub(crate) fn flush(&self) {
        self.by_key.iter().for_each(|(_, _, counter)| counter.flush());
    }

    /// The counts of all workers, without values that never occurred.
    pub(crate) fn add_to(&self, figures: &mut Figures<u64>) {
        for (_, value, counter) in &self.by_key {
            let count = counter.value();
            if count > 0 {
                figures.set(self.statistic, value.as_str(), count);
            }
        }
    }
}

/// A counter for each combination of values.
#[derive(Debug)]
pub(crate) struct LabelledCounter<M: MetricSink> {
    series: SeriesMap<M, Counter<M>>,
    /// The labels of the last increment: their memory is used again.
    labels: Labels,
}

impl<M: MetricSink> LabelledCounter<M> {
    pub(crate) fn new(sink: &PoolSink<'_, M>, statistic: &'static Statistic) -> Self {
        Self { series: SeriesMap::new(sink, statistic), labels: Labels::default() }
    }

    pub(crate) fn increment(&mut self, values: &[&str]) {
        let Self { series, labels } = self;
        labels.set(values);
        series.get_or_make(labels, Counter::new).increment();
    }

    /// Increments the counter of these values if there is one, or else returns the labels to [add](Self::add)
    /// to later.
    pub(crate) fn increment_known(&mut self, values: &[&str]) -> Option<Labels> {
        let Self { series, labels } = self;
        labels.set(values);
        match series.by_labels.get_mut(labels.suffix()) {
            Some(known) => {
                known.age = 0;
                known.metric.increment();
                None
            }
            None => Some(labels.clone()),
        }
    }

    /// As [`SeriesMap::age`].
    pub(crate) fn age(&mut self) {
        self.series.age(Counter::flush);
    }

    pub(crate) fn add(&mut self, labels: &Labels, count: u64) {
        self.series.get_or_make(labels, Counter::new).add(count);
    }

    /// Adds the pending counts to the proxy's counters.
    pub(crate) fn flush(&self) {
        self.series.by_labels.values().for_each(|series| series.metric.flush());
    }
}

/// A counter for each endpoint, found by the endpoint's key: a request makes and reads no labels.
#[derive(Debug)]
pub(crate) struct EndpointCounter<M: MetricSink> {
    sink: M,
    family: M::Family,
    by_key: HashMap<u64, Counter<M>>,
    /// The counter of all endpoints beyond the limit.
    other: Option<Counter<M>>,
}

impl<M: MetricSink> EndpointCounter<M> {
    pub(crate) fn new(sink: &PoolSink<'_, M>, statistic: &'static Statistic) -> Self {
        let family = sink.family(statistic);
        Self { sink: sink.sink.clone(), family, by_key: HashMap::new(), other: None }
    }

    /// Increments the counter of the endpoint with this key and `ip:port`.
    pub(crate) fn increment<'a>(&mut self, key: u64, address: impl FnOnce() -> &'a str) {
        match self.by_key.get(&key) {
            Some(counter) => counter.increment(),
            None => self.make(key, address()).increment(),
        }
    }

    #[cold]
    #[inline(never)]
    fn make(&mut self, key: u64, address: &str) -> &Counter<M> {
        let Self { sink, family, by_key, other } = self;
        let make = |value| Counter::new(sink, family, &Labels::new(&[value]));
        if by_key.len() < MAX_SERIES {
            by_key.entry(key).or_insert(make(address))
        } else {
            other.get_or_insert_with(|| make(OTHER))
        }
    }

    /// Adds the pending counts to the proxy's counters.
    pub(crate) fn flush(&self) {
        self.by_key.values().chain(&self.other).for_each(Counter::flush);
    }

    /// Forgets the counters of all other endpoints, after a last flush, so that new ones get theirs.
    pub(crate) fn keep(&mut self, keys: impl Iterator<Item = u64>) {
        let kept: HashSet<u64> = keys.collect();
        let left = self.by_key.extract_if(|key, _| !kept.contains(key)).map(|(_, counter)| counter);
        left.chain(self.other.take()).for_each(|counter| counter.flush());
    }
}

/// A histogram for each combination of values.
#[derive(Debug)]
pub(crate) struct LabelledHistogram<M: MetricSink>(SeriesMap<M, Histogram<M>>);

impl<M: MetricSink> LabelledHistogram<M> {
    pub(crate) fn new(sink: &PoolSink<'_, M>, statistic: &'static Statistic) -> Self {
        Self(SeriesMap::new(sink, statistic))
    }

    /// As [`SeriesMap::age`].
    pub(crate) fn age(&mut self) {
        self.0.age(|_| {});
    }

    /// Adds a value, without a flush.
    pub(crate) fn record(&mut self, labels: &Labels, value: u128) {
        self.0.get_or_make(labels, Histogram::new).record(value);
    }
}

/// A gauge for each value of one label.
#[derive(Debug)]
pub(crate) struct LabelledGauge<M: MetricSink>(SeriesMap<M, Gauge<M>>);

impl<M: MetricSink> LabelledGauge<M> {
    pub(crate) fn new(sink: &PoolSink<'_, M>, statistic: &'static Statistic) -> Self {
        Self(SeriesMap::new(sink, statistic))
    }

    /// Sets the gauges of these values, and all others to zero.
    pub(crate) fn set_all<'a>(&mut self, amounts: impl Iterator<Item = (&'a str, u64)>) {
        let mut sums: HashMap<String, (Labels, u64)> = HashMap::new();
        let is_other = |sums: &HashMap<String, _>, labels: &Labels| {
            sums.len() >= MAX_SERIES && !sums.contains_key(labels.suffix())
        };
        for (value, amount) in amounts {
            let labels = Labels::new(&[value]);
            let labels = if is_other(&sums, &labels) { labels.other() } else { labels };
            sums.entry_ref(labels.suffix()).or_insert_with(|| (labels.clone(), 0)).1 += amount;
        }
        self.0.by_labels.retain(|suffix, gauge| {
            let is_set = sums.contains_key(suffix);
            if !is_set {
                gauge.metric.set(0);
            }
            is_set
        });
        for (labels, amount) in sums.values() {
            self.0.get_or_make(labels, Gauge::new).set(*amount);
        }
    }

    /// Sets the gauges of these values to zero, also those that only another worker has set, and forgets
    /// them.
    pub(crate) fn remove<'a>(&mut self, values: impl Iterator<Item = &'a str>) {
        for labels in values.map(|value| Labels::new(&[value])) {
            self.0.get_or_make(&labels, Gauge::new).set(0);
            self.0.by_labels.remove(labels.suffix());
        }
    }
}
