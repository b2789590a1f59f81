use std::sync::Arc;

use endpoint_picker::reading::Lora;
use endpoint_picker_wire::Message;

use super::*;
use crate::publish::snapshot::{Topology, Versions};
use crate::runtime::clock::Clock;

const NOW: Duration = Duration::from_secs(100);

fn pool(hosts: u8) -> Pool {
    let labels = || vec![("zone".to_owned(), "a".to_owned())];
    let endpoint = |n: u8| Endpoint::new(format!("default/{n}"), ([10, 0, 0, n], 8000).into(), labels());
    Pool::new("p".to_owned(), (0..hosts).map(endpoint).collect()).unwrap()
}

fn reading(waiting: u64, kv_usage: f64, age_ms: u64) -> Reading {
    Reading {
        ready: true,
        updated: Some(NOW.saturating_sub(Duration::from_millis(age_ms))),
        waiting: Some(waiting),
        kv_usage: Some(kv_usage),
        ..Reading::default()
    }
}

fn states(policy: Option<v1::Policy>, readings: Vec<Reading>) -> Vec<State> {
    let pool = pool(u8::try_from(readings.len()).unwrap());
    let topology = Arc::new(Topology { pool, policy });
    let published =
        PoolSnapshot::new(Clock::start(), Versions { topology: 1, readings: 1 }, topology, readings, vec![]);
    let status = of_published(&published, &PoolReports::default(), NOW);
    status.endpoints.iter().map(|endpoint| endpoint.state).collect()
}

#[test]
fn the_worst_state_that_applies_is_reported() {
    let readings = vec![
        reading(4, 0.79, 2000),
        reading(5, 0.0, 0),
        reading(0, 0.8, 0),
        reading(9, 0.9, 2001),
        Reading { ready: true, ..Reading::default() },
        Reading { ready: false, ..reading(9, 0.9, 0) },
    ];
    let expected =
        [State::Ready, State::Saturated, State::Saturated, State::Stale, State::NoReading, State::NotReady];
    assert_eq!(states(None, readings), expected);
}

#[test]
fn an_adapter_that_runs_is_not_listed_as_waiting_too() {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let lora = Lora { running: names(&["a", "b"]), waiting: names(&["b", "c", "a"]), max: 2 };
    let status = of_adapters(&lora);
    assert_eq!((status.running, status.waiting, status.max), (names(&["a", "b"]), names(&["c"]), 2));
}

#[test]
fn thresholds_come_from_the_pools_detector() {
    let plugin = |name: &str, r#type: &str, parameters: &str| v1::Plugin {
        name: name.to_owned(),
        r#type: r#type.to_owned(),
        parameters: parameters.to_owned(),
    };
    let plugins = vec![
        plugin("other", "utilization-detector", r#"{"queueDepthThreshold": 1}"#),
        plugin("mine", "utilization-detector", r#"{"queueDepthThreshold": 50}"#),
        plugin("counting", "concurrency-detector", "{}"),
    ];
    let policy = |detector: &str| {
        let saturation_detector = Some(detector.to_owned());
        let config =
            v1::PickerConfig { plugins: plugins.clone(), saturation_detector, ..v1::PickerConfig::default() };
        Some(v1::Policy { picker_config: Some(config), ..v1::Policy::default() })
    };
    let readings = || vec![reading(49, 0.0, 0), reading(50, 0.0, 0)];
    assert_eq!(states(policy("mine"), readings()), [State::Ready, State::Saturated]);
    assert_eq!(states(policy("counting"), readings()), [State::Saturated; 2]);
}

#[test]
fn a_recorded_snapshot_gives_the_same_status() {
    let lora = Lora { running: vec!["sql".to_owned()], waiting: vec![], max: 4 };
    let readings = [Reading { lora: Some(lora), ..reading(3, 0.5, 70) }, Reading::default()];
    let snapshot = v1::Snapshot {
        format: endpoint_picker_wire::FORMAT,
        topology: Some(endpoint_picker_wire::topology_from_core(&pool(2))),
        readings: readings.iter().map(|it| endpoint_picker_wire::reading_from_core(it, NOW)).collect(),
        ..v1::Snapshot::default()
    };
    let bytes = snapshot.encode_to_vec();
    let status = of_snapshot(endpoint_picker_wire::decode(&bytes).unwrap()).unwrap();
    assert_eq!((status.pool.as_str(), status.endpoints.len()), ("p", 2));
    let first = &status.endpoints[0];
    assert_eq!((first.name.as_str(), first.address.as_str()), ("default/0", "10.0.0.0:8000"));
    assert_eq!((first.state, first.age_ms, first.waiting), (State::Ready, Some(70), Some(3)));
    assert_eq!((first.kv_usage, first.running, first.sent), (Some(0.5), None, None));
    assert_eq!(first.labels["zone"], "a");
    assert_eq!(first.lora.as_ref().unwrap().running, ["sql"]);
    assert_eq!(status.endpoints[1].state, State::NotReady);
}

#[test]
fn a_status_survives_a_round_trip_through_json() {
    let snapshot = v1::Snapshot {
        topology: Some(endpoint_picker_wire::topology_from_core(&pool(1))),
        readings: vec![endpoint_picker_wire::reading_from_core(&reading(3, 0.5, 70), NOW)],
        ..v1::Snapshot::default()
    };
    let status = PoolStatus { is_of_snapshot: false, ..of_snapshot(snapshot).unwrap() };
    let json = serde_json::to_string(&status).unwrap();
    assert!(json.contains(r#""state":"ready""#), "{json}");
    assert_eq!(serde_json::from_str::<PoolStatus>(&json).unwrap(), status);
}
