//! The two files that list endpoints: the one that the agent reads, and the one that it writes for Envoy.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use tempfile::NamedTempFile;

/// Writes the agent's endpoints file. Pools can select endpoints by the label `side`: the first is `left`,
/// the second `right`, and so on by turns.
pub fn write_discovery(path: &Path, endpoints: &[SocketAddr]) -> Result<()> {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .zip(["left", "right"].into_iter().cycle())
        .map(|(endpoint, side)| {
            let (ip, port) = (endpoint.ip().to_string(), endpoint.port().to_string());
            let labels = json!({"side": side});
            json!({"name": format!("server-{port}"), "address": ip, "port": port, "labels": labels})
        })
        .collect();
    replace(path, &json!({"endpoints": endpoints}).to_string())
}

/// Writes Envoy's endpoints of the cluster `model-servers`, in the agent's place.
pub fn write_eds(path: &Path, endpoints: &[SocketAddr]) -> Result<()> {
    let endpoints: Vec<Value> = endpoints
        .iter()
        .map(|endpoint| {
            let address = json!({"address": endpoint.ip().to_string(), "port_value": endpoint.port()});
            json!({"endpoint": {"address": {"socket_address": address}}})
        })
        .collect();
    let assignment = json!({
        "@type": "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
        "cluster_name": "model-servers",
        "endpoints": [{"lb_endpoints": endpoints}],
    });
    replace(path, &json!({"resources": [assignment]}).to_string())
}

/// Replaces a file in one step: readers see the old or the new one, and Envoy's watch sees the move. JSON is
/// YAML too.
pub(crate) fn replace(path: &Path, content: &str) -> Result<()> {
    let folder = path.parent().context("a file has a folder")?;
    let mut file = NamedTempFile::new_in(folder)?;
    file.write_all(content.as_bytes())?;
    file.persist(path).with_context(|| format!("write {}", path.display()))?;
    Ok(())
}
