//! The requests between a pool and its agents: when they are due, and what follows from their responses.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker_engine::agent::{
    AgentResponse, CallError, NewSnapshot, PollError, PollTimes, PrefixClient, Reporter, SnapshotClient,
};
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::ledger::LocalLedger;
use endpoint_picker_engine::link::{Call, Link, LinkedPool};
use endpoint_picker_engine::metrics::{SharingCounts, Totals};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::prefix_caches::CachesUpdate;
use endpoint_picker_engine::proxy::Result;
use endpoint_picker_engine::record::{RecordClient, RecordOutbox};
use endpoint_picker_engine::sharing::{Identity, LocalPeer, Positions, SharingClient};
use endpoint_picker_engine::testing::picker_config;
use endpoint_picker_engine::worker_pool::store::{OwnStore, PoolCopy};
use endpoint_picker_wire::changes::Feed;
use endpoint_picker_wire::prefixes::{Blocks, CachedPrefixes};
use endpoint_picker_wire::{CHANGES_FORMAT, Message, PREFIXES_FORMAT, v1};

use crate::fixture::{START, fewest_waiting, snapshot, topology};

const TIMES: PollTimes = PollTimes { wait: Duration::from_secs(5), timeout: Duration::from_secs(10) };

/// A pool in memory that decides by every snapshot at once.
struct MemoryPool {
    store: PoolCopy<LocalLedger>,
    peer: LocalPeer,
    records: RecordOutbox,
    is_busy: bool,
    published: u64,
    failed: u64,
    sharing: SharingCounts,
    /// The log and version of each update; `None`: nothing has changed.
    updates: Vec<Option<(u64, u64)>>,
}

impl MemoryPool {
    fn new() -> Self {
        let endpoint = Endpoint::new("e1".to_owned(), ([10, 0, 0, 1], 8000).into(), vec![]);
        let pool = Arc::new(Endpoints::new("p".to_owned(), vec![endpoint]).unwrap());
        Self {
            store: PoolCopy::default(),
            peer: LocalPeer::new(pool, &Pipeline::default(), Duration::ZERO),
            records: RecordOutbox::default(),
            is_busy: false,
            published: 0,
            failed: 0,
            sharing: SharingCounts::default(),
            updates: Vec::new(),
        }
    }
}

impl LinkedPool for MemoryPool {
    type Store = PoolCopy<LocalLedger>;
    type Peer = LocalPeer;

    fn store(&self) -> &Self::Store {
        &self.store
    }

    fn peer(&mut self) -> &mut LocalPeer {
        &mut self.peer
    }

    fn totals(&self) -> Totals {
        Totals::default()
    }

    fn records(&self) -> &RecordOutbox {
        &self.records
    }

    fn can_publish(&mut self, _now: Duration) -> bool {
        !self.is_busy
    }

    fn publish(&mut self, newer: NewSnapshot<'_>, _now: Duration) -> Result<()> {
        self.store.adopt(Arc::new(newer.view));
        Ok(())
    }

    fn count_snapshot(&mut self) {
        self.published += 1;
    }

    fn count_failed_poll(&mut self, _reason: &PollError) {
        self.failed += 1;
    }

    fn count_sharing(&mut self, counts: SharingCounts, _proxies: usize) {
        self.sharing += counts;
    }

    fn update_caches(&mut self, update: Option<&CachesUpdate>, _now: Duration) {
        self.updates.push(update.map(CachesUpdate::position));
    }
}

/// A link of a pool at a time that moves on.
struct Fixture {
    link: Link,
    pool: MemoryPool,
    now: Duration,
}

impl Fixture {
    fn new(agents: usize) -> Self {
        Self { link: Link::new(agents), pool: MemoryPool::new(), now: START }
    }

    fn polling(agents: usize) -> Self {
        let mut fixture = Self::new(agents);
        let reporter = Reporter::new("p", "envoy-1".to_owned(), Form::Native, 1);
        fixture.link.start_polls(SnapshotClient::new("p", TIMES), reporter, RecordClient::new("p"));
        fixture
    }

    fn sharing(agents: usize) -> Self {
        let mut fixture = Self::new(agents);
        fixture.start_sync();
        fixture
    }

    fn start_sync(&mut self) {
        let identity = Identity { sender: 1, epoch: 1 };
        let client = SharingClient::new("p", "envoy-1".to_owned(), identity, Positions::default());
        self.link.start_sync(client);
    }

    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    /// All requests that are due.
    fn due(&mut self) -> Vec<Call> {
        let Self { link, pool, now } = self;
        core::iter::from_fn(|| link.due(pool, *now)).collect()
    }

    fn only(&mut self) -> Call {
        let mut due = self.due();
        assert_eq!(due.len(), 1, "{due:?}");
        due.remove(0)
    }

