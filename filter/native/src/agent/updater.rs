//! Keeps a pool up to date: takes snapshots in, and reports on the pool.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::agent::{
    AgentAnswer, AgentRequest, CallError, CallId, PollOutcome, PollTimes, Reporter, SnapshotClient,
    TopologyLog,
};
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::pool_view::snapshot;
use endpoint_picker_engine::worker_pool::store::PoolStore;

use super::adoption::Adoption;
use crate::shared::SharedStore;

/// Time between two checks whether a view can be adopted.
const ADOPTION_PAUSE: Duration = Duration::from_millis(1);

/// Times of a poll. The wait is short, so that a poll that hangs is soon known as such, and the next agent is asked.
pub(super) const POLL: PollTimes =
    PollTimes { wait: Duration::from_millis(250), timeout: Duration::from_millis(1250) };

/// The next requests to the agent for one pool, and what their answers change.
#[derive(Debug)]
pub(crate) struct Updater {
    store: SharedStore,
    adoption: Adoption,
    client: SnapshotClient,
    reporter: Reporter,
    topology_log: TopologyLog,
}

impl Updater {
    /// `proxy` is the proxy's name in reports, and `generation` is of this updater alone.
    pub(crate) fn new(name: &str, store: SharedStore, proxy: String, generation: u64) -> Self {
        Self {
            store,
            adoption: Adoption::new(name),
            client: SnapshotClient::new(name, POLL),
            reporter: Reporter::new(name, proxy, Form::Native, generation),
            topology_log: TopologyLog::default(),
        }
    }

    /// The poll to send now, if there is one. None is sent while a view waits for its adoption.
    pub(super) fn next_poll(&mut self, now: Duration) -> Option<AgentRequest> {
        self.adoption.advance(self.store.pool(), now);
        if self.adoption.is_pending() {
            return None;
        }
        self.client.next_poll(self.store.view().versions(), now)
    }

    /// The poll was sent; its answer comes under this number.
    pub(super) fn poll_sent(&mut self, call: CallId) {
        self.client.sent(call);
    }

    /// The time until the next poll is due.
    pub(super) fn pause(&self, now: Duration) -> Duration {
        if self.adoption.is_pending() { ADOPTION_PAUSE } else { self.client.pause(now) }
    }

    /// Takes the answer to a poll. Returns whether the poll succeeded.
    pub(super) fn finish_poll(&mut self, answer: Result<AgentAnswer, CallError>, now: Duration) -> bool {
        let Self { store, adoption, client, topology_log, .. } = self;
        let pool = store.pool();
        let view = store.view();
        let mut unread = None;
        let outcome = client.finish(answer, view.versions(), now, |newer| {
            match snapshot::follow(&view, newer.readings, now, || Ok(newer.bytes.to_vec())) {
                Ok(Some(newer)) => {
                    if !Arc::ptr_eq(view.topology(), newer.topology()) {
                        let (pool, version) = (newer.pool(), newer.versions().map_or(0, |it| it.topology));
                        topology_log.log(pool.name(), pool.endpoints().len(), version, now);
                    }
                    adoption.take(store.pool(), newer, now);
                }
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
                    log::warn!(
                        "no snapshot: {error}; the last one stays in use. Polls continue, and further failures are only counted, in \
                         snapshot_failures"
                    );
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
    pub(super) fn finish_report(&mut self, answer: Result<AgentAnswer, CallError>, now: Duration) {
        if let Some(problem) = self.reporter.finish(answer.map(|answer| answer.status), now) {
            log::warn!("a report failed: {problem}; the agent's page lacks picks until one succeeds");
        }
    }
}
