//! How the objects of a cluster are read.

use crate::catalogue::manifests::scope::Scope;
use crate::catalogue::options::Options;

/// How the objects of a cluster are read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace of pools that are named without one.
    pub namespace: String,
    /// The only pool to serve, `name` or `namespace/name`; `None`: all of them.
    pub pool: Option<String>,
    /// Options for reading manifests.
    pub options: Options,
    /// Whether the flags set up TLS to model servers.
    pub has_tls: bool,
}

impl Settings {
    /// The scope of manifests in the agent's own namespace.
    pub(super) fn scope(&self) -> Scope {
        Scope::Cluster { namespace: self.namespace.clone() }
    }

    /// Namespace and name of the only pool.
    pub(super) fn only_pool(&self) -> Option<(&str, &str)> {
        let pool = self.pool.as_deref()?;
        Some(pool.split_once('/').unwrap_or((&self.namespace, pool)))
    }
}
