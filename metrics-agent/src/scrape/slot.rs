//! What one scrape task writes and the publisher reads.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::reading::Reading;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// What is known of one endpoint. It outlives changes of its pools as long as the endpoint stays.
#[derive(Debug)]
pub struct Slot {
    reading: Mutex<Reading>,
    kv_usage_metric: Mutex<Option<Arc<str>>>,
    tried: AtomicBool,
    failing: AtomicBool,
    readers: Mutex<Vec<Arc<Notify>>>,
}

/// How an endpoint stands for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It refuses connections.
    NotReady,
    /// Its scrapes fail, and it is ready only where no endpoint is sound.
    Failing,
    /// None of these.
    Good,
}

impl Slot {
    /// An endpoint that was never scraped; as in the EPP, it is ready until shown otherwise.
    pub fn new() -> Arc<Self> {
        Self::of_returned(None)
    }

    /// The same for one that came back into its pool at this time since the Unix epoch.
    pub fn of_returned(came_back: Option<Duration>) -> Arc<Self> {
        let reading = Reading { ready: true, cached_since: came_back, ..Reading::default() };
        Arc::new(Self {
            reading: Mutex::new(reading),
            kv_usage_metric: Mutex::default(),
            tried: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            readers: Mutex::default(),
        })
    }

    /// From now on these are told of news. An endpoint may belong to several pools.
    pub fn set_readers(&self, readers: Vec<Arc<Notify>>) {
        *self.readers.lock() = readers;
    }

    /// The slot holds something new.
    pub fn tell_readers(&self) {
        for reader in &*self.readers.lock() {
            reader.notify_one();
        }
    }

    /// The last reading.
    pub fn reading(&self) -> Reading {
        self.reading.lock().clone()
    }

    /// The metric that the reading's KV usage is from.
    pub fn kv_usage_metric(&self) -> Option<Arc<str>> {
        self.kv_usage_metric.lock().clone()
    }

    /// Sets which metric the reading's KV usage is from.
    pub fn set_kv_usage_metric(&self, metric: Option<Arc<str>>) {
        *self.kv_usage_metric.lock() = metric;
    }

    /// A first scrape has ended, well or badly.
    pub fn mark_tried(&self) {
        self.tried.store(true, Ordering::Release);
    }

    /// Whether [`Self::mark_tried`] was called.
    pub fn was_tried(&self) -> bool {
        self.tried.load(Ordering::Acquire)
    }

    /// Age of the values.
    pub fn age(&self, now: Duration) -> Option<Duration> {
        self.reading.lock().age(now)
    }

    /// How the endpoint stands for itself.
    pub fn health(&self) -> Health {
        match self.reading.lock().ready {
            false => Health::NotReady,
            true if self.failing.load(Ordering::Acquire) => Health::Failing,
            true => Health::Good,
        }
    }

    /// Sets whether so many scrapes failed that others are better, and tells whether that changed it.
    pub fn set_failing(&self, failing: bool) -> bool {
        self.failing.swap(failing, Ordering::AcqRel) != failing
    }

    /// Replaces the values that were scraped; readiness stays.
    pub fn set_values(&self, values: Reading, now: Duration) {
        let mut reading = self.reading.lock();
        *reading = Reading { ready: reading.ready, updated: Some(now), ..values };
    }

    /// Sets readiness and tells whether that changed it.
    pub fn set_ready(&self, ready: bool) -> bool {
        let mut reading = self.reading.lock();
        core::mem::replace(&mut reading.ready, ready) != ready
    }
}
