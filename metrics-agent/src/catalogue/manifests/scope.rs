//! How manifests identify pools, and the namespace of a manifest that names none.

/// How manifests identify pools, and the namespace of a manifest that names none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Manifests of files alone: pools are identified by name.
    Files,
    /// Manifests of a cluster: pools are identified by namespace and name.
    Cluster {
        /// The namespace of manifests that name none.
        namespace: String,
    },
}

impl Scope {
    pub(crate) fn namespace_or_default(&self, given: Option<String>) -> String {
        given.unwrap_or_else(|| match self {
            Self::Files => "default".to_owned(),
            Self::Cluster { namespace } => namespace.clone(),
        })
    }

    /// The name of a pool in the plan.
    pub(crate) fn pool_name(&self, namespace: &str, name: &str) -> String {
        match self {
            Self::Files => name.to_owned(),
            Self::Cluster { .. } => format!("{namespace}/{name}"),
        }
    }
}
