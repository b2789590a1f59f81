//! Snapshots that a worker publishes and all read.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::state::ChangedReadings;
use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::pool_view::snapshot::{self, ReadError};
use endpoint_picker_engine::pool_view::{PoolView, Topology, TopologyRefusal, Versions};
use endpoint_picker_engine::proxy::{ProxyError, Result};
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::{Bytes, Message, v1};

use crate::fixture::{Fixture, START, TEXT, address, fewest_waiting, snapshot, topology};

const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;

/// Reads a snapshot for a view. The newest topology is of version 1 and has two endpoints.
fn read(view: &Arc<PoolView>, snapshot: &v1::Snapshot) -> core::result::Result<Option<PoolView>, ReadError> {
    let topology = Some(topology(&[1, 2], fewest_waiting()));
    let carrier = v1::Snapshot { topology, ..crate::fixture::snapshot(&[]) };
    snapshot::read(view, snapshot.encode_to_vec().into(), START, || Ok(carrier.encode_to_vec()))
}

#[test]
fn a_snapshot_gives_a_view() {
    let view = read(&Arc::default(), &snapshot(&[0, 1])).unwrap().unwrap();
    assert_eq!(view.versions(), Some(Versions { topology: 1, readings: 1 }));
    assert_eq!((view.pool().as_slice().len(), view.readings().len(), view.arrived()), (2, 2, START));
}

#[test]
fn newer_readings_keep_the_compiled_topology() {
    let first = Arc::new(read(&Arc::default(), &snapshot(&[0, 1])).unwrap().unwrap());
    let newer = v1::Snapshot { readings_version: 2, ..snapshot(&[5, 0]) };
    let topology = || -> Result<Vec<u8>> { panic!("the topology is known") };
    let next = snapshot::read(&first, newer.encode_to_vec().into(), START, topology).unwrap().unwrap();
    assert!(Arc::ptr_eq(first.topology(), next.topology()));
    assert_eq!(next.readings()[0].waiting, Some(5));
}

#[test]
fn of_newer_readings_those_that_differ_are_changed() {
    let topology = Arc::new(Topology::compile(topology(&[1, 2, 3], fewest_waiting())).unwrap());
    let message = |readings: [(u64, u64); 3]| {
        let reading = |(age_ms, waiting)| v1::Reading {
            age_ms: Some(age_ms),
            waiting: Some(waiting),
            ..v1::Reading::default()
        };
        v1::Snapshot { readings: readings.map(reading).into(), ..snapshot(&[]) }
    };
    let next = |view: &Arc<PoolView>, readings, at_ms| {
        let (bytes, arrived) = (message(readings).encode_to_vec(), START + Duration::from_millis(at_ms));
        let view = snapshot::read(view, bytes.into(), arrived, || panic!("the topology is known")).unwrap();
        Arc::new(view.unwrap())
    };
    let first = Arc::new(PoolView::new(topology, message([(0, 5), (0, 6), (0, 7)]), START));
    let second = next(&first, [(40, 5), (40, 6), (40, 7)], 40);
    assert_eq!(
        second.changed_since(&first),
        ChangedReadings::At(&[0, 1, 2]),
        "the first did not arrive as bytes"
    );
    // The second reading is newer with the same values, and the third has others.
    let third = next(&second, [(90, 5), (10, 6), (20, 9)], 91);
    assert_eq!(third.changed_since(&second), ChangedReadings::At(&[1, 2]));
    assert_eq!(third.changed_since(&first), ChangedReadings::All);
    let values = third.readings().iter().map(|reading| (reading.waiting.unwrap(), reading.updated.unwrap()));
    let expected =
        [(5, 0), (6, 81), (9, 71)].map(|(waiting, ms)| (waiting, START + Duration::from_millis(ms)));
    assert!(values.eq(expected), "{:?}", third.readings());
}

#[test]
fn a_view_has_the_marks_of_an_older_one_until_a_server_restarts() {
    let view = |marks: [Option<u64>; 2], topology: &Arc<Topology>| {
        let reading = |cached_since_ms| v1::Reading { cached_since_ms, ..v1::Reading::default() };
        let snapshot = v1::Snapshot { readings: marks.map(reading).into(), ..snapshot(&[]) };
        Arc::new(PoolView::new(Arc::clone(topology), snapshot, START))
    };
    let compiled = || Arc::new(Topology::compile(topology(&[1, 2], fewest_waiting())).unwrap());
    let topology = compiled();
    let first = view([Some(1), None], &topology);
    assert!(view([Some(1), None], &topology).has_marks_of(&first));
    assert!(!view([Some(1), Some(2)], &topology).has_marks_of(&first));
    assert!(!view([Some(1), None], &compiled()).has_marks_of(&first), "of other endpoints");
}

#[test]
fn between_two_writes_of_the_worker_that_publishes_there_is_no_view() {
    let newer = v1::Snapshot { topology_version: 2, ..snapshot(&[0]) };
    assert!(read(&Arc::default(), &newer).unwrap().is_none());
    let bytes = newer.encode_to_vec();
    let without = snapshot::read(&Arc::default(), bytes.clone().into(), START, || Ok(bytes));
    assert!(without.unwrap().is_none());
}

