//! When the agent is polled, and what its responses lead to.

use core::cell::RefCell;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::agent::{
    AgentRequest, AgentResponse, CallError, PollError, PollOutcome, PollTimes, SnapshotClient,
};
use endpoint_picker_engine::pool_view::{PoolView, TopologyRefusal, Versions};
use endpoint_picker_engine::proxy::ProxyError;
use endpoint_picker_wire::{FORMAT, Message, OTHER_FORMAT_STATUS, v1};

use crate::fixture::{START, fewest_waiting, snapshot, topology};

const TIMES: PollTimes = PollTimes { wait: Duration::from_secs(5), timeout: Duration::from_secs(10) };
const HAVE: Option<Versions> = Some(Versions { topology: 1, readings: 1 });

/// A snapshot with a topology of this version.
fn with_topology(version: u64, topology: v1::Topology) -> v1::Snapshot {
    v1::Snapshot { topology_version: version, topology: Some(topology), ..snapshot(&[0, 0, 0]) }
}

fn unusable() -> v1::Topology {
    let plugin =
        v1::Plugin { name: "x".to_owned(), r#type: "magic-scorer".to_owned(), parameters: "{}".to_owned() };
    let picker_config = v1::PickerConfig { plugins: vec![plugin], ..v1::PickerConfig::default() };
    topology(&[1], v1::Policy { picker_config: Some(picker_config), ..v1::Policy::default() })
}

/// A client with the snapshots that it published.
struct Poller {
    client: SnapshotClient,
    published: RefCell<Vec<(Vec<u8>, u64, bool)>>,
    refuses: bool,
}

impl Poller {
    fn new() -> Self {
        Self { client: SnapshotClient::new("p", TIMES), published: RefCell::default(), refuses: false }
    }

    fn poll(&mut self, have: Option<Versions>, now: Duration) -> Option<AgentRequest> {
        let request = self.client.next_poll(have, now)?;
        Some(request)
    }

    fn finish(
        &mut self,
        status: Option<u16>,
        body: Vec<u8>,
        have: Option<Versions>,
        now: Duration,
    ) -> PollOutcome {
        let answer = status.map(|status| AgentResponse { status, body });
        let answer = answer.ok_or_else(|| CallError::NoResponse("reset".to_owned()));
        self.client.finish(answer, &view_of(have), now, |snapshot| {
            if self.refuses {
                return Err(ProxyError { call: "set_shared_data", status: "InternalFailure".to_owned() });
            }
            let version = snapshot.view.versions().expect("it is a snapshot's").readings;
            self.published.borrow_mut().push((snapshot.bytes.to_vec(), version, snapshot.has_topology));
            Ok(())
        })
    }

    /// A poll that gets this snapshot.
    fn take(&mut self, snapshot: &v1::Snapshot, have: Option<Versions>, now: Duration) -> PollOutcome {
        self.poll(have, now).expect("a poll");
        self.finish(Some(200), snapshot.encode_to_vec(), have, now)
    }
}

/// A view of these versions.
fn view_of(versions: Option<Versions>) -> Arc<PoolView> {
    let Some(Versions { topology, readings }) = versions else { return Arc::default() };
    let snapshot =
        v1::Snapshot { topology_version: topology, readings_version: readings, ..v1::Snapshot::default() };
    Arc::new(PoolView::new(Arc::default(), snapshot, START))
}

fn ms(milliseconds: u64) -> Duration {
    START + Duration::from_millis(milliseconds)
}

fn error(outcome: PollOutcome) -> PollError {
    match outcome {
        PollOutcome::Failed { error, .. } => error,
        PollOutcome::Published | PollOutcome::Unchanged => panic!("{outcome:?}"),
    }
}

#[test]
fn the_slash_of_a_pool_with_a_namespace_is_encoded_in_the_path() {
    let poll = SnapshotClient::new("inference/chat", TIMES).next_poll(None, START).unwrap();
    assert_eq!(poll.path, "/v1/pools/inference%2Fchat/snapshot?wait_ms=5000");
}

#[test]
fn a_poll_names_the_versions_that_the_worker_has() {
    let mut poller = Poller::new();
    let first = poller.poll(None, START).unwrap();
    assert_eq!(first.path, "/v1/pools/p/snapshot?wait_ms=5000");
    assert_eq!((first.body, first.timeout), (None, Duration::from_secs(10)));
    poller.finish(Some(204), vec![], None, START);
    let have = Some(Versions { topology: 3, readings: 4 });
    let next = poller.poll(have, ms(100)).unwrap();
    assert_eq!(next.path, "/v1/pools/p/snapshot?wait_ms=5000&topology=3&readings=4");
}

#[test]
fn one_poll_is_in_flight_at_a_time_and_the_next_begins_after_20_ms() {
    let mut poller = Poller::new();
    poller.poll(None, START).unwrap();
    assert_eq!(poller.poll(None, ms(9_000)), None, "one is in flight");
    poller.finish(Some(204), vec![], None, ms(9_000));
    poller.poll(None, ms(9_000)).unwrap();
    assert!(matches!(poller.finish(Some(204), vec![], None, ms(9_005)), PollOutcome::Unchanged));
    assert_eq!(poller.poll(None, ms(9_019)), None);
    assert!(poller.poll(None, ms(9_020)).is_some());
}

#[test]
fn a_poll_that_failed_is_repeated_after_200_ms_and_the_same_error_is_new_once() {
    let mut poller = Poller::new();
    for (status, body, now, expected, expected_new) in [
        (None, "", 0, "the agent did not answer: reset", true),
        (None, "", 1_000, "the agent did not answer: reset", false),
        (Some(404), "no such pool", 2_000, r#"the agent answered 404: "no such pool""#, true),
        (Some(200), "x", 3_000, "the snapshot is malformed", true),
    ] {
        poller.poll(HAVE, ms(now)).unwrap();
        let outcome = poller.finish(status, body.as_bytes().to_vec(), HAVE, ms(now + 50));
        let PollOutcome::Failed { error, is_new } = outcome else { panic!("{outcome:?}") };
        assert!(error.to_string().starts_with(expected), "{error}");
        assert_eq!(is_new, expected_new, "{error}");
        assert_eq!(poller.poll(HAVE, ms(now + 249)), None);
    }
    poller.poll(HAVE, ms(4_000)).unwrap();
    poller.finish(Some(204), vec![], HAVE, ms(4_000));
    for (now, expected_new) in [(5_000, false), (65_000, true)] {
        poller.poll(HAVE, ms(now)).unwrap();
        let again = poller.finish(Some(200), b"x".to_vec(), HAVE, ms(now));
        let PollOutcome::Failed { is_new, .. } = again else { panic!("{again:?}") };
        assert_eq!(
            is_new, expected_new,
            "a success between, as of another agent, changes nothing; a minute does"
        );
    }
}

#[test]
fn a_poll_that_the_proxy_refuses_to_send_is_repeated_after_200_ms() {
    let mut poller = Poller::new();
    assert!(poller.poll(None, START).is_some());
    assert_eq!(poller.poll(None, ms(500)), None, "one is in flight");
    let outcome = poller.finish(None, vec![], None, START);
    assert!(matches!(outcome, PollOutcome::Failed { .. }), "{outcome:?}");
    assert_eq!(poller.poll(None, ms(199)), None);
    assert!(poller.poll(None, ms(200)).is_some());
}

#[test]
fn a_refusals_body_is_cut() {
    let mut poller = Poller::new();
    poller.poll(None, START).unwrap();
    let error = error(poller.finish(Some(500), vec![b'x'; 10_000], None, START));
    assert!(matches!(&error, PollError::Status { status: 500, body } if body.len() == 256), "{error:?}");
}

#[test]
fn an_agent_of_another_format_is_told_from_all_other_failures() {
    let mut poller = Poller::new();
    let snapshot = v1::Snapshot { format: FORMAT + 1, ..snapshot(&[0]) }.encode_to_vec();
    let mut is_of_other_format = |status: Option<u16>, body: &[u8]| {
        let error = error(poller.finish(status, body.to_vec(), None, START));
        (error.is_of_other_format(), error)
    };
    for (status, body) in
        [(Some(200), snapshot.as_slice()), (Some(OTHER_FORMAT_STATUS), b"update the older side")]
    {
        let (is_other, error) = is_of_other_format(status, body);
        assert!(is_other, "{error}");
    }
    let others =
        [400, 401, 403, 404, 415, 500, 503].map(|status| (Some(status), &b"update the older side"[..]));
    for (status, body) in others.into_iter().chain([(None, &b""[..]), (Some(200), b"x")]) {
        let (is_other, error) = is_of_other_format(status, body);
        assert!(!is_other, "{error}");
    }
}

#[test]
fn a_snapshot_is_published_as_it_came() {
    let mut poller = Poller::new();
    let full = with_topology(1, topology(&[1, 2, 3], fewest_waiting()));
    assert!(matches!(poller.take(&full, None, START), PollOutcome::Published));
    let readings = v1::Snapshot { readings_version: 2, ..snapshot(&[0, 0, 0]) };
    assert!(matches!(poller.take(&readings, HAVE, ms(100)), PollOutcome::Published));
    let expected = [(full.encode_to_vec(), 1, true), (readings.encode_to_vec(), 2, false)];
    assert_eq!(poller.published.take(), expected);
}

#[test]
fn readings_of_endpoints_that_the_worker_does_not_have_are_an_error() {
    let mut poller = Poller::new();
    for have in [None, Some(Versions { topology: 9, readings: 1 })] {
        let outcome = poller.take(&snapshot(&[0]), have, ms(have.map_or(0, |_| 1_000)));
        assert!(matches!(error(outcome), PollError::NoTopology));
    }
    assert!(poller.published.take().is_empty());
}

#[test]
fn a_refused_topology_is_named_in_the_next_polls_until_another_one_comes() {
    let mut poller = Poller::new();
    let refused = error(poller.take(&with_topology(5, unusable()), HAVE, START));
    assert!(matches!(&refused, PollError::Refused(TopologyRefusal::Configuration(_))), "{refused:?}");
    assert!(refused.to_string().contains("magic-scorer"), "{refused}");
    let next = poller.poll(HAVE, ms(1_000)).unwrap();
    assert_eq!(next.path, "/v1/pools/p/snapshot?wait_ms=5000&topology=5&readings=1");
    // The agent sends readings of it without the topology.
    let readings = v1::Snapshot { topology_version: 5, readings_version: 2, ..snapshot(&[0]) };
    let outcome = poller.finish(Some(200), readings.encode_to_vec(), HAVE, ms(1_000));
    assert!(matches!(error(outcome), PollError::Refused(_)));
    assert!(poller.published.borrow().is_empty());
    // A rollback.
    let good = with_topology(6, topology(&[1, 2, 3], fewest_waiting()));
    assert!(matches!(poller.take(&good, HAVE, ms(2_000)), PollOutcome::Published));
    let have = Some(Versions { topology: 6, readings: 1 });
    assert!(poller.poll(have, ms(3_000)).unwrap().path.contains("&topology=6&"));
}

#[test]
fn endpoints_that_are_not_a_pool_are_refused() {
    let mut poller = Poller::new();
    let twice = with_topology(5, topology(&[1, 1], fewest_waiting()));
    let refused = error(poller.take(&twice, None, START));
    assert!(matches!(refused, PollError::Refused(TopologyRefusal::Endpoints(_))), "{refused:?}");
}

#[test]
fn a_snapshot_that_cannot_be_published_is_a_failed_poll() {
    let mut poller = Poller::new();
    poller.refuses = true;
    let full = with_topology(1, topology(&[1], fewest_waiting()));
    let error = error(poller.take(&full, None, START));
    assert_eq!(error.to_string(), "the proxy refused set_shared_data: InternalFailure");
    assert!(core::error::Error::source(&error).is_some());
}

#[test]
fn a_clock_that_is_set_back_does_not_stop_the_polls() {
    let mut poller = Poller::new();
    poller.poll(None, START).unwrap();
    poller.finish(None, vec![], None, START);
    assert!(poller.poll(None, Duration::ZERO).is_some());
}

#[test]
fn an_answer_of_the_proxys_own_is_none_of_the_agents() {
    let answer = |status, body: &str| AgentResponse { status, body: body.as_bytes().to_vec() };
    let own = answer(503, "no healthy upstream").of_agent(false).unwrap_err();
    assert_eq!(own.to_string(), "the agent did not answer: no healthy upstream");
    for (given, is_dated) in [
        (answer(503, "there are no pools yet"), true),
        (answer(404, "no such pool"), false),
        (answer(204, ""), false),
    ] {
        assert_eq!(given.clone().of_agent(is_dated), Ok(given));
    }
    assert_eq!(
        CallError::NoCluster("agnet".to_owned()).to_string(),
        r#"the proxy has no cluster "agnet" (agentCluster)"#
    );
}
