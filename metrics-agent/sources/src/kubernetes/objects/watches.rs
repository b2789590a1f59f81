//! One watch for each kind and namespace.

use std::sync::Arc;

use metrics_agent_support::files::MAX_BYTES;
use metrics_agent_support::runtime::Tasks;
use serde::Deserialize;
use serde_json::Value as Json;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::{
    BASE_MODEL_LABEL, CONFIG_MAP, ClusterObject, ConfigMaps, KINDS, MAX_OBJECTS, ObjectId, ObjectStore,
    ObjectsResult, PickerConfigMap, ROUTES,
};
use crate::kubernetes::Namespaces;
use crate::kubernetes::client::Client;
use crate::kubernetes::watch::{Decode, Resource, Selector, Watch, WatchMetrics, WatchTarget};

/// The watches of all kinds, until dropped.
#[derive(Debug)]
pub struct ObjectWatches {
    store: Arc<ObjectStore>,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

impl ObjectWatches {
    pub(in crate::kubernetes) fn start(
        client: &Client,
        namespaces: &Namespaces,
        config_maps: ConfigMaps,
        tasks: &Tasks,
        metrics: &WatchMetrics,
    ) -> Self {
        Self::of_targets(client, targets(&KINDS, namespaces, config_maps), tasks, metrics)
    }

    /// Watches the routes that lead to pools.
    pub(in crate::kubernetes) fn of_routes(
        client: &Client,
        namespaces: &Namespaces,
        tasks: &Tasks,
        metrics: &WatchMetrics,
    ) -> Self {
        Self::of_targets(client, targets(&[ROUTES], namespaces, ConfigMaps::default()), tasks, metrics)
    }

    fn of_targets(client: &Client, targets: Vec<WatchTarget>, tasks: &Tasks, metrics: &WatchMetrics) -> Self {
        let store = Arc::new(ObjectStore::new(targets.iter().map(WatchTarget::to_string)));
        let start = |(index, target): (usize, WatchTarget)| {
            let store = Arc::clone(&store);
            let decode = DecodeObject { resource: target.resource };
            let name = format!("watch of {target}");
            let update = move |update| store.update(index, update);
            let watch = Watch::new(client.clone(), target, decode, MAX_OBJECTS, metrics.clone(), update);
            tasks.spawn(name, watch.run())
        };
        let tasks = targets.into_iter().enumerate().map(start).collect();
        Self { store, _tasks: tasks }
    }

    /// Receives the objects of all watches.
    pub fn objects(&self) -> watch::Receiver<ObjectsResult> {
        self.store.objects()
    }
}

fn targets(kinds: &[Resource], namespaces: &Namespaces, config_maps: ConfigMaps) -> Vec<WatchTarget> {
    let ConfigMaps { picker, base_models } = config_maps;
    let selected = |resource: Resource, selector: &Selector| {
        let target = |namespace| WatchTarget { resource, namespace, selector: selector.clone() };
        match namespaces {
            Namespaces::All => vec![target(None)],
            Namespaces::Named(names) => names.iter().cloned().map(Some).map(target).collect(),
        }
    };
    let labelled = Selector::Labels(format!("{BASE_MODEL_LABEL}=true"));
    let labelled = base_models.then(|| selected(CONFIG_MAP, &labelled));
    let picker = picker.map(|PickerConfigMap { namespace, name }| WatchTarget {
        resource: CONFIG_MAP,
        namespace: Some(namespace),
        selector: Selector::Name(name),
    });
    let of_kinds = kinds.iter().flat_map(|&resource| selected(resource, &Selector::All));
    of_kinds.chain(labelled.into_iter().flatten()).chain(picker).collect()
}

/// Reads the objects of one kind.
pub(super) struct DecodeObject {
    pub(super) resource: Resource,
}

#[derive(Deserialize)]
struct Identity {
    metadata: ObjectMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMetadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    generation: Option<i64>,
}

impl Decode for DecodeObject {
    type Value = ClusterObject;

