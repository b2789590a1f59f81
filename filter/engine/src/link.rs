//! The link to the metrics agent: the requests between a pool and its agents, for any shell: when each is
//! due, and the effect of its response.
//!
//! A shell sends the requests that are [due](Link::due), one after another or several at a time, and hands
//! each response to [`Link::finish`]. A link never has two requests of one kind in flight.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::period::Period;

use crate::agent::{
    AgentRequest, AgentResponse, CallError, CallId, NewSnapshot, PollError, PollOutcome, PrefixClient,
    PrefixOutcome, Reporter, SnapshotClient,
};
use crate::metrics::{SharingCounts, Totals};
use crate::prefix_caches::CachesUpdate;
use crate::proxy::Result;
use crate::record::{RecordClient, RecordOutbox};
use crate::sharing::{PeerLedger, SharingClient, SyncOutcome};
use crate::worker_pool::store::PoolStore;

/// Time for which another agent of the list gets the changes after a failure. Then the first agent is tried
/// again, because proxies share only through the same agent.
const FIRST_AGENT_AFTER: Duration = Duration::from_secs(5);

/// A pool that a link keeps up to date and reports on.
pub trait LinkedPool {
    /// The keeper of the view and the ledger.
    type Store: PoolStore;
    /// The ledger that shares changes with other proxies.
    type Peer: PeerLedger;

    /// The keeper of the view and the ledger.
    fn store(&self) -> &Self::Store;

    /// The ledger that shares changes with other proxies.
    fn peer(&mut self) -> &mut Self::Peer;

    /// The counts of all workers, for a report.
    fn totals(&self) -> Totals;

    /// The finished requests that are recorded.
    fn records(&self) -> &RecordOutbox;

    /// Whether a newer snapshot can be published now. While it cannot, no poll is due.
    fn can_publish(&mut self, now: Duration) -> bool {
        let _ = now;
        true
    }

    /// Publishes a snapshot for all workers.
    fn publish(&mut self, newer: NewSnapshot<'_>, now: Duration) -> Result<()>;

    /// Counts a snapshot that was published.
    fn count_snapshot(&mut self);

    /// Counts a poll that failed for this reason.
    fn count_failed_poll(&mut self, reason: &PollError);

    /// The agent has responded to a poll for cached prefixes, with an update if they have changed. Only a
    /// shell that starts these [polls](Link::start_prefixes) implements it.
    fn update_caches(&mut self, update: Option<&CachesUpdate>, now: Duration) {
        let _ = (update, now);
    }

    /// Counts messages that were exchanged with other proxies. `proxies` is the number of proxies whose
    /// changes arrive.
    fn count_sharing(&mut self, counts: SharingCounts, proxies: usize);
}

/// A request to send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Number of the request, which no other one of the link has.
    pub id: CallId,
    /// Index of the agent in the shell's list.
    pub agent: usize,
    /// The request.
    pub request: AgentRequest,
}

/// The subject of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Report,
    Record,
    Poll,
    Prefixes,
    Sync,
}

/// The requests between a pool and its agents: polls and reports, polls for cached prefixes, the exchange of
/// changes with other proxies, or all of them.
#[derive(Debug)]
pub struct Link {
    agents: usize,
    last_id: CallId,
    in_flight: Vec<(CallId, Kind)>,
    polls: Option<SnapshotPolls>,
    prefixes: Option<PrefixPolls>,
    sync: Option<Sync>,
}

#[derive(Debug)]
struct SnapshotPolls {
    client: SnapshotClient,
    reporter: Reporter,
    recorder: RecordClient,
    agent: usize,
}

#[derive(Debug)]
struct PrefixPolls {
    client: PrefixClient,
    agent: usize,
}

#[derive(Debug)]
struct Sync {
    client: SharingClient,
    agent: usize,
    /// Time for which another agent than the first is used.
    other_agent: Period,
}

impl Link {
    /// A link to this number of equal agents that sends nothing yet.
    pub fn new(agents: usize) -> Self {
        Self {
            agents: agents.max(1),
            last_id: 0,
            in_flight: Vec::new(),
            polls: None,
            prefixes: None,
            sync: None,
        }
    }

    /// Polls, reports and records from now on, all with one agent of the list until a poll fails, then with
    /// the next.
    pub fn start_polls(&mut self, client: SnapshotClient, reporter: Reporter, recorder: RecordClient) {
        self.polls = Some(SnapshotPolls { client, reporter, recorder, agent: 0 });
    }

    /// Polls for cached prefixes from now on, while the pool's rules read them, with one agent of the list
    /// until a poll fails, then with the next.
    pub fn start_prefixes(&mut self, client: PrefixClient) {
        self.prefixes = Some(PrefixPolls { client, agent: 0 });
    }

