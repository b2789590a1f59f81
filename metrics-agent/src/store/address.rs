//! The address of a store.

use core::fmt;
use std::path::PathBuf;

use redis::{ConnectionInfo, IntoConnectionInfo};

/// The address of a store: its nodes, and how they belong together.
#[derive(Clone)]
pub struct StoreAddress {
    /// One or more, with their credentials.
    pub(crate) nodes: Vec<ConnectionInfo>,
    /// What the nodes are.
    pub(crate) kind: Nodes,
    /// Authorities of the nodes' certificates, in PEM; `None`: the system's.
    pub(crate) authorities: Option<PathBuf>,
}

/// What the nodes of a store are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// The one server.
    Single,
    /// Some nodes of a cluster, which name the others.
    Cluster,
    /// Sentinels, which name the primary of this service.
    Sentinels(String),
}

impl fmt::Debug for StoreAddress {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreAddress").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl fmt::Display for StoreAddress {
    /// The nodes without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.nodes.iter().enumerate() {
            let separator = if index > 0 { "," } else { "" };
            write!(f, "{separator}{}", node.addr())?;
        }
        Ok(())
    }
}

impl StoreAddress {
    /// Parses URLs, separated by commas: `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, or `rediss://…` for TLS. The error does not
    /// contain the URL, which may have a password.
    pub fn parse(urls: &str) -> Result<Self, String> {
        let node = |url: &str| {
            let url = url.trim();
            let is_tcp = url.starts_with("redis://") || url.starts_with("rediss://");
            is_tcp.then(|| url.into_connection_info().ok()).flatten()
        };
        let nodes: Option<Vec<ConnectionInfo>> = urls.split(',').map(node).collect();
        let nodes = nodes.ok_or_else(|| {
            "allowed is off, agent, or URLs separated by commas, such as redis://10.0.0.9:6379 or rediss://USER:PASSWORD@HOST"
                .to_owned()
        })?;
        Ok(Self { nodes, kind: Nodes::Single, authorities: None })
    }

    /// The same nodes as nodes of this kind, with these authorities of their certificates. Refuses several servers that are not a
    /// cluster or sentinels.
    pub fn with(self, kind: Nodes, authorities: Option<PathBuf>) -> Result<Self, String> {
        if kind == Nodes::Single && self.nodes.len() > 1 {
            return Err(
                "--share names several servers; required is --share-cluster or --share-sentinel".to_owned()
            );
        }
        Ok(Self { kind, authorities, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_nodes_and_are_printed_without_credentials() {
        let address =
            StoreAddress::parse("redis://user:secret@10.0.0.9:6380/2, rediss://valkey.example").unwrap();
        assert_eq!(address.to_string(), "10.0.0.9:6380,valkey.example:6379");
        let printed = format!("{address:?} {address}");
        assert!(!printed.contains("secret") && !printed.contains("user"), "{printed}");
        assert!(address.clone().with(Nodes::Single, None).is_err());
        assert_eq!(address.with(Nodes::Cluster, None).unwrap().kind, Nodes::Cluster);
    }

    #[test]
    fn other_urls_are_refused_without_being_printed() {
        for urls in [
            "",
            "10.0.0.9:6379",
            "http://10.0.0.9",
            "redis://h:secret:x",
            "redis://a,secret",
            "unix:///secret",
        ] {
            let refusal = StoreAddress::parse(urls).unwrap_err();
            assert!(refusal.contains("redis://10.0.0.9:6379") && !refusal.contains("secret"), "{refusal}");
        }
    }
}
