//! All metrics of the process.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use endpoint_picker_engine::metrics::MetricKind;
use hashbrown::HashMap;
use parking_lot::Mutex;

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
    /// What Envoy has of `amount`.
    flushed: AtomicU64,
    /// Envoy has it. A series is written once even if nothing was counted, so that its first count is seen as a change.
    is_known: AtomicBool,
}

impl SeriesCell {
    pub(super) fn amount(&self) -> u64 {
        self.amount.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, count: u64) {
        self.amount.fetch_add(count, Ordering::Relaxed);
    }

    pub(super) fn set(&self, value: u64) {
        self.amount.store(value, Ordering::Relaxed);
    }

    /// The amount to write into Envoy, if it lacks one: what a counter has gained, or a gauge's value. Only one thread at a time.
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

/// The values of histograms that one worker has recorded since the last flush, and how often each.
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
    series: Vec<Arc<SeriesCell>>,
    by_values: HashMap<(usize, Vec<String>), (usize, Arc<SeriesCell>)>,
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

    /// The series with these values, the pool first, and its place.
    pub(super) fn series(
        &self,
        definition: usize,
        kind: MetricKind,
        values: &[String],
    ) -> (usize, Arc<SeriesCell>) {
        let Tables { series, by_values, .. } = &mut *self.tables.lock();
        let place = series.len();
        let new_cell = || {
            let cell = Arc::new(SeriesCell {
                definition,
                kind,
                values: values.to_vec(),
                amount: AtomicU64::new(0),
                flushed: AtomicU64::new(0),
                is_known: AtomicBool::new(false),
            });
            series.push(Arc::clone(&cell));
            (place, cell)
        };
        by_values.entry((definition, values.to_vec())).or_insert_with(new_cell).clone()
    }

    /// All series, by their places.
    pub(super) fn all_series(&self) -> Vec<Arc<SeriesCell>> {
        self.tables.lock().series.clone()
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