    /// Exchanges changes from now on, with the first agent of the list while it responds.
    pub fn start_sync(&mut self, client: SharingClient) {
        self.sync = Some(Sync { client, agent: 0, other_agent: Period::default() });
    }

    /// Exchanges no changes from now on, because another worker does. The response to a sync in flight is
    /// ignored.
    pub fn stop_sync(&mut self, pool: &mut impl LinkedPool) {
        if self.sync.take().is_some() {
            self.in_flight.retain(|(_, kind)| *kind != Kind::Sync);
            pool.peer().collect(false);
        }
    }

    /// The client that exchanges changes.
    pub fn sync(&self) -> Option<&SharingClient> {
        self.sync.as_ref().map(|sync| &sync.client)
    }

    /// The next request that is due. To be called until there is none, every 20 ms, and after a poll has
    /// succeeded.
    ///
    /// A request that the proxy refuses to send is finished with the error.
    pub fn due(&mut self, pool: &mut impl LinkedPool, now: Duration) -> Option<Call> {
        let due = self.polls.as_mut().and_then(|polls| polls.due(pool, now));
        let due = due.or_else(|| self.prefixes.as_mut().and_then(|prefixes| prefixes.due(pool, now)));
        let due = due.or_else(|| self.sync.as_mut().and_then(|sync| sync.due(pool, now)));
        self.send(due)
    }

    /// The message with recorded requests that is due; for a worker that leaves all other requests to another
    /// one.
    pub fn due_record(&mut self, pool: &impl LinkedPool, now: Duration) -> Option<Call> {
        let due = self.polls.as_mut().and_then(|polls| polls.due_record(pool, now));
        self.send(due)
    }

    fn send(&mut self, due: Option<(Kind, usize, AgentRequest)>) -> Option<Call> {
        let (kind, agent, request) = due?;
        self.last_id += 1;
        self.in_flight.push((self.last_id, kind));
        Some(Call { id: self.last_id, agent, request })
    }

    /// Takes the response to a request. Returns whether it is the response to a poll that succeeded: the next
    /// one may be due.
    pub fn finish(
        &mut self,
        id: CallId,
        response: core::result::Result<AgentResponse, CallError>,
        pool: &mut impl LinkedPool,
        now: Duration,
    ) -> bool {
        // Absent: the sync was stopped, or a defect has finished the request.
        let Some(index) = self.in_flight.iter().position(|(other, _)| *other == id) else { return false };
        let (_, kind) = self.in_flight.swap_remove(index);
        self.take(kind, response, pool, now)
    }

    /// Finishes the requests in flight, because a defect has interrupted the work on one of them. The next
    /// poll follows after a pause in any case, because the agent would send the same response again at once.
    pub fn fail(&mut self, pool: &mut impl LinkedPool, now: Duration) {
        let mut kinds: Vec<Kind> = self.in_flight.drain(..).map(|(_, kind)| kind).collect();
        for poll in [Kind::Poll, Kind::Prefixes] {
            if !kinds.contains(&poll) {
                kinds.push(poll);
            }
        }
        if let Some(prefixes) = &mut self.prefixes {
            prefixes.client.reset();
        }
        for kind in kinds {
            self.take(kind, Err(CallError::NoResponse("a defect of the picker".to_owned())), pool, now);
        }
    }

    /// The time until the next poll or sync may be due, if neither is in flight; the maximum for a link that
    /// sends nothing.
    pub fn pause(&self, now: Duration) -> Duration {
        let polls = self.polls.as_ref().map(|polls| polls.client.pause(now));
        let prefixes = self.prefixes.as_ref().map(|prefixes| prefixes.client.pause(now));
        let sync = self.sync.as_ref().map(|sync| sync.client.pause(now));
        polls.into_iter().chain(prefixes).chain(sync).min().unwrap_or(Duration::MAX)
    }

    fn take(
        &mut self,
        kind: Kind,
        response: core::result::Result<AgentResponse, CallError>,
        pool: &mut impl LinkedPool,
        now: Duration,
    ) -> bool {
        let Self { agents, polls, prefixes, sync, .. } = self;
        match kind {
            Kind::Report => {
                let status = response.map(|response| response.status);
                let problem = polls.as_mut().and_then(|polls| polls.reporter.finish(status, now));
                if let Some(problem) = problem {
                    log::warn!("a report failed: {problem}; the agent's page lacks picks until one succeeds");
                }
                false
            }
            Kind::Record => {
                let status = response.map(|response| response.status);
                let recorder = polls.as_mut().map(|polls| &mut polls.recorder);
                let problem = recorder.and_then(|recorder| recorder.finish(status, pool.records(), now));
                if let Some(problem) = problem {
                    log::warn!("recorded requests are lost, which record_dropped counts: {problem}");
                }
                false
            }
            Kind::Poll => polls.as_mut().is_some_and(|polls| polls.finish(response, *agents, pool, now)),
            Kind::Prefixes => {
                prefixes.as_mut().is_some_and(|prefixes| prefixes.finish(response, *agents, pool, now))
            }
            Kind::Sync => {
                if let Some(sync) = sync {
                    sync.finish(response, *agents, pool, now);
                }
                false
            }
        }
    }
}

