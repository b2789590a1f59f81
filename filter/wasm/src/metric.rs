//! Envoy's metrics: counters, gauges and histograms.

use crate::host;

/// A counter; nothing happens if Envoy would not define it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter(Option<u32>);

impl Counter {
    pub(crate) fn define(name: &str) -> Self {
        Self(defined(name, host::define_counter(name)))
    }

    /// Adds one.
    pub(crate) fn increment(self) {
        self.add(1);
    }

    /// Adds so many.
    pub(crate) fn add(self, count: u64) {
        said(self.0.map(|id| host::increment(id, count)));
    }

    /// What all VMs together have counted; 0 if Envoy would not define the counter.
    pub(crate) fn value(self) -> u64 {
        said(self.0.map(host::counted)).unwrap_or(0)
    }
}

/// A gauge; nothing happens if Envoy would not define it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gauge(Option<u32>);

impl Gauge {
    pub(crate) fn define(name: &str) -> Self {
        Self(defined(name, host::define_gauge(name)))
    }

    /// Puts this value in the place of the last one, whichever VM set it.
    pub(crate) fn set(self, value: u64) {
        said(self.0.map(|id| host::record(id, value)));
    }
}

/// A histogram; nothing happens if Envoy would not define it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Histogram(Option<u32>);

impl Histogram {
    pub(crate) fn define(name: &str) -> Self {
        Self(defined(name, host::define_histogram(name)))
    }

    /// Adds a value.
    pub(crate) fn record(self, value: u128) {
        said(self.0.map(|id| host::record(id, u64::try_from(value).unwrap_or(u64::MAX))));
    }
}

fn defined(name: &str, id: host::Result<u32>) -> Option<u32> {
    id.inspect_err(|error| log::warn!("no statistic {name}: {error}")).ok()
}

fn said<T>(result: Option<host::Result<T>>) -> Option<T> {
    result?.inspect_err(|error| log::debug!("{error}")).ok()
}
