//! An API server that is away.

use core::time::Duration;
use std::time::Instant;

use endpoint_picker_harness::eventually::eventually;
use serde_json::json;

use crate::agent::Agent;
use crate::cluster::{Turn, endpoint};
use crate::pools::has_endpoints;

/// Longer than the server-side history and every pause of the agent.
const OUTAGE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_last_pods_stay_while_the_api_server_is_away() {
    let turn = Turn::begin_alone("outage").await;
    let namespace = &turn.namespace;
    turn.apply_pool(namespace, "llama", "llama").await;
    turn.create_pods(namespace, "llama", 1..4).await;
    let flags = [format!("--kubernetes-namespace={namespace}")];
    let log = turn.cluster.logs().join("agent-outage.log");
    let agent = Agent::start(&turn.cluster.kubeconfig(), &flags, &log).await;
    let endpoints =
        |numbers: &[u16]| numbers.iter().map(|n| endpoint(namespace, "llama", *n)).collect::<Vec<_>>();
    has_endpoints(&agent, namespace, "llama", &endpoints(&[1, 2, 3])).await;
    let before = agent.pool(namespace, "llama").await.unwrap().snapshot.topology_version;

    // A change that no watch of pods sees: the version of its last event is too old for the API server that
    // starts.
    let newer = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "newer"}});
    turn.cluster.apply(namespace, &newer.to_string()).await.unwrap();
    turn.cluster.kill_api_server();
    let killed = Instant::now();
    eventually("the watch of the pods fails", async || {
        let failing =
            agent.count(r#"metrics_agent_kubernetes_watches{resource="pods",state="failing"}"#).await?;
        if failing == 1 { Ok(()) } else { Err(anyhow::anyhow!("{failing}")) }
    })
    .await;
    while killed.elapsed() < OUTAGE {
        let pool = agent.pool(namespace, "llama").await.unwrap();
        assert_eq!(pool.snapshot.topology_version, before, "{:?}", pool.names());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    turn.cluster.start_api_server().await.unwrap();
    let back = Instant::now();
    turn.set_ready(namespace, "llama", 2, false).await.unwrap();
    has_endpoints(&agent, namespace, "llama", &endpoints(&[1, 3])).await;
    let delay = back.elapsed();
    println!("first change after the API server was ready again: {delay:?}");
    let expired = r#"metrics_agent_kubernetes_watch_errors_total{resource="pods",reason="expired"}"#;
    assert!(agent.count(expired).await.unwrap() >= 1, "the history was not lost: {}", agent.log());

    // An agent that starts while the API server is away waits for it.
    turn.cluster.kill_api_server();
    let late =
        Agent::start(&turn.cluster.kubeconfig(), &flags, &turn.cluster.logs().join("agent-late.log")).await;
    let (status, _) = late.readiness().await.unwrap();
    assert_eq!(status, 503);
    eventually("it names what it lacks", async || {
        let (_, reason) = late.readiness().await.map_err(|error| error.to_string())?;
        let names =
            reason.contains("inferencepools.inference.networking.k8s.io") && reason.contains("cannot reach");
        if names { Ok(()) } else { Err(reason) }
    })
    .await;
    turn.cluster.start_api_server().await.unwrap();
    has_endpoints(&late, namespace, "llama", &endpoints(&[1, 3])).await;
}
