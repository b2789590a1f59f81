//! Servers that pause for too long within a response.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::sync::Arc;

use parking_lot::Mutex;

use super::wake::Wake;
use crate::abi::{RequestHandle, Scheduler};
use crate::process::clock;
use crate::process::subscribers::{Subscribers, Subscription};

/// The limit of pauses, and the streams of a pool that it holds for.
#[derive(Debug)]
pub(super) struct Pauses {
    /// `None`: pauses are not limited.
    limit: Option<Duration>,
    streams: Arc<Subscribers<Paced>>,
}

/// A stream whose pauses are limited.
struct Paced {
    events: Arc<AtomicU32>,
    /// The events at an earlier check, and its time.
    seen: Mutex<(u32, Duration)>,
    scheduler: Scheduler,
}

/// The events of one stream's servers. Its pauses are limited until this value is dropped.
#[derive(Debug)]
pub(super) struct PacedEvents {
    count: Arc<AtomicU32>,
    _paced: Subscription<Paced>,
}

impl Pauses {
    /// The setting `maxPauseSeconds`.
    pub(super) fn new(max_seconds: Option<u64>) -> Self {
        Self { limit: max_seconds.map(Duration::from_secs), streams: Arc::default() }
    }

    /// Limits the pauses of a stream, if the setting does.
    pub(super) fn limit(&self, request: &RequestHandle<'_>) -> Option<PacedEvents> {
        self.limit?;
        let scheduler = request.scheduler()?;
        let count = Arc::<AtomicU32>::default();
        let seen = Mutex::new((0, clock::now()));
        let paced = self.streams.add(Paced { events: Arc::clone(&count), seen, scheduler });
        Some(PacedEvents { count, _paced: paced })
    }

    /// Resets the responses that have paused for too long. To be called once a second.
    pub(super) fn reset_stalled(&self) {
        let Some(limit) = self.limit else { return };
        let now = clock::now();
        self.streams.for_each(|Paced { events, seen, scheduler }| {
            let (known, since) = &mut *seen.lock();
            let current = events.load(Ordering::Relaxed);
            if *known != current {
                (*known, *since) = (current, now);
            } else if now.saturating_sub(*since) >= limit {
                *since = now;
                scheduler.commit(Wake::Stalled { events: current }.into());
            }
        });
    }
}

impl PacedEvents {
    /// A server has done something, so its pause is over.
    pub(super) fn add(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether no server has done anything since this number of events.
    pub(super) fn is(&self, events: u32) -> bool {
        self.count.load(Ordering::Relaxed) == events
    }
}
