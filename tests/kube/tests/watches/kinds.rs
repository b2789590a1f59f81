//! Kinds that are not installed, or not any more.

use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_kube::Crds;
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::agent::Agent;
use crate::cluster::{Turn, endpoint};
use crate::pools::has_endpoints;

#[tokio::test]
async fn a_kind_that_is_installed_later_is_watched() {
    let turn = Turn::begin_alone("later").await;
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
async fn objects_are_gone_with_their_kind_and_come_back_with_it() {
    let turn = Turn::begin_alone("removed").await;
    let namespace = &turn.namespace;
    turn.apply_pool(namespace, "llama", "llama").await;
    turn.create_pods(namespace, "llama", 1..2).await;
    let flags = [format!("--kubernetes-namespace={namespace}")];
    let log = turn.cluster.logs().join("agent-removed.log");
    let agent = Agent::start(&turn.cluster.kubeconfig(), &flags, &log).await;
    has_endpoints(&agent, namespace, "llama", &[endpoint(namespace, "llama", 1)]).await;
    let without = agent.pool(namespace, "llama").await.unwrap();
    let model = json!({
        "apiVersion": "inference.networking.x-k8s.io/v1alpha2", "kind": "InferenceModel", "metadata": {"name": "chat"},
        "spec": {"modelName": "chat", "criticality": "Critical", "poolRef": {"name": "llama"}},
    });
    let mut last = without.policy().clone();
    for _ in 0..2 {
        turn.cluster.install(&[Crds::InferenceModel]).await.unwrap();
        turn.cluster.apply(namespace, &model.to_string()).await.unwrap();
        let with = until_policy(&agent, namespace, |policy| *policy != last).await;
        let definition = "inferencemodels.inference.networking.x-k8s.io";
        turn.cluster.kubectl(["delete", "crd", definition]).await.unwrap();
        last = until_policy(&agent, namespace, |policy| *policy != with).await;
        assert_eq!(last, *without.policy());
    }
    has_endpoints(&agent, namespace, "llama", &[endpoint(namespace, "llama", 1)]).await;
}

async fn until_policy(agent: &Agent, namespace: &str, holds: impl Fn(&v1::Policy) -> bool) -> v1::Policy {
    eventually("the policy changes", async || {
        let pool = agent.pool(namespace, "llama").await.map_err(|error| error.to_string())?;
        let policy = pool.policy();
        if holds(policy) { Ok(policy.clone()) } else { Err(format!("{policy:?}: {}", agent.log())) }
    })
    .await
}
