//! The snapshot API: versions and long polls.

use std::time::{Duration, Instant};

use endpoint_picker_wire::v1::Snapshot;
use metrics_agent::agent::Settings;

use crate::harness::{Agent, DEADLINE, eventually, get, options_for, scraping, settings};
use crate::scripted::{Behaviour, ScriptedServer, load};

/// The query of a client that has this snapshot.
fn query(has: &Snapshot, wait_ms: u64) -> String {
    format!("?topology={}&readings={}&wait_ms={wait_ms}", has.topology_version, has.readings_version)
}

/// An agent with one endpoint whose first scrape hangs, so that no further snapshot is published.
async fn quiet_agent() -> (Agent, ScriptedServer, Snapshot) {
    let server = ScriptedServer::start(Behaviour::Hang).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let snapshot = agent.snapshot_where("a snapshot", |_| true).await;
    (agent, server, snapshot)
}

#[tokio::test]
async fn a_request_without_versions_gets_everything_at_once() {
    let (_agent, server, snapshot) = quiet_agent().await;
    let topology = snapshot.topology.unwrap();
    assert_eq!(topology.pool, "default");
    assert_eq!(topology.endpoints[0].address, server.address().to_string());
    assert_eq!(topology.endpoints[0].name, format!("default/{}", server.address()));
    assert_eq!(topology.policy.unwrap().scrape_interval_ms, 50, "which the saturation of v0.11 goes by");
    assert_eq!(snapshot.readings.len(), 1);
}

#[tokio::test]
async fn a_request_with_the_current_topology_gets_only_readings() {
    let (agent, _server, has) = quiet_agent().await;
    let query = format!("?topology={}&readings=0&wait_ms=30000", has.topology_version);
    let snapshot = agent.snapshot(&query).await.unwrap();
    assert_eq!((snapshot.topology, snapshot.topology_version), (None, has.topology_version));
    assert_eq!(snapshot.readings.len(), 1);
}

#[tokio::test]
async fn a_request_with_the_current_versions_waits_as_long_as_it_asks_for() {
    let (agent, _server, has) = quiet_agent().await;
    let sent = Instant::now();
    assert_eq!(agent.snapshot(&query(&has, 150)).await, Err(204));
    assert!(sent.elapsed() >= Duration::from_millis(150));
    assert_eq!(agent.snapshot(&query(&has, 0)).await, Err(204));
}

#[tokio::test]
async fn a_waiter_is_answered_by_the_next_version() {
    let server = ScriptedServer::start(Behaviour::Text(load(1, 1))).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let mut has = agent.snapshot_where("a snapshot", |_| true).await;
    for _ in 0..5 {
        let next = agent.snapshot(&query(&has, 30_000)).await.unwrap();
        assert_eq!(next.topology_version, has.topology_version);
        assert_ne!(next.readings_version, has.readings_version);
        assert_eq!(next.topology, None);
        has = next;
    }
}

#[tokio::test]
async fn an_old_version_is_served_with_its_current_age() {
    let server = ScriptedServer::start(Behaviour::Text(load(1, 1))).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    agent.reading_where("a reading", |r| r.age_ms.is_some()).await;
    server.set_behaviour(Behaviour::Hang);
    let first = agent.reading_where("an age", |r| r.age_ms > Some(120)).await.age_ms;
    let later = agent.reading_where("a greater age", |r| r.age_ms >= first.map(|age| age + 50)).await.age_ms;
    assert!(later > first);
}

#[tokio::test]
async fn versions_differ_after_a_restart() {
    let (_first, _server, before) = quiet_agent().await;
    let (_second, _server, after) = quiet_agent().await;
    assert_ne!(before.topology_version, after.topology_version);
    assert_ne!(before.readings_version, after.readings_version);
}

#[tokio::test]
async fn refusals_of_unknown_pools_and_bad_queries_name_the_allowed_values() {
    let (agent, _server, _) = quiet_agent().await;
    let unknown = agent.get("/v1/pools/other/snapshot").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("allowed: default"), "{}", unknown.text());
    for query in [
        "?topology=x",
        "?topology=-1",
        "?readings=18446744073709551616",
        "?wait_ms=",
        "?wait=1",
        "?wait_ms=1&wait_ms=2",
    ] {
        let bad = agent.get(&format!("/v1/pools/default/snapshot{query}")).await;
        assert_eq!(bad.status, 400, "{query}");
        assert!(bad.head.contains("content-type: application/json"), "{}", bad.head);
        let error: serde_json::Value = serde_json::from_slice(&bad.body).unwrap();
        assert!(error["error"].as_str().unwrap().contains("topology, readings and wait_ms"), "{error}");
    }
    assert_eq!(agent.get("/nowhere").await.status, 404);
}

