//! A pool whose agent is the test.

use std::sync::{Mutex, MutexGuard, PoisonError};

use endpoint_picker_wire::{FORMAT, Message, v1};
use serde_json::{Value, json};

use crate::envoy::Config;

/// The right to be the process's only test: the oldest configuration of a process writes the metrics of all.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address of the endpoint of this number, from 1.
pub(crate) fn address(endpoint: usize) -> String {
    let [high, low] = u16::try_from(endpoint).unwrap().to_be_bytes();
    format!("10.0.{high}.{low}:8000")
}

/// A policy with a picker that takes the endpoint with the fewest waiting requests, so that tests decide where requests go. `m` is
/// served by `canary`.
pub(crate) fn fewest_waiting() -> v1::Policy {
    let plugin = |r#type: &str| v1::Plugin {
        name: r#type.to_owned(),
        r#type: r#type.to_owned(),
        parameters: "{}".to_owned(),
    };
    let of_profile = |name: &str| v1::PluginRef { name: name.to_owned(), weight: None };
    let profile = v1::Profile {
        name: "default".to_owned(),
        plugins: vec![of_profile("queue-scorer"), of_profile("max-score-picker")],
    };
    let picker_config = v1::PickerConfig {
        plugins: vec![plugin("queue-scorer"), plugin("max-score-picker"), plugin("single-profile-handler")],
        profiles: vec![profile],
        ..v1::PickerConfig::default()
    };
    let rule = v1::RewriteRule {
        resource: "rule".to_owned(),
        models: vec!["m".to_owned()],
        targets: vec![v1::Target { model: "canary".to_owned(), weight: None }],
    };
    v1::Policy { picker_config: Some(picker_config), rewrite_rules: vec![rule], ..v1::Policy::default() }
}

/// A snapshot with this many waiting requests at each endpoint.
pub(crate) fn snapshot(pool: &str, policy: v1::Policy, waiting: &[u64]) -> Vec<u8> {
    snapshot_from(pool, policy, 1, waiting)
}

/// A snapshot of the endpoints from this number on.
pub(crate) fn snapshot_from(pool: &str, policy: v1::Policy, first: usize, waiting: &[u64]) -> Vec<u8> {
    let endpoint = |n| v1::Endpoint { name: format!("default/e{n}"), address: address(n), labels: vec![] };
    let reading = |&waiting: &u64| v1::Reading {
        ready: true,
        age_ms: Some(0),
        waiting: Some(waiting),
        running: Some(3),
        kv_usage: Some(0.2),
        ..v1::Reading::default()
    };
    let topology = v1::Topology {
        pool: pool.to_owned(),
        endpoints: (first..first + waiting.len()).map(endpoint).collect(),
        policy: Some(policy),
    };
    let snapshot = v1::Snapshot {
        format: FORMAT,
        // Another one for other endpoints.
        topology_version: u64::try_from(first + waiting.len()).unwrap(),
        readings_version: 1,
        readings: waiting.iter().map(reading).collect(),
        topology: Some(topology),
        ..v1::Snapshot::default()
    };
    snapshot.encode_to_vec()
}

/// A configuration of a pool before its first snapshot. `fields` is added to it.
pub(crate) fn unready(pool: &str, fields: &Value) -> Config {
    let mut config = json!({"pool": pool, "agentCluster": "agent"});
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Config::new(&config).unwrap()
}

/// A pool with a policy, and this many waiting requests at its endpoints.
pub(crate) fn with_policy(pool: &str, fields: &Value, policy: v1::Policy, waiting: &[u64]) -> Config {
    let config = unready(pool, fields);
    let poll = config.callout(&format!("/v1/pools/{pool}/snapshot"));
    assert_eq!(poll.cluster, "agent");
    assert_eq!(poll.headers[":method"], "GET");
    config.answer(&poll, Some(200), &snapshot(pool, policy, waiting));
    config
}

/// A pool of three endpoints, of which the second is picked.
pub(crate) fn ready(pool: &str, fields: &Value) -> Config {
    with_policy(pool, fields, fewest_waiting(), &[10, 0, 20])
}
