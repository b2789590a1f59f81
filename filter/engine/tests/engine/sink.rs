//! Metrics in memory.

use core::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use endpoint_picker_engine::metrics::{Labels, Metric, MetricSink};
use endpoint_picker_wire::statistics::{MetricKind, Statistic};

/// Metrics in memory, by their names. Clones share them, as the workers of a proxy do.
#[derive(Clone, Debug, Default)]
pub(crate) struct FakeSink {
    series: Rc<RefCell<Vec<Recorded>>>,
    families: Rc<RefCell<BTreeSet<&'static str>>>,
}

#[derive(Debug)]
struct Recorded {
    name: String,
    kind: MetricKind,
    /// The sum of a counter, the last value of a gauge, all values of a histogram.
    values: Vec<u64>,
}

impl FakeSink {
    /// The metrics of these kinds that have values.
    pub(crate) fn values(&self, kind: MetricKind) -> BTreeMap<String, Vec<u64>> {
        let metrics = self.series.borrow();
        let metrics = metrics.iter().filter(|metric| metric.kind == kind && !metric.values.is_empty());
        metrics.map(|metric| (metric.name.clone(), metric.values.clone())).collect()
    }

    /// The value of a counter or gauge; 0 if it was never set.
    pub(crate) fn get(&self, name: &str) -> u64 {
        let metrics = self.series.borrow();
        let metric = metrics.iter().find(|metric| metric.name == name);
        metric.and_then(|metric| metric.values.last().copied()).unwrap_or(0)
    }

    /// The names of the metrics that were defined.
    pub(crate) fn names_of_families(&self) -> BTreeSet<&'static str> {
        self.families.borrow().clone()
    }

    /// The names of all series that were defined.
    pub(crate) fn names(&self) -> Vec<String> {
        self.series.borrow().iter().map(|metric| metric.name.clone()).collect()
    }
}

impl MetricSink for FakeSink {
    type Family = (MetricKind, &'static str);
    type Series = usize;

    fn family(&self, metric: &Metric<'_>) -> Self::Family {
        let &Statistic { name, kind, .. } = metric.statistic;
        assert_eq!(metric.pool, if name == "body_based_routing" { "" } else { "p" });
        self.families.borrow_mut().insert(name);
        (kind, name)
    }

    fn series(&self, (kind, name): &Self::Family, values: &Labels) -> Option<usize> {
        let mut metrics = self.series.borrow_mut();
        let name = format!("{name}{}", values.suffix());
        let known = metrics.iter().position(|metric| metric.name == name);
        Some(known.unwrap_or_else(|| {
            metrics.push(Recorded { name, kind: *kind, values: vec![] });
            metrics.len() - 1
        }))
    }

    fn add(&self, &counter: &usize, count: u64) {
        let values = &mut self.series.borrow_mut()[counter].values;
        let sum = values.pop().unwrap_or(0) + count;
        values.push(sum);
    }

    fn record(&self, &metric: &usize, value: u64) {
        let metric = &mut self.series.borrow_mut()[metric];
        if metric.kind == MetricKind::Gauge {
            metric.values.clear();
        }
        metric.values.push(value);
    }

    fn value(&self, &counter: &usize) -> u64 {
        self.series.borrow()[counter].values.last().copied().unwrap_or(0)
    }
}
