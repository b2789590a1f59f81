//! The objects from which the EPP reads a pool: the pool, its objectives, and one pod with a port for each server.

use crate::manifests::Manifests;
use anyhow::Result;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_kube::Cluster;
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

/// The name of every pool.
pub(super) const POOL: &str = "default";

const ACCOUNT_DEADLINE: Duration = Duration::from_secs(30);

/// Creates them in a namespace of their own, and returns its name. All servers have the same IP address; an `InferencePool` has at most
/// eight ports.
pub(super) async fn create(
    cluster: &Cluster,
    manifests: &Manifests,
    servers: &[SocketAddr],
) -> Result<String> {
    let namespace = cluster.create_namespace("flow-control").await?;
    let ports: Vec<_> = servers.iter().map(|server| json!({"number": server.port()})).collect();
    let pool = json!({
        "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": POOL},
        "spec": {
            "selector": {"matchLabels": {"app": "server"}}, "targetPorts": ports,
            "endpointPickerRef": {"name": "endpoint-picker", "port": {"number": 9002}},
        },
    });
    cluster.apply(&namespace, &pool.to_string()).await?;
    for object in manifests.others() {
        cluster.apply(&namespace, &object.to_string()).await?;
    }
    // No node runs it.
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server", "labels": {"app": "server"}},
        "spec": {"nodeName": "nowhere", "containers": [{"name": "server", "image": "server"}]},
    });
    // Pods can be created as soon as the namespace has its ServiceAccount.
    let created = within(ACCOUNT_DEADLINE, async || cluster.apply(&namespace, &pod.to_string()).await);
    created.await.map_err(anyhow::Error::msg)?;
    let ip = servers.first().map(SocketAddr::ip);
    let status = json!({"status": {
        "phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}],
    }});
    let patch = ["patch", "pod", "server", "--subresource=status", "--type=strategic", "--namespace"];
    let patch = patch.map(str::to_owned).into_iter().chain([namespace.clone(), format!("--patch={status}")]);
    cluster.kubectl(patch).await?;
    Ok(namespace)
}
