//! Statistics that are told apart by values from outside: endpoints, models, names of objects.
//!
//! The values stand behind the name, each after a [`SEPARATOR`]; the `stats_tags` of envoy.yaml make labels of them. A VM tells at
//! most [`MAX_SERIES`] of one statistic apart, as the EPP does; the rest is added up under [`OTHER`].

use hashbrown::HashMap;

use crate::metric::{Counter, Gauge, Histogram};

/// Before each value. No address, model or resource of Kubernetes has it in its name.
const SEPARATOR: char = '|';

const MAX_SERIES: usize = 1000;

/// The value of those that are not told apart.
const OTHER: &str = "other";

/// Letters of a value that are shown.
const LONGEST_VALUE: usize = 128;

/// A combination of values, as part of a statistic's name.
#[derive(Clone, Debug)]
pub(crate) struct Labels(String);

impl Labels {
    pub(crate) fn new(values: &[&str]) -> Self {
        let mut shown = String::new();
        for value in values {
            shown.push(SEPARATOR);
            let letters = value.chars().take(LONGEST_VALUE);
            shown.extend(letters.map(|it| if it.is_control() || it == SEPARATOR { '_' } else { it }));
        }
        Self(shown)
    }

    /// As many values, not told apart.
    fn other(&self) -> Self {
        Self::new(&vec![OTHER; self.0.matches(SEPARATOR).count()])
    }
}

/// One of each for each combination of values, defined when it is needed first.
#[derive(Debug)]
struct Apart<T> {
    name: String,
    series: HashMap<String, T>,
}

impl<T> Apart<T> {
    fn new(name: String) -> Self {
        Self { name, series: HashMap::new() }
    }

    fn of(&mut self, labels: &Labels, define: fn(&str) -> T) -> &mut T {
        let Self { name, series } = self;
        let is_one_too_many = series.len() >= MAX_SERIES && !series.contains_key(&labels.0);
        let Labels(shown) = if is_one_too_many { &labels.other() } else { labels };
        series.entry_ref(shown.as_str()).or_insert_with_key(|shown| define(&format!("{name}{shown}")))
    }
}

/// A counter for each combination of values.
#[derive(Debug)]
pub(crate) struct LabelledCounter(Apart<Counted>);

#[derive(Debug)]
struct Counted {
    counter: Counter,
    /// Counted here, and not told yet.
    untold: u64,
}

impl LabelledCounter {
    pub(crate) fn new(name: String) -> Self {
        Self(Apart::new(name))
    }

    /// Counts one of these values.
    pub(crate) fn count(&mut self, values: &[&str]) {
        self.add(&Labels::new(values), 1);
    }

    /// Counts so many.
    pub(crate) fn add(&mut self, labels: &Labels, count: u64) {
        self.0.of(labels, |name| Counted { counter: Counter::define(name), untold: 0 }).untold += count;
    }

    /// Tells Envoy what was counted.
    pub(crate) fn tell(&mut self) {
        for Counted { counter, untold } in self.0.series.values_mut().filter(|series| series.untold > 0) {
            counter.add(core::mem::take(untold));
        }
    }
}

/// A histogram for each combination of values; it is told at once.
#[derive(Debug)]
pub(crate) struct LabelledHistogram(Apart<Histogram>);

impl LabelledHistogram {
    pub(crate) fn new(name: String) -> Self {
        Self(Apart::new(name))
    }

    /// Adds a value.
    pub(crate) fn record(&mut self, labels: &Labels, value: u128) {
        self.0.of(labels, Histogram::define).record(value);
    }
}

/// A gauge for each value.
#[derive(Debug)]
pub(crate) struct LabelledGauge {
    name: String,
    gauges: HashMap<String, Gauge>,
}

impl LabelledGauge {
    pub(crate) fn new(name: String) -> Self {
        Self { name, gauges: HashMap::new() }
    }

    /// Sets all: those not named to zero.
    pub(crate) fn set_all<'a>(&mut self, amounts: impl Iterator<Item = (&'a str, u64)>) {
        let mut left: HashMap<String, u64> = self.gauges.keys().map(|value| (value.clone(), 0)).collect();
        for (value, amount) in amounts {
            let Labels(value) = Labels::new(&[value]);
            let is_told_apart = left.contains_key(&value) || left.len() < MAX_SERIES;
            *left.entry(if is_told_apart { value } else { Labels::new(&[OTHER]).0 }).or_default() += amount;
        }
        for (value, amount) in left {
            self.gauge(&value).set(amount);
        }
    }

    /// Sets the gauges of these values to zero for good, also those that another VM has set.
    pub(crate) fn remove<'a>(&mut self, values: impl Iterator<Item = &'a str>) {
        for Labels(value) in values.map(|value| Labels::new(&[value])) {
            self.gauge(&value).set(0);
            self.gauges.remove(&value);
        }
    }

    fn gauge(&mut self, value: &str) -> &mut Gauge {
        let Self { name, gauges } = self;
        gauges.entry_ref(value).or_insert_with(|| Gauge::define(&format!("{name}{value}")))
    }
}