#[test]
fn a_snapshot_that_cannot_be_used_is_an_error_with_its_reason() {
    let view = Arc::default();
    let bytes = Bytes::from(snapshot(&[0]).encode_to_vec());
    let malformed = snapshot::read(&view, Bytes::from_static(b"x"), START, || Ok(vec![])).unwrap_err();
    assert!(matches!(malformed, ReadError::Malformed(_)), "{malformed}");
    let empty = snapshot::read(&view, bytes.clone(), START, || Ok(vec![])).unwrap_err();
    assert!(matches!(empty, ReadError::Malformed(_)), "{empty}");
    let twice = v1::Snapshot { topology: Some(topology(&[1, 1], fewest_waiting())), ..snapshot(&[]) };
    let refused = snapshot::read(&view, bytes.clone(), START, || Ok(twice.encode_to_vec())).unwrap_err();
    assert!(matches!(refused, ReadError::Refused(TopologyRefusal::Endpoints(_))), "{refused}");
    let refusal = ProxyError { call: "get_shared_data", status: "InternalFailure".to_owned() };
    let failed = snapshot::read(&view, bytes, START, || Err(refusal)).unwrap_err();
    assert_eq!(failed.to_string(), "the proxy refused get_shared_data: InternalFailure");
    for error in [malformed, empty, refused, failed] {
        assert!(
            core::error::Error::source(&error).is_some_and(|source| source.to_string() == error.to_string())
        );
    }
}

#[test]
fn a_pool_follows_its_endpoints_and_keeps_the_loads_of_those_that_stay() {
    let mut fixture = Fixture::new();
    let first = fixture.routed();
    let newer = topology(&[3, 1], fewest_waiting());
    let newer = Arc::new(Topology::compile(newer).unwrap());
    let view = |waiting: &[u64]| PoolView::new(newer.clone(), snapshot(waiting), START).into();
    assert!(fixture.pool.adopt(view(&[0, 5])));
    assert_eq!(fixture.in_flight(), [0, 1]);
    assert_eq!(fixture.post(TEXT, &[], BODY).destination(), Some(address(3).as_str()));
    assert!(!fixture.pool.adopt(view(&[5, 0])), "only the readings are newer");
    assert_eq!(fixture.post(TEXT, &[], BODY).destination(), Some(address(1).as_str()));
    assert_eq!(fixture.pool.view().readings().len(), 2);
    drop(first);
}

#[test]
fn a_shadow_that_cannot_be_used_is_left_out() {
    let plugin =
        v1::Plugin { name: "x".to_owned(), r#type: "magic-scorer".to_owned(), parameters: "{}".to_owned() };
    let shadow = v1::PickerConfig { plugins: vec![plugin], ..v1::PickerConfig::default() };
    let policy = v1::Policy { shadow_config: Some(shadow), ..fewest_waiting() };
    let mut fixture = Fixture::with_policy(&serde_json::json!({}), policy);
    assert!(fixture.pool.view().topology().shadow.is_none());
    assert_eq!(fixture.post(TEXT, &[], BODY).destination(), Some(address(1).as_str()));
}

#[test]
fn a_server_that_restarted_is_observed() {
    let mut fixture = Fixture::without_snapshot(&serde_json::json!({}));
    let policy = v1::Policy::default();
    let prompt = serde_json::json!({"model": "m", "prompt": "0123456789abcdef".repeat(64)}).to_string();
    let topology = Arc::new(Topology::compile(topology(&[1], policy)).unwrap());
    let matched = |fixture: &mut Fixture, cached_since_ms: u64| {
        let mut snapshot = snapshot(&[0]);
        snapshot.readings[0].cached_since_ms = Some(cached_since_ms);
        fixture.pool.adopt(PoolView::new(topology.clone(), snapshot, START).into());
        fixture.post(TEXT, &[], &prompt).exchange.end(&mut fixture.pool);
        fixture.pool.publish_metrics(false, START + Duration::from_millis(cached_since_ms));
        fixture.counted("prompt_blocks_matched")
    };
    assert_eq!(matched(&mut fixture, 10_000), 0);
    assert_eq!(matched(&mut fixture, 12_000), 4, "marks of one start");
    assert_eq!(matched(&mut fixture, 900_000), 4, "its caches are empty");
    assert_eq!(fixture.pool.store_mut().read(|ledger| ledger.loads().len()), 1);
}

#[test]
fn a_pool_that_is_refused_rejects_every_request_until_it_is_not() {
    let refused = v1::Policy { refusal: Some("it has no Service".to_owned()), ..fewest_waiting() };
    let mut fixture = Fixture::with_policy(&serde_json::json!({"failureMode": "FailOpen"}), refused);
    // At its head, before a body that is too large to be read would let it pass.
    let mut request = fixture.request(TEXT, &[]);
    assert_eq!(request.head(&mut fixture), Flow::Hold);
    let rejection = request.rejection();
    assert_eq!(rejection.status, 503);
    let expected = "the pool serves no requests: it has no Service";
    assert!(rejection.body.contains(expected), "{}", rejection.body);
    assert_eq!(fixture.counted("rejected|503"), 1);
    fixture.adopt(topology(&[1, 2, 3], fewest_waiting()), &[0, 10, 20]);
    assert_eq!(fixture.post(TEXT, &[], BODY).proxy.local_answer, None);
}
