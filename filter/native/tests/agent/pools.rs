//! Many pools with one agent.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::sync::{Arc, Mutex};

use endpoint_picker_native::agent::PoolHandle;
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{answer, attach, direct, eventually, eventually_has, snapshot, unique_pool};
use crate::server::{Reply, Request, Server};

/// Pools of the process.
const POOLS: u8 = 40;

/// The snapshots of an agent by pool.
type Snapshots = Arc<Mutex<HashMap<String, v1::Snapshot>>>;

/// The agent of several pools.
fn agent(snapshots: &Snapshots, requested: &Arc<Mutex<BTreeSet<String>>>) -> Server {
    let (snapshots, requested) = (Arc::clone(snapshots), Arc::clone(requested));
    Server::start(move |request: &Request| {
        let name = request.path.split('/').nth(3).unwrap();
        requested.lock().unwrap().insert(name.to_owned());
        match snapshots.lock().unwrap().get(name) {
            Some(snapshot) => answer(request, snapshot),
            None => Reply::Answer(404, b"no such pool".to_vec()),
        }
    })
}

/// The threads of the module that poll, share and tick.
fn threads() -> usize {
    let names = fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        let name = fs::read_to_string(task.ok()?.path().join("comm")).ok()?;
        name.starts_with("epp-").then_some(())
    });
    names.count()
}

#[test]
fn pools_of_one_agent_share_threads_and_connections_and_each_has_its_own_snapshots() {
    let (snapshots, requested) = (Snapshots::default(), Arc::default());
    let server = agent(&snapshots, &requested);
    let access = direct(&[format!("http://{}", server.address())], &json!({}));
    let names: Vec<String> = (0..POOLS).map(|_| unique_pool()).collect();
    for (name, endpoints) in names.iter().zip(1..) {
        snapshots.lock().unwrap().insert(name.clone(), snapshot(endpoints, 1));
    }
    let before = threads();
    let attached: Vec<PoolHandle> = names.iter().map(|name| attach(name, &access)).collect();
    // Tests at the same time have threads of their own; with one for each pool there would be more.
    assert!(threads() < before + usize::from(POOLS), "{} threads after {before}", threads());
    for (pool, endpoints) in attached.iter().zip(1..) {
        eventually_has(pool, endpoints, 1);
    }
    assert!(server.open() <= 2, "one connection for snapshots, and one for changes: {}", server.open());

    snapshots.lock().unwrap().insert(names[3].clone(), snapshot(50, 7));
    eventually_has(&attached[3], 50, 7);
    for (pool, endpoints) in attached.iter().zip(1..).filter(|(_, endpoints)| *endpoints != 4) {
        assert_eq!(pool.pool().view().versions().unwrap().topology, endpoints, "only one has changed");
    }
}

#[test]
fn a_pool_that_the_agent_lacks_does_not_hold_the_others_up() {
    let (snapshots, requested) = (Snapshots::default(), Arc::default());
    let server = agent(&snapshots, &requested);
    let access = direct(&[format!("http://{}", server.address())], &json!({}));
    let (known, unknown) = (unique_pool(), unique_pool());
    snapshots.lock().unwrap().insert(known.clone(), snapshot(2, 1));
    let [known, unknown] = [known, unknown].map(|name| attach(&name, &access));
    for version in 1..5 {
        snapshots.lock().unwrap().values_mut().for_each(|it| *it = snapshot(2, version));
        eventually_has(&known, 2, version);
    }
    let mut failed = 0;
    eventually("failures of the other one", || {
        failed += unknown.pool().take_polls().failed;
        failed > 1
    });
    assert_eq!(known.pool().take_polls().failed, 0);
}

#[test]
fn a_pool_that_ends_is_not_requested_any_more_and_the_others_are() {
    let (snapshots, requested) = (Snapshots::default(), Arc::<Mutex<BTreeSet<String>>>::default());
    let server = agent(&snapshots, &requested);
    let access = direct(&[format!("http://{}", server.address())], &json!({}));
    let names = [unique_pool(), unique_pool(), unique_pool()];
    for name in &names {
        snapshots.lock().unwrap().insert(name.clone(), snapshot(2, 1));
    }
    let [first, second, third] = names.each_ref().map(|name| attach(name, &access));
    for pool in [&first, &second, &third] {
        eventually_has(pool, 2, 1);
    }
    drop(second);
    let is_asked = |rest: &[&String]| {
        eventually("requests of the other pools alone", || {
            let asked = core::mem::take(&mut *requested.lock().unwrap());
            asked.iter().eq(rest.iter().copied().collect::<BTreeSet<_>>())
        });
    };
    is_asked(&[&names[0], &names[2]]);
    drop(first);
    is_asked(&[&names[2]]);
    snapshots.lock().unwrap().insert(names[2].clone(), snapshot(3, 2));
    eventually_has(&third, 3, 2);
    drop(third);
    eventually("no connection", || server.open() == 0);
}