#[tokio::test]
async fn a_pools_name_may_contain_a_slash() {
    let agent = Agent::start(Settings { options: options_for("ns/pool"), ..settings() }).await;
    let answer = eventually("the pool", async || {
        let answer = agent.get("/v1/pools/ns%2Fpool/snapshot").await;
        (answer.status == 200).then_some(answer)
    });
    assert_eq!(endpoint_picker_wire::decode(&answer.await.body).unwrap().topology.unwrap().pool, "ns/pool");
}

#[tokio::test]
async fn a_request_beyond_the_limit_does_not_wait() {
    let server = ScriptedServer::start(Behaviour::Hang).await;
    let agent = Agent::start(Settings { max_waiters: 2, ..scraping(&[server.address()]) }).await;
    let has = agent.snapshot_where("a snapshot", |_| true).await;
    let path = format!("/v1/pools/default/snapshot{}", query(&has, 30_000));
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let (address, path) = (agent.address, path.clone());
            tokio::spawn(async move { get(address, &path).await.unwrap().status })
        })
        .collect();
    eventually("two waiters", async || {
        (agent.metric("metrics_agent_snapshot_waiters").await > 1.5).then_some(())
    })
    .await;
    // Without a place its response comes before the 30 s that it asks for.
    let response = tokio::time::timeout(DEADLINE, agent.get(&path)).await.expect("it does not wait");
    assert_eq!(response.status, 204);
    agent.stop.cancel();
    for waiter in waiters {
        assert_eq!(waiter.await.unwrap(), 204, "draining answers the waiting requests");
    }
}

#[tokio::test]
async fn ready_when_each_endpoint_was_scraped_and_not_while_draining() {
    let (first, second) =
        (ScriptedServer::start(Behaviour::Hang).await, ScriptedServer::start(Behaviour::Status(500)).await);
    let mut settings = scraping(&[first.address(), second.address()]);
    settings.scrape.timeout = Duration::from_millis(100);
    let agent = Agent::start(settings).await;
    assert_eq!(agent.get("/healthz").await.status, 200);
    let refused = async |endpoints: &[&ScriptedServer]| {
        let names: Vec<_> = endpoints.iter().map(|server| format!("default/{}", server.address())).collect();
        let expected = format!("no scrape has succeeded yet of {}\"", names.join(", "));
        eventually(&expected, async || {
            let answer = agent.get("/readyz").await;
            (answer.status == 503 && answer.text().contains(&expected)).then_some(())
        })
        .await;
    };
    eventually("failed scrapes of both", async || {
        (first.requests() > 1 && second.requests() > 1).then_some(())
    })
    .await;
    refused(&[&first, &second]).await;
    first.set_behaviour(Behaviour::Text(load(1, 1)));
    refused(&[&second]).await;
    second.set_behaviour(Behaviour::Text(load(1, 1)));
    let ready = async || Some(agent.get("/readyz").await).filter(|answer| answer.status == 200);
    assert_eq!(eventually("ready", ready).await.text(), "ok\n");
    agent.stop.cancel();
    let draining = eventually("draining", async || {
        Some(agent.get("/readyz").await).filter(|answer| answer.status == 503)
    });
    assert!(draining.await.text().contains("draining"));
    agent.ended().await;
}

#[tokio::test]
async fn an_endpoint_that_always_fails_keeps_the_agent_unready_for_ten_seconds_only() {
    let server = ScriptedServer::start(Behaviour::Text(load(1, 1))).await;
    let failing = ScriptedServer::start(Behaviour::Status(500)).await;
    let started = Instant::now();
    let agent = Agent::start(scraping(&[server.address(), failing.address()])).await;
    let ready = async || Some(agent.get("/readyz").await).filter(|answer| answer.status == 200);
    let named = format!("of default/{}\n", failing.address());
    assert!(eventually("ready", ready).await.text().ends_with(&named));
    assert!(started.elapsed() >= Duration::from_secs(10), "{:?}", started.elapsed());
}
