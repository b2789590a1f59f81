//! Keeps a pool up to date: takes snapshots in, and reports on the pool.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::agent::{
    AgentAnswer, AgentRequest, CallError, CallId, PollOutcome, PollTimes, Reporter, SnapshotClient,
};
use endpoint_picker_engine::pool_store::PoolStore;
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_engine::snapshot;

use crate::shared::{SharedPool, SharedStore};
use crate::watchers;

/// Times of a poll. The wait is short, so that a poll that hangs is soon known as such, and the next agent is asked.
pub(super) const POLL: PollTimes =
    PollTimes { wait: Duration::from_millis(250), timeout: Duration::from_millis(1250) };

/// The next requests to the agent for one pool, and what their answers change.
#[derive(Debug)]
pub(crate) struct Updater {
    store: SharedStore,
    client: SnapshotClient,
    reporter: Reporter,
}

impl Updater {
    /// `proxy` is the proxy's name in reports, and `generation` is of this updater alone.
    pub(crate) fn new(name: &str, store: SharedStore, proxy: String, generation: u64) -> Self {
        Self {
            store,
            client: SnapshotClient::new(name, POLL),
            reporter: Reporter::new(name, proxy, generation),
        }
    }

    /// The poll to send now, if there is one.
    pub(super) fn next_poll(&mut self, now: Duration) -> Option<AgentRequest> {
        self.client.next_poll(self.store.view().versions(), now)
    }

    /// The poll was sent; its answer comes under this number.
    pub(super) fn poll_sent(&mut self, call: CallId) {
        self.client.sent(call);
    }

    /// Whether the answer under this number is to the poll.
    pub(super) fn awaits_poll(&self, call: CallId) -> bool {
        self.client.awaits(call)
    }

    /// The time until the next poll is due.
    pub(super) fn pause(&self, now: Duration) -> Duration {
        self.client.pause(now)
    }

    /// Takes the answer to a poll. Returns whether the poll succeeded.
    pub(super) fn finish_poll(&mut self, answer: Result<AgentAnswer, CallError>, now: Duration) -> bool {
        let Self { store, client, .. } = self;
        let pool = store.pool();
        let view = store.view();
        let mut unread = None;
        let outcome = client.finish(answer, view.versions(), now, |newer| {
            match snapshot::follow(&view, newer.readings, now, || Ok(newer.bytes.to_vec())) {
                Ok(Some(newer)) => adopt(pool, newer),
                Ok(None) => {}
                Err(error) => unread = Some(error),
            }
            Ok(())
        });
        if let Some(error) = unread {
            log::error!("a snapshot that was checked cannot be used: {error}");
        }
        match outcome {
            PollOutcome::Published => pool.count_snapshot(),
            PollOutcome::Unchanged => {}
            PollOutcome::Failed { error, is_new } => {
                pool.count_failed_poll();
                if is_new {
                    log::warn!("no snapshot: {error}; the last one stays in use, and polls go on");
                }
                return false;
            }
        }
        true
    }

    /// The report to send now, if there is one.
    pub(super) fn next_report(&mut self, now: Duration) -> Option<AgentRequest> {
        self.reporter.next_report(&self.store, || self.store.pool().totals(), now)
    }

    /// The report was sent; its answer comes under this number.
    pub(super) fn report_sent(&mut self, call: CallId) {
        self.reporter.sent(call);
    }

    /// Whether the answer under this number is to the report.
    pub(super) fn awaits_report(&self, call: CallId) -> bool {
        self.reporter.awaits(call)
    }

    /// Takes the answer to a report.
    pub(super) fn finish_report(&mut self, answer: Result<AgentAnswer, CallError>) {
        if let Some(problem) = self.reporter.finish(answer.map(|answer| answer.status)) {
            log::warn!("a report failed: {problem}; the agent's page lacks picks until one succeeds");
        }
    }
}

fn adopt(pool: &SharedPool, newer: PoolView) {
    let newer = Arc::new(newer);
    let topology = Arc::clone(newer.topology());
    let older = pool.adopt(newer);
    if !Arc::ptr_eq(older.topology(), &topology) {
        let endpoints = topology.pool.endpoints().len();
        log::info!("pool {} has {endpoints} endpoints", topology.pool.name());
        watchers::notify(topology.pool.name());
    }
}