    fn respond(&mut self, call: &Call, status: u16, body: Vec<u8>) -> bool {
        self.link.finish(call.id, Ok(AgentResponse { status, body }), &mut self.pool, self.now)
    }

    fn fail(&mut self, call: &Call) {
        let reset = Err(CallError::NoResponse("reset".to_owned()));
        assert!(!self.link.finish(call.id, reset, &mut self.pool, self.now));
    }
}

/// A snapshot with three endpoints.
fn first_snapshot() -> Vec<u8> {
    let topology = Some(topology(&[1, 2, 3], fewest_waiting()));
    v1::Snapshot { topology, ..snapshot(&[0, 0, 0]) }.encode_to_vec()
}

fn empty_feed() -> Vec<u8> {
    Feed { format: CHANGES_FORMAT, ..Feed::default() }.encode_to_vec()
}

fn subject(call: &Call) -> &str {
    let path = call.request.path.split('?').next().unwrap();
    path.rsplit('/').next().unwrap()
}

#[test]
fn polls_follow_each_other_and_reports_begin_with_the_first_snapshot() {
    let mut fixture = Fixture::polling(1);
    let poll = fixture.only();
    assert_eq!(subject(&poll), "snapshot");
    fixture.pass(5_000);
    assert_eq!(fixture.due(), [], "one poll in flight");
    assert!(fixture.respond(&poll, 200, first_snapshot()), "the next one may be due");
    let due = fixture.due();
    assert_eq!(due.iter().map(subject).collect::<Vec<_>>(), ["report", "snapshot"]);
    assert!(!fixture.respond(&due[0], 204, vec![]));
    fixture.pass(5);
    assert!(fixture.respond(&due[1], 204, vec![]));
    assert_eq!(fixture.due(), [], "polls are 20 ms apart");
    assert_eq!(fixture.link.pause(fixture.now), Duration::from_millis(15));
    fixture.pass(15);
    assert_eq!(subject(&fixture.only()), "snapshot", "reports are a second apart");
    fixture.pass(1_000);
    assert_eq!(subject(&fixture.only()), "report");
    assert_eq!((fixture.pool.published, fixture.pool.failed), (1, 0));
}

#[test]
fn a_failed_poll_is_followed_by_a_pause_and_the_next_agent() {
    let mut fixture = Fixture::polling(2);
    let poll = fixture.only();
    fixture.fail(&poll);
    assert_eq!(fixture.due(), []);
    fixture.pass(199);
    assert_eq!(fixture.due(), []);
    fixture.pass(1);
    let second = fixture.only();
    assert_eq!((poll.agent, second.agent), (0, 1));
    fixture.respond(&second, 200, first_snapshot());
    fixture.pass(20);
    let due = fixture.due();
    assert!(due.len() == 2 && due.iter().all(|call| call.agent == 1), "reports go there too: {due:?}");
    for call in &due {
        fixture.respond(call, 500, b"broken".to_vec());
    }
    fixture.pass(1_000);
    assert!(fixture.due().iter().all(|call| call.agent == 0), "after the last agent the first");
    assert_eq!(fixture.pool.failed, 2);
}

#[test]
fn no_poll_is_due_while_a_snapshot_waits() {
    let mut fixture = Fixture::polling(1);
    fixture.pool.is_busy = true;
    assert_eq!(fixture.due(), []);
    fixture.pool.is_busy = false;
    assert_eq!(subject(&fixture.only()), "snapshot");
}

#[test]
fn changes_return_to_the_first_agent_five_seconds_after_a_failure() {
    let mut fixture = Fixture::sharing(2);
    let exchange = fixture.only();
    assert_eq!((subject(&exchange), exchange.agent), ("changes", 0));
    fixture.fail(&exchange);
    fixture.pass(200);
    for _ in 0..48 {
        let exchange = fixture.only();
        assert_eq!(exchange.agent, 1);
        fixture.respond(&exchange, 200, empty_feed());
        fixture.pass(100);
        assert!(fixture.now < START + Duration::from_millis(5_001));
    }
    fixture.pass(250);
    assert_eq!(fixture.only().agent, 0);
    fixture.due();
    assert_eq!(fixture.pool.sharing.failed, 1);
}

#[test]
fn a_response_has_no_effect_after_the_stop() {
    let mut fixture = Fixture::sharing(1);
    let exchange = fixture.only();
    fixture.link.stop_sync(&mut fixture.pool);
    assert_eq!(fixture.due(), []);
    fixture.start_sync();
    let next = fixture.only();
    assert_ne!(exchange.id, next.id);
    fixture.respond(&exchange, 404, vec![]);
    fixture.pass(1_000);
    assert_eq!(fixture.due(), [], "the second exchange is in flight");
    fixture.respond(&next, 200, empty_feed());
    fixture.pass(250);
    assert_eq!(subject(&fixture.only()), "changes");
}

