//! Pools whose agents are scripted.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use endpoint_picker_engine::pool_view::{PoolView, Versions};
use endpoint_picker_engine::testing;
use endpoint_picker_native::agent::PoolHandle;
use endpoint_picker_native::config::{AgentAccess, ModuleConfig};
use endpoint_picker_wire::{Message, v1};
use serde_json::{Value, json};

use crate::server::{Reply, Request};

/// The time by which an expected state must be there.
const DEADLINE: Duration = Duration::from_secs(30);

/// A pool's name that no other test has: pools are shared in the whole process.
pub(crate) fn unique_pool() -> String {
    static LAST: AtomicU64 = AtomicU64::new(0);
    format!("pool-{}", LAST.fetch_add(1, Ordering::Relaxed))
}

/// A snapshot with this many endpoints; the number is its topology's version.
pub(crate) fn snapshot(endpoints: u8, readings_version: u64) -> v1::Snapshot {
    let topology = testing::topology("p", 1..=endpoints.into(), v1::Policy::default());
    let reading = v1::Reading { waiting: None, ..testing::reading(0) };
    v1::Snapshot {
        topology_version: endpoints.into(),
        readings_version,
        topology: Some(topology),
        ..testing::snapshot(vec![reading; endpoints.into()])
    }
}

/// The agent's response to a poll while it has this snapshot. Reports are taken, and changes are not shared.
pub(crate) fn answer(request: &Request, snapshot: &v1::Snapshot) -> Reply {
    if request.path.ends_with("/changes") {
        return Reply::Answer(404, vec![]);
    }
    if request.is_report() {
        return Reply::Answer(204, vec![]);
    }
    let has = query(&request.path);
    let (topology, readings) = (has.get("topology"), has.get("readings"));
    let is_known = topology == Some(&snapshot.topology_version);
    if is_known && readings == Some(&snapshot.readings_version) {
        return Reply::Answer(204, vec![]);
    }
    let mut snapshot = snapshot.clone();
    if is_known {
        snapshot.topology = None;
    }
    Reply::Answer(200, snapshot.encode_to_vec())
}

/// An agent whose snapshot a test replaces.
pub(crate) type Current = Arc<Mutex<v1::Snapshot>>;

/// The handler of an agent with this snapshot.
pub(crate) fn agent(current: &Current) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    let current = Arc::clone(current);
    move |request| answer(request, &current.lock().unwrap())
}

/// The numbers in a path's query.
pub(crate) fn query(path: &str) -> HashMap<String, u64> {
    let pairs = path.split_once('?').map_or("", |(_, query)| query).split('&');
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// The way to agents with these addresses.
pub(crate) fn direct(addresses: &[String], fields: &Value) -> AgentAccess {
    let mut agent = json!({"addresses": addresses});
    agent.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let json = json!({"pool": "p", "agent": agent}).to_string();
    ModuleConfig::parse(json.as_bytes()).unwrap().unwrap().agent.unwrap()
}

/// Attaches to a pool of this name.
pub(crate) fn attach(pool: &str, access: &AgentAccess) -> PoolHandle {
    PoolHandle::new(pool, Some(access), "envoy-1").unwrap()
}

/// Attaches to a pool of its own, with these agents.
pub(crate) fn attach_to(addresses: &[String]) -> PoolHandle {
    attach(&unique_pool(), &direct(addresses, &json!({})))
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a pool has these versions.
#[track_caller]
pub(crate) fn eventually_has(attachment: &PoolHandle, topology: u64, readings: u64) -> Arc<PoolView> {
    let expected = Some(Versions { topology, readings });
    eventually(&format!("versions {expected:?}"), || attachment.pool().view().versions() == expected);
    attachment.pool().view()
}
