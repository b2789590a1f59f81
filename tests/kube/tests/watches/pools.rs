//! Pools, their pods and their policies.

use endpoint_picker_harness::eventually::eventually;
use serde_json::json;

use crate::agent::Agent;
use crate::cluster::{Turn, endpoint};

fn log(turn: &Turn) -> std::path::PathBuf {
    turn.cluster.logs().join(format!("agent-{}.log", turn.namespace))
}

/// Waits until the pool has exactly these endpoints.
pub(crate) async fn has_endpoints(agent: &Agent, namespace: &str, pool: &str, expected: &[String]) {
    eventually("the pool has its endpoints", async || match agent.pool(namespace, pool).await {
        Ok(pool) if pool.names() == expected => Ok(()),
        Ok(pool) => Err(format!("{:?}", pool.names())),
        Err(error) => Err(format!("{error:?}: {}", agent.log())),
    })
    .await;
}

#[tokio::test]
async fn two_pools_of_two_namespaces_have_their_own_ready_pods() {
    let turn = Turn::begin("two-a").await;
    let (a, b) = (turn.namespace.clone(), turn.another_namespace("two-b").await);
    for namespace in [&a, &b] {
        turn.apply_pool(namespace, "llama", "llama").await;
    }
    turn.create_pods(&a, "llama", 1..3).await;
    turn.create_pods(&b, "llama", 3..4).await;
    turn.create_pods(&b, "other", 4..5).await;
    let flags = [format!("--kubernetes-namespace={a}"), format!("--kubernetes-namespace={b}")];
    let agent = Agent::start(&turn.cluster.kubeconfig(), flags, &log(&turn)).await;
    let of_a = |numbers: &[u16]| numbers.iter().map(|n| endpoint(&a, "llama", *n)).collect::<Vec<_>>();
    has_endpoints(&agent, &a, "llama", &of_a(&[1, 2])).await;
    has_endpoints(&agent, &b, "llama", &[endpoint(&b, "llama", 3)]).await;
    eventually("the agent is ready", async || match agent.readiness().await {
        Ok((status, _)) if status == 200 => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;

    // Unready, ready, deleted, relabelled.
    turn.set_ready(&a, "llama", 1, false).await.unwrap();
    has_endpoints(&agent, &a, "llama", &of_a(&[2])).await;
    turn.set_ready(&a, "llama", 1, true).await.unwrap();
    has_endpoints(&agent, &a, "llama", &of_a(&[1, 2])).await;
    turn.delete_pod(&a, "llama", 2).await;
    has_endpoints(&agent, &a, "llama", &of_a(&[1])).await;
    let label = ["label", "pod", "other-4", "app=llama", "--overwrite", "--namespace", &b];
    turn.cluster.kubectl(label).await.unwrap();
    let both = [endpoint(&b, "llama", 3), endpoint(&b, "other", 4)];
    has_endpoints(&agent, &b, "llama", &both).await;

    // Another selector, then no pool.
    turn.apply_pool(&b, "llama", "other").await;
    has_endpoints(&agent, &b, "llama", &[]).await;
    turn.cluster.kubectl(["delete", "inferencepool", "llama", "--namespace", &b]).await.unwrap();
    eventually("the pool is gone", async || match agent.pool(&b, "llama").await {
        Err(error) if error.to_string().contains("404") => Ok(()),
        other => Err(format!("{:?}", other.map(|pool| pool.endpoints))),
    })
    .await;
    has_endpoints(&agent, &a, "llama", &of_a(&[1])).await;
}

#[tokio::test]
async fn a_pod_that_comes_back_under_its_name_and_address_begins_cold() {
    let turn = Turn::begin("cold").await;
    let namespace = &turn.namespace;
    turn.apply_pool(namespace, "llama", "llama").await;
    turn.create_pods(namespace, "llama", 1..2).await;
    let flags = [format!("--kubernetes-namespace={namespace}")];
    let agent = Agent::start(&turn.cluster.kubeconfig(), &flags, &log(&turn)).await;
    let name = endpoint(namespace, "llama", 1);
    has_endpoints(&agent, namespace, "llama", core::slice::from_ref(&name)).await;
    assert_eq!(agent.pool(namespace, "llama").await.unwrap().cached_since(&name), None);
    turn.delete_pod(namespace, "llama", 1).await;
    turn.create_pods(namespace, "llama", 1..2).await;
    eventually("the endpoint begins cold", async || {
        let pool = agent.pool(namespace, "llama").await.map_err(|error| error.to_string())?;
        pool.cached_since(&name).ok_or_else(|| format!("{:?}", pool.endpoints))
    })
    .await;
}

#[tokio::test]
async fn active_ports_are_an_annotation_of_the_pod() {
    let turn = Turn::begin("ports").await;
    let namespace = &turn.namespace;
    let pool = json!({
        "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": "ranks"},
        "spec": {
            "selector": {"matchLabels": {"app": "ranks"}},
            "targetPorts": [{"number": 8000}, {"number": 8001}, {"number": 8002}],
            "endpointPickerRef": {"name": "endpoint-picker", "port": {"number": 9002}},
        },
    });
    turn.cluster.apply(namespace, &pool.to_string()).await.unwrap();
    turn.create_pods(namespace, "ranks", 1..2).await;
    let flags = [format!("--kubernetes-namespace={namespace}")];
    let agent = Agent::start(&turn.cluster.kubeconfig(), &flags, &log(&turn)).await;
    let ranks =
        |ranks: &[u8]| ranks.iter().map(|n| format!("{namespace}/ranks-1-rank-{n}")).collect::<Vec<_>>();
    has_endpoints(&agent, namespace, "ranks", &ranks(&[0, 1, 2])).await;
    let annotate =
        ["annotate", "pod", "ranks-1", "llm-d.ai/active-ports=8000,8002", "--namespace", namespace];
    turn.cluster.kubectl(annotate).await.unwrap();
    has_endpoints(&agent, namespace, "ranks", &ranks(&[0, 2])).await;
}

#[tokio::test]
async fn the_picker_configuration_comes_from_a_config_map() {
    let turn = Turn::begin("config").await;
    let namespace = &turn.namespace;
    turn.apply_pool(namespace, "llama", "llama").await;
    turn.create_pods(namespace, "llama", 1..2).await;
    let flags =
        [format!("--kubernetes-namespace={namespace}"), format!("--picker-config-map={namespace}/picker")];
    let agent = Agent::start(&turn.cluster.kubeconfig(), &flags, &log(&turn)).await;
    has_endpoints(&agent, namespace, "llama", &[endpoint(namespace, "llama", 1)]).await;
    let before = agent.pool(namespace, "llama").await.unwrap();
    let config = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n- type: max-score-picker\n\
                  schedulingProfiles:\n- name: default\n  plugins:\n  - pluginRef: queue-scorer\n  - pluginRef: max-score-picker\n";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "picker"},
        "data": {"picker.yaml": config, "notes.txt": "not read"},
    });
    turn.cluster.apply(namespace, &map.to_string()).await.unwrap();
    let after = agent.next(namespace, "llama", &before).await.unwrap();
    assert_ne!(before.policy(), after.policy());
    assert!(format!("{:?}", after.policy()).contains("queue-scorer"), "{:?}", after.policy());
}
