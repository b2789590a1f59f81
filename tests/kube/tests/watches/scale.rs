//! A thousand pods.

use core::time::Duration;
use std::time::Instant;

use endpoint_picker_harness::eventually::within;

use crate::agent::Agent;
use crate::cluster::{Turn, endpoint};

const PODS: u16 = 1000;

/// Changes of readiness that are measured in each round.
const CHANGES: u16 = 100;

const ROUNDS: usize = 3;

#[tokio::test]
async fn a_thousand_pods_are_listed_and_followed_in_bounded_memory() {
    let turn = Turn::begin_alone("scale").await;
    let namespace = &turn.namespace;
    turn.apply_pool(namespace, "llama", "llama").await;
    turn.create_pods(namespace, "llama", 0..PODS).await;
    let flags = [format!("--kubernetes-namespace={namespace}")];
    let log = turn.cluster.logs().join("agent-scale.log");
    let agent = Agent::start(&turn.cluster.kubeconfig(), &flags, &log).await;

    // From the first response of the agent, which has nothing yet, to a snapshot of all pods.
    let listening = Instant::now();
    let pool = within(Duration::from_secs(20), async || {
        let pool = agent.pool(namespace, "llama").await.map_err(|error| error.to_string())?;
        let found = pool.endpoints.len();
        if found == usize::from(PODS) { Ok(pool) } else { Err(format!("{found} endpoints")) }
    });
    let mut pool = pool.await.unwrap();
    let first = listening.elapsed();
    println!("first snapshot of {PODS} pods: {first:?}");

    for _ in 0..ROUNDS {
        let mut delays = Vec::new();
        for change in 0..CHANGES {
            let (number, ready) = (change / 2, change % 2 == 1);
            let sent = Instant::now();
            turn.set_ready(namespace, "llama", number, ready).await.unwrap();
            pool = agent.next(namespace, "llama", &pool).await.unwrap();
            delays.push(sent.elapsed());
            assert_eq!(pool.endpoints.contains_key(&endpoint(namespace, "llama", number)), ready);
        }
        delays.sort();
        let at = |percent: usize| delays[(delays.len() - 1) * percent / 100];
        println!("readiness sent until published: median {:?}, p99 {:?}, most {:?}", at(50), at(99), at(100));
    }

    let (own, all) = agent.memory();
    let mebibytes = |bytes: u64| bytes as f64 / 1024.0 / 1024.0;
    println!("memory: {:.1} MiB, {:.1} with the program", mebibytes(own), mebibytes(all));
    assert!(own <= 40 * 1024 * 1024, "{own} bytes");
}