#[test]
fn a_defect_ends_what_is_in_flight_and_the_next_poll_waits() {
    let mut fixture = Fixture::polling(1);
    fixture.only();
    fixture.link.fail(&mut fixture.pool, fixture.now);
    assert_eq!(fixture.due(), []);
    fixture.pass(200);
    assert_eq!(subject(&fixture.only()), "snapshot");
    assert_eq!(fixture.pool.failed, 1);
}

/// A policy whose rules read the caches of servers.
fn precise() -> v1::Policy {
    let config = picker_config(&[("precise-prefix-cache-scorer", None), ("max-score-picker", None)]);
    v1::Policy { picker_config: Some(config), ..v1::Policy::default() }
}

fn prefixes(log: u64, version: u64, more: bool) -> Vec<u8> {
    CachedPrefixes { format: PREFIXES_FORMAT, log, version, more, ..CachedPrefixes::default() }
        .encode_to_vec()
}

#[test]
fn cached_prefixes_are_polled_while_the_rules_read_them() {
    let mut fixture = Fixture::new(2);
    fixture.link.start_prefixes(PrefixClient::new("p", TIMES));
    assert_eq!(fixture.due(), [], "before the first snapshot");
    let adopt = |fixture: &mut Fixture, policy| {
        let topology = Arc::new(Topology::compile(topology(&[1], policy)).unwrap());
        fixture.pool.store.adopt(Arc::new(PoolView::new(topology, snapshot(&[0]), START)));
        fixture.pass(1_000);
    };
    adopt(&mut fixture, fewest_waiting());
    assert_eq!(fixture.due(), []);
    adopt(&mut fixture, precise());
    let first = fixture.only();
    assert_eq!((first.request.path.as_str(), first.agent), ("/v1/pools/p/cached-prefixes?wait_ms=5000", 0));
    fixture.pass(5_000);
    assert_eq!(fixture.due(), [], "one poll in flight");
    assert!(fixture.respond(&first, 200, prefixes(7, 3, true)));
    let second = fixture.only();
    assert_eq!(second.request.path, "/v1/pools/p/cached-prefixes?wait_ms=5000&log=7&version=3");
    assert!(fixture.respond(&second, 200, prefixes(7, 4, false)));
    assert_eq!(fixture.due(), [], "polls are 50 ms apart, unless there is more");
    fixture.pass(50);
    let third = fixture.only();
    assert!(fixture.respond(&third, 204, vec![]));
    assert_eq!(fixture.pool.updates, [Some((7, 3)), Some((7, 4)), None]);

    fixture.pass(50);
    let refused = fixture.only();
    assert!(!fixture.respond(&refused, 404, b"the agent does not follow events".to_vec()));
    fixture.pass(999);
    assert_eq!(fixture.due(), []);
    fixture.pass(1);
    let other = fixture.only();
    assert_eq!(other.agent, 1);
    fixture.respond(&other, 200, prefixes(8, 1, false));
    assert_eq!(fixture.pool.updates.last(), Some(&Some((8, 1))), "another agent has another log");
    fixture.link.fail(&mut fixture.pool, fixture.now);
    fixture.pass(999);
    assert_eq!(fixture.due(), [], "a defect that occurs at each update has a pause");
    fixture.pass(1);
    let whole = fixture.only();
    assert_eq!(whole.request.path, "/v1/pools/p/cached-prefixes?wait_ms=5000", "everything is needed");
    assert!(fixture.respond(&whole, 204, vec![]));
    adopt(&mut fixture, fewest_waiting());
    assert_eq!(fixture.due(), [], "the rules do not read them any more");
}

#[test]
fn an_update_that_cannot_be_read_is_not_applied() {
    let mut fixture = Fixture::new(1);
    fixture.link.start_prefixes(PrefixClient::new("p", TIMES));
    let topology = Arc::new(Topology::compile(topology(&[1], precise())).unwrap());
    fixture.pool.store.adopt(Arc::new(PoolView::new(topology, snapshot(&[0]), START)));
    let blocks = Blocks { keys: vec![1], ..Blocks::default() };
    let irregular =
        CachedPrefixes { format: PREFIXES_FORMAT, removed: Some(blocks), ..CachedPrefixes::default() };
    let unknown = CachedPrefixes { format: PREFIXES_FORMAT + 1, ..CachedPrefixes::default() };
    for body in [irregular.encode_to_vec(), unknown.encode_to_vec(), b"x".to_vec()] {
        let poll = fixture.only();
        assert!(!fixture.respond(&poll, 200, body));
        fixture.pass(1_000);
    }
    assert_eq!(fixture.pool.updates, []);
}
