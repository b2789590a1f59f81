//! The objects that describe pools and their policies.

mod watches;

use core::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value as Json;
use tokio::sync::watch;
pub use watches::ObjectWatches;

use super::watch::{Resource, Update};

/// Maximum number of objects of one kind in a namespace.
pub const MAX_OBJECTS: usize = 4096;

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
    /// Its identity now. A deleted object that is created again has the same identity and another
    /// [`Self::uid`].
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

/// Identifies an object among all objects of the same time.
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

/// Text for messages: `InferencePool team-a/llama`.
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

/// The label of `ConfigMap`s that name a base model and its adapters; its value is `true`.
pub const BASE_MODEL_LABEL: &str = "inference.networking.k8s.io/bbr-managed";

/// The `ConfigMap`s that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMaps {
    /// The one with picker configurations.
    pub picker: Option<PickerConfigMap>,
    /// Whether those of base models are read.
    pub base_models: bool,
}

const POOLS: &str = "inference.networking.k8s.io";
/// The group of the older versions, and of the other kinds before they moved.
const EXPERIMENTAL: &str = "inference.networking.x-k8s.io";
const LLM_D: &str = "llm-d.ai";

/// The kinds that describe pools and their policies, in each of their groups.
const KINDS: [Resource; 7] = [
    Resource {
        group: POOLS,
        version: "v1",
        kind: "InferencePool",
        name: "inferencepools.inference.networking.k8s.io",
    },
    Resource {
        group: EXPERIMENTAL,
        version: "v1alpha2",
        kind: "InferencePool",
        name: "inferencepools.inference.networking.x-k8s.io",
    },
    Resource {
        group: LLM_D,
        version: "v1alpha2",
        kind: "InferenceObjective",
        name: "inferenceobjectives.llm-d.ai",
    },
    Resource {
        group: EXPERIMENTAL,
        version: "v1alpha2",
        kind: "InferenceObjective",
        name: "inferenceobjectives.inference.networking.x-k8s.io",
    },
    Resource {
        group: LLM_D,
        version: "v1alpha2",
        kind: "InferenceModelRewrite",
        name: "inferencemodelrewrites.llm-d.ai",
    },
    Resource {
        group: EXPERIMENTAL,
        version: "v1alpha2",
        kind: "InferenceModelRewrite",
        name: "inferencemodelrewrites.inference.networking.x-k8s.io",
    },
    Resource {
        group: EXPERIMENTAL,
        version: "v1alpha2",
        kind: "InferenceModel",
        name: "inferencemodels.inference.networking.x-k8s.io",
    },
];

/// The kind by which requests reach pools.
const ROUTES: Resource = Resource {
    group: "gateway.networking.k8s.io",
    version: "v1",
    kind: "HTTPRoute",
    name: "httproutes.gateway.networking.k8s.io",
};

/// The kind of the object with picker configurations, and of objects with base models.
const CONFIG_MAP: Resource = Resource { group: "", version: "v1", kind: "ConfigMap", name: "configmaps" };

/// Gathers the objects of all watches, and publishes them once each watch has listed its objects or has none
/// to list.
#[derive(Debug)]
struct ObjectStore {
    parts: Mutex<Vec<WatchedObjects>>,
    published: watch::Sender<ObjectsResult>,
}

/// The objects of one watch.
#[derive(Debug, Default)]
struct WatchedObjects {
    objects: Vec<Arc<ClusterObject>>,
    /// Why nothing was listed yet; `None`: it was, or there is nothing to list.
    pending: Option<String>,
}

impl ObjectStore {
    /// No objects yet, of watches with these names.
    fn new(watches: impl Iterator<Item = String>) -> Self {
        let part = |name| WatchedObjects { objects: Vec::new(), pending: Some(name) };
        let parts: Vec<_> = watches.map(part).collect();
        let published = watch::Sender::new(gather(&parts));
        Self { parts: Mutex::new(parts), published }
    }

    /// Receives the objects of all watches.
    fn objects(&self) -> watch::Receiver<ObjectsResult> {
        self.published.subscribe()
    }

    /// Takes over what the watch of this index reports.
    fn update(&self, index: usize, update: Update<ClusterObject>) {
        let mut parts = self.parts.lock();
        let Some(part) = parts.get_mut(index) else { return };
        match update {
            Update::Objects(objects) => *part = WatchedObjects { objects, pending: None },
            // The last objects stay.
            Update::Unavailable(_) | Update::Failed(_) if part.pending.is_none() => return,
            Update::Unavailable(_) => part.pending = None,
            Update::Failed(problem) => part.pending = Some(problem),
        }
        // Under the lock, so that an older gathering cannot replace a newer one.
        let _ = self.published.send_replace(gather(&parts));
    }
}

fn gather(parts: &[WatchedObjects]) -> ObjectsResult {
    let pending: Vec<_> = parts.iter().filter_map(|part| part.pending.as_deref()).collect();
    if !pending.is_empty() {
        return Err(format!("not listed yet: {}", pending.join("; ")));
    }
    let mut objects: Vec<_> = parts.iter().flat_map(|part| part.objects.iter().cloned()).collect();
    objects.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(Arc::new(ClusterObjects(objects)))
}

#[cfg(test)]
mod tests {
    use serde_json::Value as Json;

    use super::*;
    use crate::kubernetes::objects::ObjectId;

    fn object(kind: &str, name: &str) -> Arc<ClusterObject> {
        let id = ObjectId {
            api_version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
        };
        let resource_version = "1".to_owned();
        Arc::new(ClusterObject {
            id,
            uid: "u".to_owned(),
            generation: None,
            resource_version,
            json: Json::Null,
        })
    }

    fn names(store: &ObjectStore) -> Result<Vec<String>, String> {
        let objects = store.published.borrow().clone()?;
        Ok(objects.0.iter().map(|object| object.id.name.clone()).collect())
    }

    #[test]
    fn objects_are_published_when_every_watch_has_listed_or_has_nothing_to_list() {
        let store = ObjectStore::new(["b", "a", "c"].map(str::to_owned).into_iter());
        store.update(0, Update::Objects(vec![object("B", "x"), object("B", "y")]));
        assert_eq!(names(&store).unwrap_err(), "not listed yet: a; c");
        store.update(1, Update::Failed("a: cannot reach the API server".to_owned()));
        assert_eq!(names(&store).unwrap_err(), "not listed yet: a: cannot reach the API server; c");
        store.update(2, Update::Unavailable("c: 404".to_owned()));
        store.update(1, Update::Objects(vec![object("A", "z")]));
        assert_eq!(names(&store).unwrap(), ["z", "x", "y"]);
        // A kind that is installed later.
        store.update(2, Update::Objects(vec![object("C", "w")]));
        assert_eq!(names(&store).unwrap(), ["z", "x", "y", "w"]);
    }

    #[test]
    fn objects_stay_while_a_watch_fails() {
        let store = ObjectStore::new(["a"].map(str::to_owned).into_iter());
        store.update(0, Update::Objects(vec![object("A", "x")]));
        let mut receiver = store.objects();
        receiver.mark_unchanged();
        for update in [Update::Failed(String::new()), Update::Unavailable(String::new())] {
            store.update(0, update);
            assert!(!receiver.has_changed().unwrap());
        }
        assert_eq!(names(&store).unwrap(), ["x"]);
        store.update(0, Update::Objects(Vec::new()));
        assert_eq!(names(&store).unwrap(), [""; 0]);
    }
}
