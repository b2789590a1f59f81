//! All metrics of the process.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Weak};

use endpoint_picker_engine::metrics::{MAX_SERIES, Metric, OTHER};
use endpoint_picker_wire::statistics::{ENDPOINT, MetricKind, Statistic};
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::process::sync::Mutex;

/// The registry of the process.
pub(super) static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::default);

/// A metric with all its series, of all pools: the pool is their first label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Definition {
    pub(super) kind: MetricKind,
    pub(super) name: &'static str,
    /// The names of the labels behind the pool.
    pub(super) labels: &'static [&'static str],
}

/// One series: its place among the definitions, its values and its count.
#[derive(Debug)]
pub(crate) struct SeriesCell {
    /// The place of its definition in the registry.
    pub(super) definition: usize,
    pub(super) kind: MetricKind,
    /// The values of its labels, the pool first.
    pub(super) values: Vec<String>,
    /// A counter's total, or a gauge's value.
    amount: AtomicU64,
    /// The part of `amount` that Envoy has.
    flushed: AtomicU64,
    /// Envoy has it. A series is written once even if nothing was counted, so that its first count is seen as
    /// a change.
    is_known: AtomicBool,
}

impl Definition {
    /// The definition of a metric, of all pools.
    pub(super) fn of(metric: &Metric<'_>) -> Self {
        let &Statistic { kind, name, labels, .. } = metric.statistic;
        Self { kind, name, labels }
    }

    fn is_of_endpoints(&self) -> bool {
        self.labels == [ENDPOINT]
    }
}

impl SeriesCell {
    /// Whether Envoy has its amount.
    fn is_flushed(&self) -> bool {
        self.is_known.load(Ordering::Relaxed) && self.flushed.load(Ordering::Relaxed) == self.amount()
    }

    pub(super) fn amount(&self) -> u64 {
        self.amount.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, count: u64) {
        self.amount.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.amount.store(value, Ordering::Relaxed);
    }

    /// The amount to write into Envoy, if it lacks one: a counter's increase, or a gauge's value. Only one
    /// thread at a time.
    pub(super) fn take_change(&self, is_full: bool) -> Option<u64> {
        let amount = self.amount();
        let flushed = self.flushed.swap(amount, Ordering::Relaxed);
        let is_known = self.is_known.swap(true, Ordering::Relaxed) && !is_full;
        if is_known && amount == flushed {
            return None;
        }
        match self.kind {
            MetricKind::Counter => Some(amount.wrapping_sub(flushed)),
            MetricKind::Gauge => Some(amount),
            MetricKind::Histogram => None,
        }
    }
}

/// Histogram values of one worker since the last flush: their number by series and value.
pub(super) type Recorded = HashMap<(usize, u64), u32>;

/// All metrics of the process.
#[derive(Debug, Default)]
pub(super) struct Registry {
    tables: Mutex<Tables>,
    recorders: Mutex<Vec<Weak<Mutex<Recorded>>>>,
}

#[derive(Debug, Default)]
struct Tables {
    definitions: Vec<Definition>,
    /// Indexed by place. A place is not used again.
    series: BTreeMap<usize, Arc<SeriesCell>>,
    next_place: usize,
    /// The places by definition and values.
    places: HashMap<(usize, Vec<String>), usize>,
    /// The number of series that a definition and pool have. Series by endpoint are not bounded.
    counts: HashMap<(usize, String), usize>,
}

impl Tables {
    fn find(&self, definition: usize, values: &[String]) -> Option<(usize, Arc<SeriesCell>)> {
        let place = *self.places.get(&(definition, values.to_vec()))?;
        Some((place, Arc::clone(self.series.get(&place)?)))
    }

    fn is_full(&self, definition: usize, values: &[String]) -> bool {
        let is_of_endpoints = self.definitions.get(definition).is_some_and(Definition::is_of_endpoints);
        let family = family(definition, values);
        !is_of_endpoints && self.counts.get(&family).is_some_and(|&count| count >= MAX_SERIES)
    }

    fn add(&mut self, cell: SeriesCell) -> (usize, Arc<SeriesCell>) {
        let place = self.next_place;
        self.next_place += 1;
        *self.counts.entry(family(cell.definition, &cell.values)).or_default() += 1;
        self.places.insert((cell.definition, cell.values.clone()), place);
        let cell = Arc::new(cell);
        self.series.insert(place, Arc::clone(&cell));
        (place, cell)
    }
}

/// The metric of the pool that these values begin with.
fn family(definition: usize, values: &[String]) -> (usize, String) {
    (definition, values.first().cloned().unwrap_or_default())
}

impl Registry {
    /// The place of a definition.
    pub(super) fn definition(&self, definition: Definition) -> usize {
        let definitions = &mut self.tables.lock().definitions;
        let known = definitions.iter().position(|other| *other == definition);
        known.unwrap_or_else(|| {
            definitions.push(definition);
            definitions.len() - 1
        })
    }

    /// All definitions, by their places.
    pub(super) fn definitions(&self) -> Vec<Definition> {
        self.tables.lock().definitions.clone()
    }