impl SnapshotPolls {
    fn due_record(&mut self, pool: &impl LinkedPool, now: Duration) -> Option<(Kind, usize, AgentRequest)> {
        let message = self.recorder.next_message(pool.records(), now)?;
        Some((Kind::Record, self.agent, message))
    }

    fn due(&mut self, pool: &mut impl LinkedPool, now: Duration) -> Option<(Kind, usize, AgentRequest)> {
        let Self { reporter, agent, .. } = self;
        if let Some(report) = reporter.next_report(pool.store(), || pool.totals(), now) {
            return Some((Kind::Report, *agent, report));
        }
        if let Some(record) = self.due_record(pool, now) {
            return Some(record);
        }
        let Self { client, agent, .. } = self;
        if !pool.can_publish(now) {
            return None;
        }
        let poll = client.next_poll(pool.store().view().versions(), now)?;
        Some((Kind::Poll, *agent, poll))
    }

    fn finish(
        &mut self,
        response: core::result::Result<AgentResponse, CallError>,
        agents: usize,
        pool: &mut impl LinkedPool,
        now: Duration,
    ) -> bool {
        let have = Arc::clone(&*pool.store().view());
        match self.client.finish(response, &have, now, |newer| pool.publish(newer, now)) {
            PollOutcome::Published => pool.count_snapshot(),
            PollOutcome::Unchanged => {}
            PollOutcome::Failed { error, is_new } => {
                pool.count_failed_poll(&error);
                if is_new {
                    let effect = if have.versions().is_some() {
                        "the last one stays in use"
                    } else {
                        "there is none yet"
                    };
                    log::warn!(
                        "no snapshot: {error}; {effect}. Polls continue, and further failures are only counted, in snapshot_failures"
                    );
                }
                // Reports follow polls to the next agent: its page then has the picks.
                self.agent = (self.agent + 1) % agents;
                return false;
            }
        }
        true
    }
}

impl PrefixPolls {
    fn due(&mut self, pool: &mut impl LinkedPool, now: Duration) -> Option<(Kind, usize, AgentRequest)> {
        let is_needed = pool.store().view().topology().reads_caches();
        let poll = self.client.next_poll(is_needed, now)?;
        Some((Kind::Prefixes, self.agent, poll))
    }

    fn finish(
        &mut self,
        response: core::result::Result<AgentResponse, CallError>,
        agents: usize,
        pool: &mut impl LinkedPool,
        now: Duration,
    ) -> bool {
        match self.client.finish(response, now) {
            PrefixOutcome::Updated(update) => pool.update_caches(Some(&update), now),
            PrefixOutcome::Unchanged => pool.update_caches(None, now),
            PrefixOutcome::Failed { error, is_new } => {
                if is_new {
                    log::warn!(
                        "the caches of servers are not known: {error}; prompts are matched with earlier prompts. Polls continue"
                    );
                }
                self.agent = (self.agent + 1) % agents;
                return false;
            }
        }
        true
    }
}

impl Sync {
    fn due(&mut self, pool: &mut impl LinkedPool, now: Duration) -> Option<(Kind, usize, AgentRequest)> {
        let Self { client, agent, other_agent } = self;
        let sync = client.next_sync(pool.peer(), now);
        // Counted while no sync is due too, because peers also vanish between syncs.
        pool.count_sharing(client.take_counts(), client.peers(now));
        let sync = sync?;
        if !other_agent.contains(now) {
            *agent = 0;
        }
        Some((Kind::Sync, *agent, sync))
    }

    fn finish(
        &mut self,
        response: core::result::Result<AgentResponse, CallError>,
        agents: usize,
        pool: &mut impl LinkedPool,
        now: Duration,
    ) {
        match self.client.finish(response, pool.peer(), now) {
            SyncOutcome::Synced { passed_over } => {
                if let Some(reason) = passed_over {
                    log::warn!("{reason}; it is passed over");
                }
            }
            SyncOutcome::Off => {}
            SyncOutcome::Failed { error, is_new } => {
                if is_new {
                    log::warn!(
                        "changes are not shared with other proxies: {error}; syncs continue, and further failures are only counted, in \
                         sharing_failures"
                    );
                }
                self.agent = (self.agent + 1) % agents;
                self.other_agent = Period::new(now, FIRST_AGENT_AFTER);
            }
        }
    }
}
