//! Objects as an API server has them.

use std::sync::Arc;

use metrics_agent_catalogue::cluster::{CatalogueSettings, ClusterCatalogue};
use metrics_agent_catalogue::{Plan, Refusal};
use metrics_agent_sources::kubernetes::{ClusterObject, ClusterObjects, ObjectId};
use serde_json::{Value as Json, json};

use crate::reading::options;

pub(crate) const OLD: &str = "2026-01-01T00:00:00Z";
pub(crate) const YOUNG: &str = "2026-02-01T00:00:00Z";

pub(crate) fn settings() -> CatalogueSettings {
    CatalogueSettings { namespace: "n".to_owned(), pool: None, options: options(), has_tls: false }
}

/// A catalogue that is given sets of objects.
pub(crate) struct Fixture(ClusterCatalogue);

pub(crate) struct Update {
    pub(crate) plan: Plan,
    pub(crate) refusals: Vec<Refusal>,
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new(settings())
    }
}

impl Fixture {
    pub(crate) fn new(settings: CatalogueSettings) -> Self {
        Self(ClusterCatalogue::new(settings))
    }

    pub(crate) fn set(&mut self, objects: impl IntoIterator<Item = ClusterObject>) -> Update {
        self.0.set_objects(&cluster(objects));
        let (plan, refusals) = self.0.plan();
        Update { plan, refusals }
    }
}

pub(crate) fn cluster(objects: impl IntoIterator<Item = ClusterObject>) -> ClusterObjects {
    let mut objects: Vec<_> = objects.into_iter().map(Arc::new).collect();
    objects.sort_by(|a, b| a.id.cmp(&b.id));
    ClusterObjects(objects)
}

pub(crate) fn named(plan: &Plan) -> Vec<&str> {
    plan.pools.iter().map(|pool| pool.name.as_str()).collect()
}

pub(crate) fn object(
    api_version: &str,
    kind: &str,
    namespace: &str,
    name: &str,
    created: &str,
    spec: &Json,
) -> ClusterObject {
    let id = ObjectId {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let metadata = json!({"name": name, "namespace": namespace, "creationTimestamp": created});
    let json = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
    let uid = format!("{kind}-{namespace}-{name}");
    ClusterObject { id, uid, generation: Some(1), resource_version: "1".to_owned(), json }
}

pub(crate) fn pool(namespace: &str, name: &str, created: &str) -> ClusterObject {
    let spec = json!({"selector": {"matchLabels": {"app": name}}, "targetPorts": [{"number": 8000}]});
    object("inference.networking.k8s.io/v1", "InferencePool", namespace, name, created, &spec)
}

pub(crate) fn objective(namespace: &str, name: &str, pool: &str, priority: i32) -> ClusterObject {
    let spec = json!({"priority": priority, "poolRef": {"name": pool}});
    object("llm-d.ai/v1alpha2", "InferenceObjective", namespace, name, OLD, &spec)
}

pub(crate) fn rewrite(namespace: &str, name: &str, pool: &str, target: &str) -> ClusterObject {
    let spec = json!({"poolRef": {"name": pool}, "rules": [{"targets": [{"modelRewrite": target}]}]});
    object("llm-d.ai/v1alpha2", "InferenceModelRewrite", namespace, name, OLD, &spec)
}

pub(crate) fn model(
    namespace: &str,
    name: &str,
    pool: &str,
    model: &str,
    target: &str,
    created: &str,
) -> ClusterObject {
    let spec = json!({"modelName": model, "poolRef": {"name": pool}, "targetModels": [{"name": target}]});
    object("inference.networking.x-k8s.io/v1alpha2", "InferenceModel", namespace, name, created, &spec)
}

pub(crate) fn config(metadata: &str, plugin: &str) -> String {
    format!(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{metadata}\nplugins: [{{type: {plugin}}}]\n"
    )
}

pub(crate) fn config_map(namespace: &str, name: &str, data: &[(&str, String)]) -> ClusterObject {
    let mut object = object("v1", "ConfigMap", namespace, name, OLD, &Json::Null);
    object.generation = None;
    let data = data.iter().map(|(key, text)| ((*key).to_owned(), text.clone().into()));
    object.json["data"] = data.collect::<serde_json::Map<_, _>>().into();
    object
}
