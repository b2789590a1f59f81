//! The objects that describe pools and their policies.

mod decode;
mod kinds;
mod store;
mod watches;

use core::fmt;
use std::sync::Arc;

use serde_json::Value as Json;
pub use watches::ObjectWatches;

/// The newest objects of all kinds; before every kind was listed once, which ones are missing.
pub type ObjectsResult = Result<Arc<ClusterObjects>, String>;

/// The objects of all watched kinds and namespaces, ordered by their identity.
///
/// The set is replaced as a whole. An object that did not change keeps its `Arc`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClusterObjects(pub Vec<Arc<ClusterObject>>);

/// One object, such as an `InferencePool`, or the `ConfigMap` with picker configurations.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterObject {
    /// What identifies it now. A deleted object that is created again has the same identity and another [`Self::uid`].
    pub id: ObjectId,
    /// Identifies the object for all time.
    pub uid: String,
    /// Number of the specification's version; `None` for kinds without one, such as `ConfigMap`.
    pub generation: Option<i64>,
    /// The version of the whole object. Compared for equality only.
    pub resource_version: String,
    /// The whole object, with `apiVersion`, `kind` and `metadata`.
    pub json: Json,
}

/// Identifies an object among those of the same time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// Group and version, such as `inference.networking.k8s.io/v1`; `v1` for a `ConfigMap`.
    pub api_version: String,
    /// The kind, such as `InferencePool`.
    pub kind: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// For messages: `InferencePool team-a/llama`.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// The `ConfigMap` with picker configurations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickerConfigMap {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}
