//! The newest values of one endpoint, from its scrape task to the publishers.

use core::sync::atomic::{AtomicBool, Ordering};
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::pool::reading::{GPU_UTILIZATION, Reading, ServedModel};
use metrics_agent_status::unseen_queue::UnseenQueue;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::queue::QueueWatch;

/// The newest values of one endpoint. A slot stays when its pools change, while the endpoint stays.
#[derive(Debug)]
pub struct Slot {
    reading: Mutex<Reading>,
    /// Utilization of the endpoint's busiest GPU, 0..=1.
    gpu_utilization: Mutex<Option<f64>>,
    models: Mutex<Option<Arc<[ServedModel]>>>,
    origin: Mutex<ReadingOrigin>,
    queue: Mutex<QueueWatch>,
    scrape_failure: Mutex<Option<Arc<str>>>,
    /// When the first scrape began.
    tried_since: Mutex<Option<Duration>>,
    failing: AtomicBool,
    denied: AtomicBool,
    readers: Mutex<Vec<Arc<Notify>>>,
}

/// The part of a server's text that a reading is from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadingOrigin {
    /// The engine whose metrics are read; `None`: not known.
    pub engine: Option<Arc<str>>,
    /// The metric of the KV usage; `None`: it is not reported.
    pub kv_usage_metric: Option<Arc<str>>,
}

/// The health of one endpoint, by itself. Of a pool, the endpoints of the best health are ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// It refuses connections, or another server has its address. It is never ready.
    NotReady,
    /// Name servers deny its host name.
    Denied,
    /// Its scrapes fail, or its host does not respond.
    Failing,
    /// None of these.
    Good,
}

impl Slot {
    /// An endpoint that was never scraped. As in the EPP, it is ready until scrapes show otherwise.
    pub fn new() -> Arc<Self> {
        Self::of_joined(None)
    }

    /// An endpoint that joined its pool at this time since the Unix epoch; `None`: it was there when the
    /// agent started.
    pub fn of_joined(joined: Option<Duration>) -> Arc<Self> {
        let reading = Reading { ready: true, cached_since: joined, ..Reading::default() };
        Arc::new(Self {
            reading: Mutex::new(reading),
            gpu_utilization: Mutex::default(),
            models: Mutex::default(),
            origin: Mutex::default(),
            queue: Mutex::default(),
            scrape_failure: Mutex::default(),
            tried_since: Mutex::default(),
            failing: AtomicBool::new(false),
            denied: AtomicBool::new(false),
            readers: Mutex::default(),
        })
    }

    /// Sets the publishers to notify of changes. An endpoint may belong to several pools.
    pub fn set_readers(&self, readers: Vec<Arc<Notify>>) {
        *self.readers.lock() = readers;
    }

    /// Notifies the publishers of a change.
    pub fn notify_readers(&self) {
        for reader in &*self.readers.lock() {
            reader.notify_one();
        }
    }

    /// The last reading.
    pub fn reading(&self) -> Reading {
        let mut reading = self.reading.lock().clone();
        let gpu_utilization = *self.gpu_utilization.lock();
        reading.attributes.extend(gpu_utilization.map(|share| (GPU_UTILIZATION.to_owned(), share)));
        reading.models.clone_from(&self.models.lock());
        reading
    }

    /// Sets the models that the server lists, and notifies the publishers if they changed.
    pub fn set_models(&self, models: Option<Arc<[ServedModel]>>) {
        let is_new = *self.models.lock() != models;
        if is_new {
            *self.models.lock() = models;
            self.notify_readers();
        }
    }

    /// Sets the utilization of the endpoint's busiest GPU, 0..=1, and notifies the publishers if it changed.
    pub fn set_gpu_utilization(&self, share: Option<f64>) {
        if core::mem::replace(&mut *self.gpu_utilization.lock(), share) != share {
            self.notify_readers();
        }
    }

    /// The origin of the reading.
    pub fn origin(&self) -> ReadingOrigin {
        self.origin.lock().clone()
    }

    /// Sets the origin of the reading.
    pub fn set_origin(&self, origin: ReadingOrigin) {
        *self.origin.lock() = origin;
    }

    /// The server's queue, if it has shown none in many readings with work; `scorers` are the pool's that
    /// score by it.
    pub fn unseen_queue(&self, scorers: &[String]) -> Option<UnseenQueue> {
        self.queue.lock().unseen(scorers)
    }

    /// Why the last scrape failed, for display; `None` if it succeeded, or another agent scrapes.
    pub fn scrape_failure(&self) -> Option<Arc<str>> {
        self.scrape_failure.lock().clone()
    }

    /// Sets why the last scrape failed.
    pub fn set_scrape_failure(&self, failure: Option<Arc<str>>) {
        *self.scrape_failure.lock() = failure;
    }

    /// Notes that a scrape begins, by this agent or by another one for all.
    pub fn mark_tried(&self, now: Duration) {
        self.tried_since.lock().get_or_insert(now);
    }

    /// The time since the first scrape began; `None`: there was none.
    pub fn tried_for(&self, now: Duration) -> Option<Duration> {
        self.tried_since.lock().map(|since| now.saturating_sub(since))
    }

    /// Whether a scrape has succeeded.
    pub fn has_reading(&self) -> bool {
        self.reading.lock().updated.is_some()
    }

    /// Age of the values.
    pub fn age(&self, now: Duration) -> Option<Duration> {
        self.reading.lock().age(now)
    }

    /// The health of the endpoint by itself.
    pub fn health(&self) -> Health {
        match self.reading.lock().ready {
            false => Health::NotReady,
            true if self.is_denied() => Health::Denied,
            true if self.is_failing() => Health::Failing,
            true => Health::Good,
        }
    }

    /// Whether name servers deny the endpoint's host name.
    pub fn is_denied(&self) -> bool {
        self.denied.load(Ordering::Acquire)
    }

    /// Sets whether name servers deny the endpoint's host name.
    pub fn set_denied(&self, denied: bool) {
        self.denied.store(denied, Ordering::Release);
    }

    /// Whether too many scrapes failed in a row.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }

    /// Sets whether too many scrapes failed in a row, and returns whether that changed.
    pub fn set_failing(&self, failing: bool) -> bool {
        self.failing.swap(failing, Ordering::AcqRel) != failing
    }

    /// Replaces the scraped values; readiness stays.
    pub fn set_values(&self, mut values: Reading, now: Duration) {
        // A reading from another agent has it too, and each agent scrapes the exporters by itself.
        values.attributes.retain(|(name, _)| name != GPU_UTILIZATION);
        self.queue.lock().note(&values);
        let mut reading = self.reading.lock();
        *reading = Reading { ready: reading.ready, updated: Some(now), ..values };
    }

    /// Sets readiness, and returns whether that changed.
    pub fn set_ready(&self, ready: bool) -> bool {
        let mut reading = self.reading.lock();
        core::mem::replace(&mut reading.ready, ready) != ready
    }
}
