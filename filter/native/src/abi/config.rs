//! A filter configuration during one hook on the main thread, and the changes of its metrics.

use core::ffi::c_void;
use core::marker::PhantomData;

use endpoint_picker_wire::statistics::MetricKind;

use super::callbacks;
use super::late::{self, ChangeMetric};
use super::request::RequestHandle;
use super::scheduler::{Kind, Scheduler};
use super::types::{Buffer, EnvoyPtr};

/// Envoy's result of a call that succeeded.
const SUCCESS: u32 = 0;

/// A metric as one configuration has defined it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DefinedMetric {
    pub(crate) kind: MetricKind,
    id: usize,
}

/// Changes metrics of one configuration.
pub(crate) trait MetricWriter {
    /// Adds to a counter, sets a gauge, or adds a value to a histogram. `values` has one for each label of
    /// the metric. False if Envoy refuses.
    fn change(&mut self, metric: DefinedMetric, values: &[&str], amount: u64) -> bool;
}

/// A filter configuration during one hook on the main thread.
#[derive(Debug)]
pub(crate) struct ConfigHandle<'hook> {
    config: EnvoyPtr,
    hook: PhantomData<&'hook mut c_void>,
}

impl ConfigHandle<'_> {
    /// # Safety
    /// `config` is the pointer that Envoy gave to the hook, and the handle is dropped before the hook ends.
    pub(crate) unsafe fn new(config: EnvoyPtr) -> Self {
        Self { config, hook: PhantomData }
    }

    /// Defines a metric. Only while the configuration is made: later Envoy refuses, and the result is `None`.
    pub(crate) fn define(&mut self, kind: MetricKind, name: &str, labels: &[&str]) -> Option<DefinedMetric> {
        let define = match kind {
            MetricKind::Counter => callbacks::http_filter_config_define_counter,
            MetricKind::Gauge => callbacks::http_filter_config_define_gauge,
            MetricKind::Histogram => callbacks::http_filter_config_define_histogram,
        };
        let labels = buffers(labels);
        let mut id = 0;
        // SAFETY: the pointer is valid during the hook, the buffers and the result's place during the call.
        let result = unsafe {
            define(self.config, Buffer::of(name.as_bytes()), labels.as_ptr(), labels.len(), &raw mut id)
        };
        (result == SUCCESS).then_some(DefinedMetric { kind, id })
    }

    /// A scheduler of this configuration; `None` if Envoy has none.
    pub(crate) fn scheduler(&self) -> Option<Scheduler> {
        // SAFETY: the pointer is valid during the hook, which runs on the main thread.
        unsafe { Scheduler::new(Kind::FilterConfig, self.config) }
    }

    /// Whether metrics can be changed outside of requests: not before Envoy 1.39.
    pub(crate) fn changes_metrics() -> bool {
        late::http_filter_config_increment_counter().is_some()
    }
}

fn buffers(values: &[&str]) -> Vec<Buffer> {
    values.iter().map(|value| Buffer::of(value.as_bytes())).collect()
}

impl MetricWriter for ConfigHandle<'_> {
    fn change(&mut self, metric: DefinedMetric, values: &[&str], amount: u64) -> bool {
        let change = match metric.kind {
            MetricKind::Counter => late::http_filter_config_increment_counter(),
            MetricKind::Gauge => late::http_filter_config_set_gauge(),
            MetricKind::Histogram => late::http_filter_config_record_histogram_value(),
        };
        // SAFETY: the pointer is valid during the hook.
        change.is_some_and(|change| unsafe { call_change(change, self.config, metric, values, amount) })
    }
}

impl MetricWriter for RequestHandle<'_> {
    fn change(&mut self, metric: DefinedMetric, values: &[&str], amount: u64) -> bool {
        let change: ChangeMetric = match metric.kind {
            MetricKind::Counter => callbacks::http_filter_increment_counter,
            MetricKind::Gauge => callbacks::http_filter_set_gauge,
            MetricKind::Histogram => callbacks::http_filter_record_histogram_value,
        };
        // SAFETY: the pointer is valid during the hook.
        unsafe { call_change(change, self.filter(), metric, values, amount) }
    }
}

/// # Safety
/// `owner` is the object that `change` takes, and the metric is of its configuration.
unsafe fn call_change(
    change: ChangeMetric,
    owner: EnvoyPtr,
    metric: DefinedMetric,
    values: &[&str],
    amount: u64,
) -> bool {
    let values = buffers(values);
    // SAFETY: as the caller promises; Envoy compares the number of values with the number of labels.
    unsafe { change(owner, metric.id, values.as_ptr(), values.len(), amount) == SUCCESS }
}
