//! Statistics that are told apart by values from outside: endpoints, models, names of objects.
//!
//! The values stand behind the name, each after a [`SEPARATOR`]; the `stats_tags` of envoy.yaml make labels of them. A VM tells at
//! most [`MAX_SERIES`] of one statistic apart, as the reference does; the rest is added up under [`OTHER`].

use hashbrown::HashMap;

use crate::metric::{Counter, Gauge};

/// Before each value. No address, model or resource of Kubernetes has it in its name.
const SEPARATOR: char = '|';

const MAX_SERIES: usize = 1000;

/// The value of those that are not told apart.
const OTHER: &str = "other";

/// Letters of a value that are shown.
const LONGEST_VALUE: usize = 128;

/// A counter for each combination of values.
#[derive(Debug)]
pub(crate) struct LabelledCounter {
    name: String,
    /// By the values as they are shown.
    series: HashMap<String, Series>,
}

#[derive(Debug)]
struct Series {
    counter: Counter,
    /// Counted here, and not told yet.
    untold: u64,
}

impl LabelledCounter {
    pub(crate) fn new(name: String) -> Self {
        Self { name, series: HashMap::new() }
    }

    /// Counts one of these values.
    pub(crate) fn count(&mut self, values: &[&str]) {
        let Self { name, series } = self;
        let mut values_shown = shown(values);
        if series.len() >= MAX_SERIES && !series.contains_key(&values_shown) {
            values_shown = shown(&vec![OTHER; values.len()]);
        }
        let begin =
            |values: &String| Series { counter: Counter::define(&format!("{name}{values}")), untold: 0 };
        series.entry(values_shown).or_insert_with_key(begin).untold += 1;
    }

    /// Tells Envoy what was counted.
    pub(crate) fn tell(&mut self) {
        for Series { counter, untold } in self.series.values_mut().filter(|series| series.untold > 0) {
            counter.add(core::mem::take(untold));
        }
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
            let value = shown(&[value]);
            let is_told_apart = left.contains_key(&value) || left.len() < MAX_SERIES;
            *left.entry(if is_told_apart { value } else { shown(&[OTHER]) }).or_default() += amount;
        }
        for (value, amount) in left {
            let define = || Gauge::define(&format!("{}{value}", self.name));
            self.gauges.entry(value.clone()).or_insert_with(define).set(amount);
        }
    }
}

/// The values as part of a statistic's name.
fn shown(values: &[&str]) -> String {
    let mut shown = String::new();
    for value in values {
        shown.push(SEPARATOR);
        let letters = value.chars().take(LONGEST_VALUE);
        shown.extend(letters.map(|it| if it.is_control() || it == SEPARATOR { '_' } else { it }));
    }
    shown
}
