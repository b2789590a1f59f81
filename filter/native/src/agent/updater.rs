//! Keeps a pool up to date: takes snapshots in, and reports on the pool.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::agent::{
    AgentAnswer, AgentRequest, CallError, CallId, PollOutcome, PollTimes, Reporter, SnapshotClient,
    TopologyLog,
};
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::pool_store::PoolStore;
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_engine::snapshot;

use crate::shared::{SharedPool, SharedStore};
use crate::watchers;

/// The maximum time for which a snapshot with other endpoints waits until clusters have them as hosts.
const HOSTS_WAIT: Duration = Duration::from_millis(250);

/// Times of a poll. The wait is short, so that a poll that hangs is soon known as such, and the next agent is asked.
pub(super) const POLL: PollTimes =
    PollTimes { wait: Duration::from_millis(250), timeout: Duration::from_millis(1250) };

/// The next requests to the agent for one pool, and what their answers change.
#[derive(Debug)]
pub(crate) struct Updater {
    /// The pool's name in configurations; a snapshot may have another, with its namespace.
    name: Arc<str>,
    store: SharedStore,
    client: SnapshotClient,
    reporter: Reporter,
    topology_log: TopologyLog,
    waits_for_hosts: bool,
}

impl Updater {
    /// `proxy` is the proxy's name in reports, and `generation` is of this updater alone. On a thread of its own it waits until clusters
    /// have new endpoints as hosts.
    pub(crate) fn new(
        name: &str,
        store: SharedStore,
        proxy: String,
        generation: u64,
        waits_for_hosts: bool,
    ) -> Self {
        Self {
            name: name.into(),
            store,
            client: SnapshotClient::new(name, POLL),
            reporter: Reporter::new(name, proxy, Form::Native, generation),
            topology_log: TopologyLog::default(),
            waits_for_hosts,
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
        let Self { name, store, client, topology_log, waits_for_hosts, .. } = self;
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
                    adopt(name, pool, newer, *waits_for_hosts);
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

/// Decides by a newer view from now on; with `waits_for_hosts` not before all clusters of the pool have its endpoints as hosts.
fn adopt(name: &str, pool: &SharedPool, newer: PoolView, waits_for_hosts: bool) {
    let newer = Arc::new(newer);
    let older = pool.view();
    if Arc::ptr_eq(older.topology(), newer.topology()) {
        pool.adopt(newer);
        return;
    }
    // Before the first snapshot there is no host that requests could go to meanwhile.
    if waits_for_hosts && older.versions().is_some() {
        pool.announce(newer.pool());
        watchers::wait(name, watchers::notify(name), HOSTS_WAIT);
    }
    pool.adopt(newer);
    pool.count_topology();
    watchers::notify(name);
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;

    use endpoint_picker_engine::pool_view::Topology;
    use endpoint_picker_wire::v1;

    use super::*;
    use crate::watchers::Watcher;

    #[test]
    fn clusters_know_new_endpoints_before_decisions_use_them() {
        let view = |address: &str| {
            let endpoint =
                v1::Endpoint { name: address.to_owned(), address: address.to_owned(), labels: vec![] };
            let message =
                v1::Topology { pool: "ns/updater-1".to_owned(), endpoints: vec![endpoint], policy: None };
            let topology = Topology::compile(message).unwrap();
            PoolView::new(topology.into(), v1::Snapshot::default(), Duration::from_secs(1))
        };
        let (older, newer) = ("10.0.0.1:80", "10.0.0.2:80");
        let pool = Arc::<SharedPool>::default();
        adopt("updater-1", &pool, view(older), true);
        let (send, receive) = channel();
        let woken = Arc::clone(&pool);
        let wake = move || {
            let known: Vec<_> = woken.described().iter().map(|pool| pool.endpoints()[0].address()).collect();
            let _ = send.send((woken.view().pool().endpoints()[0].address(), known));
        };
        let watcher = Watcher::new(&"updater-1".into(), Arc::new(wake));
        let (adopting, next) = (Arc::clone(&pool), view(newer));
        let adopting = thread::spawn(move || adopt("updater-1", &adopting, next, true));
        let [older, newer] = [older, newer].map(|address| address.parse().unwrap());
        assert_eq!(receive.recv().unwrap(), (older, vec![newer, older]));
        watcher.follow(watchers::last_change());
        assert_eq!(receive.recv().unwrap(), (newer, vec![newer]));
        adopting.join().unwrap();
    }
}
