//! An API server that is away, that refuses, or that lacks a kind.

use core::time::Duration;
use std::fs;
use std::time::Instant;

use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_kube::Crds;
use serde_json::json;

use crate::agent::Agent;
use crate::cluster::{Turn, endpoint};
use crate::pools::has_endpoints;

/// Longer than the server-side history and every pause of the agent.
const OUTAGE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn the_last_pods_stay_while_the_api_server_is_away() {
    let turn = Turn::begin("outage").await;
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
    assert!(delay <= Duration::from_secs(5), "{delay:?}");

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

#[tokio::test]
async fn a_kind_that_is_installed_later_is_watched() {
    let turn = Turn::begin("later").await;
    let namespace = &turn.namespace;
    turn.apply_pool(namespace, "llama", "llama").await;
    turn.create_pods(namespace, "llama", 1..2).await;
    let flags = [format!("--kubernetes-namespace={namespace}")];
    let log = turn.cluster.logs().join("agent-later.log");
    let agent = Agent::start(&turn.cluster.kubeconfig(), &flags, &log).await;
    has_endpoints(&agent, namespace, "llama", &[endpoint(namespace, "llama", 1)]).await;
    let missing =
        r#"metrics_agent_kubernetes_watches{resource="inferenceobjectives.llm-d.ai",state="missing"}"#;
    assert_eq!(agent.count(missing).await.unwrap(), 1);
    let before = agent.pool(namespace, "llama").await.unwrap();
    turn.cluster.install(&[Crds::LlmD]).await.unwrap();
    let objective = json!({
        "apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceObjective", "metadata": {"name": "batch"},
        "spec": {"priority": -3, "poolRef": {"group": "inference.networking.k8s.io", "name": "llama"}},
    });
    turn.cluster.apply(namespace, &objective.to_string()).await.unwrap();
    let after = agent.next(namespace, "llama", &before).await.unwrap();
    let objectives = after.policy().objectives.iter().map(|it| (it.name.as_str(), it.priority));
    assert_eq!(objectives.collect::<Vec<_>>(), [("batch", -3)]);
    assert_eq!(agent.count(missing).await.unwrap(), 0);
}

#[tokio::test]
async fn pods_that_were_forbidden_are_watched_as_soon_as_they_are_not() {
    let turn = Turn::begin("rights").await;
    let namespace = &turn.namespace;
    turn.apply_pool(namespace, "llama", "llama").await;
    turn.create_pods(namespace, "llama", 1..2).await;
    let role = |pods: &[&str]| {
        let rule = |groups: &[&str], resources: &[&str]| json!({"apiGroups": groups, "resources": resources, "verbs": ["get", "list", "watch"]});
        let kinds = ["inferencepools", "inferenceobjectives", "inferencemodelrewrites", "inferencemodels"];
        let groups = ["inference.networking.k8s.io", "inference.networking.x-k8s.io", "llm-d.ai"];
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "agent"},
            "rules": [rule(&groups, &kinds), rule(&[""], pods)],
        })
        .to_string()
    };
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "agent"}});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "agent"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "agent"},
        "subjects": [{"kind": "ServiceAccount", "name": "agent", "namespace": namespace}],
    });
    let manifests = [account.to_string(), role(&["services"]), binding.to_string()].join("\n---\n");
    turn.cluster.apply(namespace, &manifests).await.unwrap();
    let token = ["create", "token", "agent", "--namespace", namespace];
    let token = turn.cluster.kubectl(token).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "agent",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://{}", turn.cluster.api_server()),
            "certificate-authority": turn.cluster.authority(),
        }}],
        "users": [{"name": "agent", "user": {"token": token.trim()}}],
        "contexts": [{"name": "agent", "context": {"cluster": "test", "user": "agent", "namespace": namespace}}],
    });
    fs::write(&kubeconfig, config.to_string()).unwrap();
    let log = turn.cluster.logs().join("agent-rights.log");
    // The namespace is the context's.
    let agent = Agent::start(&kubeconfig, ["--pool=llama"], &log).await;
    let forbidden = r#"metrics_agent_kubernetes_watches{resource="pods",state="forbidden"}"#;
    eventually("pods are forbidden", async || {
        let count = agent.count(forbidden).await?;
        if count == 1 { Ok(()) } else { Err(anyhow::anyhow!("{count}: {}", agent.log())) }
    })
    .await;
    assert!(agent.pool(namespace, "llama").await.is_err(), "a pool without a list of pods has no snapshot");
    turn.cluster.apply(namespace, &role(&["pods"])).await.unwrap();
    has_endpoints(&agent, namespace, "llama", &[endpoint(namespace, "llama", 1)]).await;
    assert_eq!(agent.count(forbidden).await.unwrap(), 0);
}
