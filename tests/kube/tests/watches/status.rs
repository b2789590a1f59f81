//! The conditions that the agent writes into the status of pools.

use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_kube::Crds;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::cluster::Turn;

#[tokio::test]
async fn pools_of_both_groups_get_their_conditions() {
    let turn = Turn::begin("status").await;
    let namespace = &turn.namespace;
    turn.cluster.install(&[Crds::ExperimentalPool]).await.unwrap();
    turn.apply_pool(namespace, "llama", "llama").await;
    let experimental = |name: &str, labels: &Value| {
        json!({
            "apiVersion": "inference.networking.x-k8s.io/v1alpha2", "kind": "InferencePool", "metadata": {"name": name},
            "spec": {"selector": labels, "targetPortNumber": 8000, "extensionRef": {"name": "endpoint-picker"}},
        })
        .to_string()
    };
    turn.cluster.apply(namespace, &experimental("older", &json!({"app": "older"}))).await.unwrap();
    // Its name is taken in the other group.
    turn.cluster.apply(namespace, &experimental("llama", &json!({"app": "other"}))).await.unwrap();
    let flags = [format!("--kubernetes-namespace={namespace}"), "--kubernetes-status=edge".to_owned()];
    let log = turn.cluster.logs().join("agent-status.log");
    let agent = Agent::start(&turn.cluster.kubeconfig(), &flags, &log).await;
    for (group, field, name, accepted) in [
        ("inference.networking.k8s.io", "parents", "llama", "Accepted"),
        ("inference.networking.x-k8s.io", "parent", "older", "Accepted"),
        ("inference.networking.x-k8s.io", "parent", "llama", "NotSupportedByGateway"),
    ] {
        eventually(&format!("{name} of {group} has its condition"), async || {
            let kind = format!("inferencepools.{group}");
            let get = ["get", &kind, name, "--namespace", namespace, "--output=json"];
            let pool = turn.cluster.kubectl(get).await.map_err(|error| error.to_string())?;
            let pool: Value = serde_json::from_str(&pool).map_err(|error| error.to_string())?;
            let parent = &pool["status"][field][0];
            let conditions = parent["conditions"].as_array().into_iter().flatten();
            let condition = conditions.into_iter().find(|condition| condition["type"] == "Accepted");
            let reason = condition.map(|condition| &condition["reason"]);
            if parent["parentRef"]["name"] == "edge" && reason == Some(&accepted.into()) {
                Ok(())
            } else {
                Err(format!("{pool}: {}", agent.log()))
            }
        })
        .await;
    }
}
