//! Writes the process's metrics into Envoy.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::{Arc, LazyLock, Weak};
use std::time::Instant;

use parking_lot::Mutex;

use super::registry::{Definition, REGISTRY};
use crate::abi::{ConfigHandle, DefinedMetric, MetricWriter};
use crate::process::subscribers::{Subscribers, Subscription};

/// Prefix of each metric's name.
const PREFIX: &str = "endpoint_picker.";

/// Minimum time between two flushes. It is less than a second, because wakes are not exactly a second apart.
const PAUSE: Duration = Duration::from_millis(500);

/// The filter configurations of the process that have a flusher.
static FLUSHERS: LazyLock<Arc<Subscribers<()>>> = LazyLock::new(Arc::default);

/// The pools of the process.
static PUBLISHERS: LazyLock<Arc<Subscribers<Weak<dyn Publisher>>>> = LazyLock::new(Arc::default);

/// The last flush. Held while one runs, so that flushes follow one another.
static LAST: Mutex<Option<Flush>> = Mutex::new(None);

/// A flush is due that only a request can do.
static IS_DUE: AtomicBool = AtomicBool::new(false);

struct Flush {
    by: u64,
    at: Instant,
}

/// Workers that count in memory of their own.
pub(crate) trait Publisher: Send + Sync {
    /// Moves the counts of all workers into the registry.
    fn publish(&self);
}

/// Has a publisher called before every flush, until the subscription is dropped.
pub(crate) fn register(publisher: Weak<dyn Publisher>) -> Subscription<Weak<dyn Publisher>> {
    PUBLISHERS.add(publisher)
}

/// The metrics as one filter configuration has defined them. Any configuration can write all metrics of the
/// process: Envoy adds up metrics of the same name and labels.
#[derive(Debug)]
pub(crate) struct Flusher {
    subscription: Subscription<()>,
    /// Indexed by the definition's place in the registry; `None` if Envoy refused the metric.
    defined: Vec<Option<DefinedMetric>>,
}

impl Flusher {
    /// Defines all metrics of the registry. Envoy allows it only while the configuration is made.
    pub(crate) fn new(config: &mut ConfigHandle<'_>) -> Arc<Self> {
        let define = |Definition { kind, name, labels }| {
            let labels: Vec<&str> = core::iter::once("pool").chain(labels.iter().copied()).collect();
            let defined = config.define(kind, &format!("{PREFIX}{name}"), &labels);
            if defined.is_none() {
                log::warn!("Envoy refused the metric {name}");
            }
            defined
        };
        let defined = REGISTRY.definitions().into_iter().map(define).collect();
        Arc::new(Self { subscription: FLUSHERS.add(()), defined })
    }

    /// Flushes if it is time to and this configuration is the oldest: newer ones find nothing to write.
    pub(crate) fn tick(&self, config: &mut ConfigHandle<'_>) {
        if !self.subscription.is_oldest() {
            return;
        }
        if ConfigHandle::changes_metrics() {
            self.flush(config);
        } else {
            IS_DUE.store(true, Ordering::Relaxed);
        }
    }

    /// Flushes through a request, if Envoy has no other way and it is time to.
    pub(crate) fn flush_if_due(&self, request: &mut impl MetricWriter) {
        if IS_DUE.load(Ordering::Relaxed) && IS_DUE.swap(false, Ordering::Relaxed) {
            self.flush(request);
        }
    }

    fn flush(&self, writer: &mut impl MetricWriter) {
        let mut last = LAST.lock();
        if last.as_ref().is_some_and(|last| last.at.elapsed() < PAUSE) {
            return;
        }
        // Envoy drops a metric with the last configuration that wrote it, so another configuration writes all
        // of them.
        let is_full = last.as_ref().is_none_or(|last| last.by != self.subscription.number());
        *last = Some(Flush { by: self.subscription.number(), at: Instant::now() });
        // The last reference to a publisher may be dropped here, and its drop takes the lock of the list.
        let mut publishers = Vec::new();
        PUBLISHERS.for_each(|publisher| publishers.extend(publisher.upgrade()));
        for publisher in &publishers {
            publisher.publish();
        }
        let series = REGISTRY.all_series();
        for series in series.values() {
            if let Some(amount) = series.take_change(is_full) {
                self.write(writer, series.definition, &series.values, amount);
            }
        }
        for ((place, value), count) in REGISTRY.take_recorded().into_iter().flatten() {
            if let Some(series) = series.get(&place) {
                // Envoy takes one value at a time.
                (0..count).for_each(|_| self.write(writer, series.definition, &series.values, value));
            }
        }
    }

    fn write(&self, writer: &mut impl MetricWriter, definition: usize, values: &[String], amount: u64) {
        if let Some(metric) = self.defined.get(definition).copied().flatten() {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            if !writer.change(metric, &values, amount) {
                log::debug!("Envoy refused a change of a metric with the values {values:?}");
            }
        }
    }
}
