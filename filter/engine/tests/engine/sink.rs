//! Metrics in memory.

use core::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use endpoint_picker_engine::metrics::{MetricId, MetricKind, MetricSink};

/// Metrics in memory, by their names. Clones share them, as the workers of a proxy do.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeSink(Rc<RefCell<Vec<Metric>>>);

#[derive(Debug)]
struct Metric {
    name: String,
    kind: MetricKind,
    /// The sum of a counter, the last value of a gauge, all values of a histogram.
    values: Vec<u64>,
}

impl FakeSink {
    /// The metrics of these kinds that have values, without the prefix of all.
    pub(crate) fn values(&self, kind: MetricKind) -> BTreeMap<String, Vec<u64>> {
        let metrics = self.0.borrow();
        let metrics = metrics.iter().filter(|metric| metric.kind == kind && !metric.values.is_empty());
        metrics.map(|metric| (short(&metric.name), metric.values.clone())).collect()
    }

    /// The value of a counter or gauge; 0 if it was never set.
    pub(crate) fn get(&self, name: &str) -> u64 {
        let metrics = self.0.borrow();
        let metric = metrics.iter().find(|metric| short(&metric.name) == name);
        metric.and_then(|metric| metric.values.last().copied()).unwrap_or(0)
    }

    /// The names of all metrics that were defined, without the prefix of all.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.borrow().iter().map(|metric| short(&metric.name)).collect()
    }
}

fn short(name: &str) -> String {
    name.strip_prefix("endpoint_picker.p.").expect("the pool's prefix").to_owned()
}

impl MetricSink for FakeSink {
    fn define(&self, kind: MetricKind, name: &str) -> Option<MetricId> {
        let mut metrics = self.0.borrow_mut();
        let known = metrics.iter().position(|metric| metric.name == name);
        let index = known.unwrap_or_else(|| {
            metrics.push(Metric { name: name.to_owned(), kind, values: vec![] });
            metrics.len() - 1
        });
        Some(u32::try_from(index).unwrap())
    }

    fn add(&self, counter: MetricId, count: u64) {
        let values = &mut self.0.borrow_mut()[counter as usize].values;
        let sum = values.pop().unwrap_or(0) + count;
        values.push(sum);
    }

    fn record(&self, metric: MetricId, value: u64) {
        let metric = &mut self.0.borrow_mut()[metric as usize];
        if metric.kind == MetricKind::Gauge {
            metric.values.clear();
        }
        metric.values.push(value);
    }

    fn value(&self, counter: MetricId) -> u64 {
        self.0.borrow()[counter as usize].values.last().copied().unwrap_or(0)
    }
}