    /// The series with these values, the pool first, and its place. All workers together have [`MAX_SERIES`]
    /// series of a metric and pool, and one for all other values. Series by endpoint are bounded by the pool.
    pub(super) fn series(
        &self,
        definition: usize,
        kind: MetricKind,
        values: &[String],
    ) -> (usize, Arc<SeriesCell>) {
        let tables = &mut *self.tables.lock();
        let mut values = values.to_vec();
        if let Some(found) = tables.find(definition, &values) {
            return found;
        }
        if tables.is_full(definition, &values) {
            values.iter_mut().skip(1).for_each(|value| OTHER.clone_into(value));
            if let Some(found) = tables.find(definition, &values) {
                return found;
            }
        }
        tables.add(SeriesCell {
            definition,
            kind,
            values,
            amount: AtomicU64::new(0),
            flushed: AtomicU64::new(0),
            is_known: AtomicBool::new(false),
        })
    }

    /// All series, by their places. Series that no worker uses any more, and of which Envoy has everything,
    /// are forgotten: of endpoints that left, and of pools that ended. Envoy keeps their last values until
    /// its configuration changes.
    pub(super) fn all_series(&self) -> BTreeMap<usize, Arc<SeriesCell>> {
        let Tables { series, places, counts, .. } = &mut *self.tables.lock();
        series.retain(|_, cell| {
            // `get_mut` sees all that the last worker has counted; `strong_count` would not order that.
            let is_kept = Arc::get_mut(cell).is_none_or(|cell| !cell.is_flushed());
            if !is_kept {
                places.remove(&(cell.definition, cell.values.clone()));
                if let Entry::Occupied(mut count) = counts.entry(family(cell.definition, &cell.values)) {
                    *count.get_mut() -= 1;
                    if *count.get() == 0 {
                        count.remove();
                    }
                }
            }
            is_kept
        });
        series.clone()
    }

    /// A place for the values of one worker's histograms.
    pub(super) fn new_recorder(&self) -> Arc<Mutex<Recorded>> {
        let recorder = Arc::default();
        let mut recorders = self.recorders.lock();
        recorders.retain(|recorder| recorder.strong_count() > 0);
        recorders.push(Arc::downgrade(&recorder));
        recorder
    }

    /// All values of histograms since the last call.
    pub(super) fn take_recorded(&self) -> Vec<Recorded> {
        let recorders: Vec<_> = self.recorders.lock().iter().filter_map(Weak::upgrade).collect();
        recorders.into_iter().map(|recorder| core::mem::take(&mut *recorder.lock())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pool: &str, model: usize) -> [String; 2] {
        [pool.to_owned(), model.to_string()]
    }

    fn flush(registry: &Registry) {
        for cell in registry.all_series().values() {
            let _ = cell.take_change(false);
        }
    }

    fn define(registry: &Registry, labels: &'static [&'static str]) -> usize {
        registry.definition(Definition { kind: MetricKind::Counter, name: "requests", labels })
    }

    #[test]
    fn all_workers_together_have_a_thousand_series_of_a_pools_metric() {
        let registry = Registry::default();
        let models = define(&registry, &["model_name"]);
        for worker in 0..4 {
            for model in 0..MAX_SERIES {
                registry
                    .series(models, MetricKind::Counter, &values("p", worker * MAX_SERIES + model))
                    .1
                    .add(1);
            }
        }
        let series = registry.all_series();
        assert_eq!(series.len(), MAX_SERIES + 1);
        let other = series.values().find(|cell| cell.values[1] == OTHER).unwrap();
        assert_eq!(other.amount(), 3 * MAX_SERIES as u64);
        registry.series(models, MetricKind::Counter, &values("another", 1));
        assert_eq!(registry.all_series().len(), MAX_SERIES + 2, "another pool has its own");
    }

    #[test]
    fn a_pool_that_no_worker_uses_is_forgotten_and_another_one_has_its_place() {
        let registry = Registry::default();
        let routed = define(&registry, &["model_name"]);
        for pool in 0..3 * MAX_SERIES {
            let name = format!("pool-{pool}");
            registry.series(routed, MetricKind::Counter, &values(&name, 1)).1.add(1);
            registry.series(routed, MetricKind::Counter, &values("p", pool)).1.add(1);
            flush(&registry);
        }
        flush(&registry);
        assert_eq!(registry.all_series().len(), 0);
        let tables = registry.tables.lock();
        assert_eq!((tables.places.len(), tables.counts.len()), (0, 0));
    }

    #[test]
    fn endpoints_that_no_worker_uses_are_forgotten_once_envoy_has_their_counts() {
        let registry = Registry::default();
        let picks = define(&registry, &[ENDPOINT]);
        let mut used = None;
        for endpoint in 0..3 * MAX_SERIES {
            let (_, cell) = registry.series(picks, MetricKind::Counter, &values("p", endpoint));
            cell.add(1);
            assert_ne!(cell.values[1], OTHER, "new endpoints have their own names");
            used = Some(cell);
            if endpoint % 100 == 0 {
                flush(&registry);
            }
        }
        flush(&registry);
        assert_eq!(registry.all_series().len(), 1);
        drop(used);
        assert_eq!(registry.all_series().len(), 0);
    }
}
