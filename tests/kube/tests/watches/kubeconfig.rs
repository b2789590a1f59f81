//! Kubeconfigs next to the cluster's own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use endpoint_picker_kube::Cluster;
use serde_json::{Value, json};

/// The cluster's own, with the API server at another address.
pub(crate) fn through(cluster: &Cluster, server: SocketAddr, folder: &Path) -> PathBuf {
    let mut config: Value = serde_json::from_slice(&fs::read(cluster.kubeconfig()).unwrap()).unwrap();
    config["clusters"][0]["cluster"]["server"] = format!("https://{server}").into();
    write(&config, folder)
}

/// Kubeconfig of the bearer of a token, with this namespace in its context.
pub(crate) fn of_token(cluster: &Cluster, namespace: &str, token: &str, folder: &Path) -> PathBuf {
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "agent",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://{}", cluster.api_server()), "certificate-authority": cluster.authority(),
        }}],
        "users": [{"name": "agent", "user": {"token": token}}],
        "contexts": [{"name": "agent", "context": {"cluster": "test", "user": "agent", "namespace": namespace}}],
    });
    write(&config, folder)
}

fn write(config: &Value, folder: &Path) -> PathBuf {
    let path = folder.join("kubeconfig");
    fs::write(&path, config.to_string()).unwrap();
    path
}
