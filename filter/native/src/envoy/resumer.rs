//! The setting `resumeStreams` in use.

use std::sync::Arc;

use endpoint_picker_engine::budget::{Budget, KeptBytes, UsedBytes};
use endpoint_picker_engine::resume::{ResumeConfig, ResumeMetrics, Unresumable};

use super::pauses::Pauses;
use crate::metrics::{self, PoolResumptions, Sink};
use crate::process::subscribers::Subscription;

/// Bytes that Envoy may buffer above the limit of a request: room for the chunk with which a body exceeds it.
const BUFFER_MARGIN: u64 = 1 << 20;

/// Settings and room that the streams of one pool's requests share.
#[derive(Debug)]
pub(crate) struct Resumer {
    pub(super) config: ResumeConfig,
    /// The room for requests and texts.
    budget: Arc<Budget>,
    /// The room for requests that are held until they are whole.
    held: Arc<Budget>,
    /// The room for responses that clients do not read.
    pub(super) unread: Arc<Budget>,
    pub(super) metrics: Arc<ResumeMetrics<Sink>>,
    /// Has the reports on the pool include the counters.
    _counted: Subscription<PoolResumptions>,
    pub(super) pauses: Pauses,
}

/// The body of a request as the client has sent it, counted in the budget.
#[derive(Debug)]
pub(super) struct KeptBody {
    pub(super) bytes: Vec<u8>,
    pub(super) kept: KeptBytes,
}

impl Resumer {
    /// Takes the setting of a pool into use. `held` are the bytes that are held in the whole process, and
    /// their limit.
    pub(super) fn new(config: &ResumeConfig, pool: &str, held: (&Arc<UsedBytes>, usize)) -> Arc<Self> {
        let (used, max_in_all) = held;
        let metrics = Arc::new(ResumeMetrics::new(&Sink::new(), pool));
        Arc::new(Self {
            config: config.clone(),
            budget: Budget::new(config.max_kept_bytes, config.max_kept_bytes_in_all),
            held: Budget::of(Arc::clone(used), config.max_kept_bytes, max_in_all),
            unread: Budget::of(Arc::clone(used), config.max_unread_bytes, max_in_all),
            _counted: metrics::report_resumptions(pool, &metrics),
            metrics,
            pauses: Pauses::new(config.max_pause_seconds),
        })
    }

    /// Whether a body of this size is not kept.
    pub(super) fn is_too_large(&self, size: usize) -> bool {
        size > self.config.max_kept_bytes
    }

    /// Keeps a body of this size, if there is room.
    pub(super) fn keep(&self, size: usize, read: impl FnOnce() -> Vec<u8>) -> Result<KeptBody, Unresumable> {
        let mut kept = KeptBytes::new(&self.budget);
        if kept.grow(size) { Ok(KeptBody { bytes: read(), kept }) } else { Err(Unresumable::TooLarge) }
    }

    /// The room that a request takes while it is held until it is whole.
    pub(super) fn hold(&self) -> KeptBytes {
        KeptBytes::new(&self.held)
    }

    /// Bytes that Envoy has to be able to buffer for a request. A client that was slowed down at a lower
    /// limit sends again only below half of this limit.
    pub(super) fn buffer_limit(&self) -> u64 {
        let max_kept = u64::try_from(self.config.max_kept_bytes).unwrap_or(u64::MAX);
        max_kept.saturating_mul(2).saturating_add(BUFFER_MARGIN)
    }

    /// A request cannot be resumed.
    pub(super) fn count_unresumable(&self, reason: Unresumable) {
        self.metrics.count_unresumable(reason);
    }
}
