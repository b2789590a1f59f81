//! The token of agents and proxies.

use crate::cluster::Cluster;
use anyhow::Result;
use serde_json::{Map, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A Secret with the agents' token, as the documentation describes it, and the files that proxies read of it:
/// Envoy is a process of this machine, into which no Secret is mounted.
#[derive(Debug)]
pub struct ProxyToken {
    folder: TempDir,
}

impl ProxyToken {
    /// The name of the Secret.
    pub const SECRET: &str = "agent-token";

    /// Makes both; the namespace is the agents'.
    pub async fn create(cluster: &Cluster, namespace: &str) -> Result<Self> {
        const TOKEN: &str = "of-this-test";
        let envoy = json!({"resources": [{
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            "name": "agent-token",
            "generic_secret": {"secret": {"inline_string": format!("Bearer {TOKEN}")}},
        }]});
        let folder = tempfile::tempdir()?;
        let mut data = Map::new();
        for (name, text) in [("token", TOKEN.to_owned()), ("envoy.yaml", envoy.to_string())] {
            fs::write(folder.path().join(name), &text)?;
            data.insert(name.to_owned(), text.into());
        }
        let metadata = json!({"name": Self::SECRET});
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data});
        cluster.apply(namespace, &secret.to_string()).await?;
        Ok(Self { folder })
    }

    /// The folder of its files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}
