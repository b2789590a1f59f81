//! Connections to the API server that break without notice.

use core::time::Duration;
use std::time::Instant;

use endpoint_picker_harness::eventually::{eventually, within};

use crate::agent::Agent;
use crate::cluster::{Turn, endpoint};
use crate::kubeconfig;
use crate::link::Link;
use crate::pools::has_endpoints;

/// As docs/reference/agent-kubernetes.md promises.
const NOTICED: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_connection_that_breaks_without_notice_is_found_within_30_s() {
    let turn = Turn::begin("silent").await;
    let namespace = &turn.namespace;
    turn.apply_pool(namespace, "llama", "llama").await;
    turn.create_pods(namespace, "llama", 1..3).await;
    let link = Link::to(turn.cluster.api_server()).await;
    let flags = [format!("--kubernetes-namespace={namespace}")];
    let log = turn.cluster.logs().join("agent-silent.log");
    let folder = tempfile::tempdir().unwrap();
    let admin = kubeconfig::through(turn.cluster, link.address(), folder.path());
    let agent = Agent::start(&admin, &flags, &log).await;
    let endpoints =
        |numbers: &[u16]| numbers.iter().map(|n| endpoint(namespace, "llama", *n)).collect::<Vec<_>>();
    has_endpoints(&agent, namespace, "llama", &endpoints(&[1, 2])).await;
    let synced = r#"metrics_agent_kubernetes_watches{resource="pods",state="synced"}"#;
    eventually("the pods are watched", async || match agent.count(synced).await {
        Ok(1) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;

    link.break_silently();
    let broken = Instant::now();
    turn.set_ready(namespace, "llama", 2, false).await.unwrap();
    let noticed = within(NOTICED, async || match agent.pool(namespace, "llama").await {
        Ok(pool) if pool.names() == endpoints(&[1]) => Ok(()),
        Ok(pool) => Err(format!("{:?}", pool.names())),
        Err(error) => Err(format!("{error:?}")),
    });
    noticed.await.unwrap_or_else(|last| panic!("not noticed within {NOTICED:?}: {last}: {}", agent.log()));
    println!("a change behind a broken connection counted {:?} after the break", broken.elapsed());
    let timeouts =
        agent.count(r#"metrics_agent_kubernetes_watch_errors_total{resource="pods",reason="timeout"}"#);
    assert_eq!(timeouts.await.unwrap(), 1, "the watch has ended by itself: {}", agent.log());
}
