//! Reads objects as they are; the catalogue reads their fields.

use serde::Deserialize;
use serde_json::Value as Json;

use super::{ClusterObject, ObjectId};
use crate::sources::kubernetes::watch::{Decode, Resource};

/// Reads the objects of one kind.
pub(super) struct DecodeObject {
    pub(super) resource: Resource,
    /// Most bytes of an object.
    pub(super) max_bytes: usize,
}

#[derive(Deserialize)]
struct Identity {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    generation: Option<i64>,
}

impl Decode for DecodeObject {
    type Value = ClusterObject;

    fn decode(&self, json: &str) -> Result<Option<ClusterObject>, String> {
        if json.len() > self.max_bytes {
            let (found, max) = (json.len(), self.max_bytes);
            return Err(format!("has {found} bytes; allowed are {max} (--max-file-bytes)"));
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
        let Metadata { name, namespace, uid, resource_version, generation } = metadata;
        let id = ObjectId { api_version, kind, namespace, name };
        Ok(Some(ClusterObject { id, uid, generation, resource_version, json }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kinds::{CONFIG_MAP, KINDS};
    use super::*;

    #[test]
    fn an_item_of_a_list_becomes_a_whole_object() {
        let metadata = json!({
            "name": "llama", "namespace": "team-a", "uid": "u", "resourceVersion": "12", "generation": 3,
            "labels": {"app": "x"}, "managedFields": [{"manager": "kubectl"}],
        });
        let item = json!({"metadata": metadata, "spec": {"targetPorts": [{"number": 8000}]}}).to_string();
        let decode = DecodeObject { resource: KINDS[0], max_bytes: item.len() };
        let object = decode.decode(&item).unwrap().unwrap();
        assert_eq!(object.id.to_string(), "InferencePool team-a/llama");
        assert_eq!(object.id.api_version, "inference.networking.k8s.io/v1");
        let version = (object.uid.as_str(), object.generation, object.resource_version.as_str());
        assert_eq!(version, ("u", Some(3), "12"));
        assert_eq!(object.json["kind"], "InferencePool");
        assert_eq!(object.json["metadata"]["labels"]["app"], "x");
        assert_eq!(object.json["metadata"].get("managedFields"), None);
        assert_eq!(object.json["spec"]["targetPorts"][0]["number"], 8000);
        let refusal = DecodeObject { max_bytes: item.len() - 1, ..decode }.decode(&item).unwrap_err();
        assert!(refusal.contains("--max-file-bytes"), "{refusal}");
    }

    #[test]
    fn a_config_map_has_no_group_and_no_generation() {
        let metadata = json!({"name": "picker", "namespace": "n", "uid": "u", "resourceVersion": "1"});
        let item = json!({"metadata": metadata, "data": {"a.yaml": "x"}}).to_string();
        let object = DecodeObject { resource: CONFIG_MAP, max_bytes: 1000 }.decode(&item).unwrap().unwrap();
        assert_eq!((object.id.api_version.as_str(), object.generation), ("v1", None));
        assert_eq!(object.json["data"]["a.yaml"], "x");
    }
}
