//! The state of a server: what a test has set, and what was received.

use super::engine::Engine;
use super::metrics::Metrics;
use super::request::{Behaviour, ReceivedRequest};
use bytes::Bytes;
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) name: String,
    /// Present when the metrics come from a model of the service time, not from the test.
    pub(crate) engine: Option<Engine>,
    pub(crate) metrics: Mutex<Metrics>,
    /// Served in place of the metrics.
    pub(crate) metrics_text: Mutex<Option<Bytes>>,
    pub(crate) behaviour: Mutex<Behaviour>,
    pub(crate) scrape_behaviour: Mutex<Behaviour>,
    pub(crate) requests: Mutex<Vec<ReceivedRequest>>,
    /// When each request had come whole, and when its response was ready.
    pub(crate) busy: Mutex<Vec<Range<Instant>>>,
    /// How often each program, by its user-agent field, has read `/metrics`.
    pub(crate) scrapes: Mutex<HashMap<String, usize>>,
    /// The ids of stored responses and conversations.
    pub(crate) stored: Mutex<HashSet<String>>,
    /// The response to `/kv_event_sources`.
    pub(crate) kv_event_sources: Mutex<Value>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of these locks panics")
}