    fn decode(&self, json: &str) -> Result<Option<ClusterObject>, String> {
        if json.len() > MAX_BYTES {
            return Err(format!("has {} bytes; allowed are {MAX_BYTES}", json.len()));
        }
        let malformed = |error: serde_json::Error| error.to_string();
        let Identity { metadata } = serde_json::from_str(json).map_err(malformed)?;
        let mut json: Json = serde_json::from_str(json).map_err(malformed)?;
        let (api_version, kind) = (self.resource.api_version(), self.resource.kind.to_owned());
        if let Some(fields) = json.as_object_mut() {
            // Items of lists lack them.
            fields.insert("apiVersion".to_owned(), api_version.clone().into());
            fields.insert("kind".to_owned(), kind.clone().into());
        }
        if let Some(metadata) = json.get_mut("metadata").and_then(Json::as_object_mut) {
            // Often longer than everything else, and of no use here.
            metadata.remove("managedFields");
        }
        let ObjectMetadata { name, namespace, uid, resource_version, generation } = metadata;
        let id = ObjectId { api_version, kind, namespace, name };
        Ok(Some(ClusterObject { id, uid, generation, resource_version, json }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::objects::{CONFIG_MAP, KINDS};

    #[test]
    fn every_kind_is_watched_in_every_namespace_and_one_config_map() {
        let picker = PickerConfigMap { namespace: "a".to_owned(), name: "picker".to_owned() };
        let config_maps = ConfigMaps { picker: Some(picker), base_models: true };
        let named = Namespaces::Named(["a", "b"].map(str::to_owned).into());
        let targets = targets(&KINDS, &named, config_maps);
        assert_eq!(targets.len(), 2 * KINDS.len() + 3);
        let names: Vec<_> = targets.iter().map(WatchTarget::to_string).collect();
        assert_eq!(names[1], r#"inferencepools.inference.networking.k8s.io in "b""#);
        assert_eq!(names.last().unwrap(), r#"configmaps in "a" named "picker""#);
        let labelled = r#"configmaps in "b" with "inference.networking.k8s.io/bbr-managed=true""#;
        assert_eq!(names[names.len() - 2], labelled);
        assert_eq!(super::targets(&KINDS, &Namespaces::All, ConfigMaps::default()).len(), KINDS.len());
    }

    #[test]
    fn an_item_of_a_list_becomes_a_whole_object() {
        let metadata = json!({
            "name": "llama", "namespace": "team-a", "uid": "u", "resourceVersion": "12", "generation": 3,
            "labels": {"app": "x"}, "managedFields": [{"manager": "kubectl"}],
        });
        let item = json!({"metadata": metadata, "spec": {"targetPorts": [{"number": 8000}]}}).to_string();
        let decode = DecodeObject { resource: KINDS[0] };
        let object = decode.decode(&item).unwrap().unwrap();
        assert_eq!(object.id.to_string(), "InferencePool team-a/llama");
        assert_eq!(object.id.api_version, "inference.networking.k8s.io/v1");
        let version = (object.uid.as_str(), object.generation, object.resource_version.as_str());
        assert_eq!(version, ("u", Some(3), "12"));
        assert_eq!(object.json["kind"], "InferencePool");
        assert_eq!(object.json["metadata"]["labels"]["app"], "x");
        assert_eq!(object.json["metadata"].get("managedFields"), None);
        assert_eq!(object.json["spec"]["targetPorts"][0]["number"], 8000);
        let refusal = decode.decode(&" ".repeat(MAX_BYTES + 1)).unwrap_err();
        assert_eq!(refusal, "has 4194305 bytes; allowed are 4194304");
    }

    #[test]
    fn a_config_map_has_no_group_and_no_generation() {
        let metadata = json!({"name": "picker", "namespace": "n", "uid": "u", "resourceVersion": "1"});
        let item = json!({"metadata": metadata, "data": {"a.yaml": "x"}}).to_string();
        let object = DecodeObject { resource: CONFIG_MAP }.decode(&item).unwrap().unwrap();
        assert_eq!((object.id.api_version.as_str(), object.generation), ("v1", None));
        assert_eq!(object.json["data"]["a.yaml"], "x");
    }
}
