//! Reads the few fields of a pod that matter.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::Pod;
use crate::endpoints::check_labels;
use crate::kubernetes::watch::Decode;

/// Reads pods; pods that are not ready are left out.
pub(super) struct DecodePod;

#[derive(Deserialize)]
struct PodObject {
    metadata: PodMetadata,
    status: Option<PodStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodMetadata {
    name: String,
    uid: String,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<PodAnnotations>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PodAnnotations {
    #[serde(rename = "llm-d.ai/active-ports")]
    active_ports: Option<String>,
    /// The annotation's earlier name.
    #[serde(rename = "inference.networking.k8s.io/active-ports")]
    earlier_active_ports: Option<String>,
}

#[derive(Deserialize)]
struct PodStatus {
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(rename = "hostIP")]
    host_ip: Option<String>,
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

impl PodObject {
    /// As the EPP counts: the condition `Ready` is true, and the pod is not about to be deleted.
    fn is_ready(&self) -> bool {
        let conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let mut ready = conditions.filter(|condition| condition.kind == "Ready");
        self.metadata.deletion_timestamp.is_none() && ready.any(|condition| condition.status == "True")
    }
}

impl Decode for DecodePod {
    type Value = Pod;

    fn decode(&self, json: &str) -> Result<Option<Pod>, String> {
        let pod: PodObject = serde_json::from_str(json).map_err(|error| error.to_string())?;
        if !pod.is_ready() {
            return Ok(None);
        }
        let PodObject { metadata, status } = pod;
        let Some((Some(ip), node)) = status.map(|status| (status.pod_ip, status.host_ip)) else {
            return Ok(None);
        };
        let ip: IpAddr = ip.parse().map_err(|_| format!("{ip:?} is not an IP address"))?;
        // Only an exporter on the node needs it, so a pod is not refused for it.
        let node = node.and_then(|ip| ip.parse().ok());
        let labels = metadata.labels.unwrap_or_default();
        check_labels(&labels)?;
        let active_ports = metadata
            .annotations
            .and_then(|annotations| annotations.active_ports.or(annotations.earlier_active_ports));
        Ok(Some(Pod { name: metadata.name, uid: metadata.uid.into(), ip, labels, active_ports, node }))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value as Json, json};

    use super::*;

    fn pod() -> Json {
        json!({
            "metadata": {
                "name": "llama-0", "uid": "u", "resourceVersion": "1", "labels": {"app": "llama"},
                "annotations": {"kubernetes.io/psp": "x"}, "managedFields": [],
            },
            "spec": {"containers": []},
            "status": {
                "phase": "Running", "podIP": "10.0.0.1", "hostIP": "192.0.2.7",
                "conditions": [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}],
            },
        })
    }

    fn decode(pod: &Json) -> Result<Option<Pod>, String> {
        DecodePod.decode(&pod.to_string())
    }

    #[test]
    fn a_ready_pod_has_an_address_labels_and_active_ports() {
        let mut object = pod();
        let expected = Pod {
            name: "llama-0".to_owned(),
            uid: "u".into(),
            ip: "10.0.0.1".parse().unwrap(),
            labels: [("app".to_owned(), "llama".to_owned())].into(),
            active_ports: None,
            node: Some("192.0.2.7".parse().unwrap()),
        };
        assert_eq!(decode(&object), Ok(Some(expected.clone())));
        let annotations = &mut object["metadata"]["annotations"];
        annotations["inference.networking.k8s.io/active-ports"] = "8001".into();
        let earlier = Pod { active_ports: Some("8001".to_owned()), ..expected.clone() };
        assert_eq!(decode(&object), Ok(Some(earlier)));
        object["metadata"]["annotations"]["llm-d.ai/active-ports"] = "8000,8001".into();
        let both = Pod { active_ports: Some("8000,8001".to_owned()), ..expected };
        assert_eq!(decode(&object), Ok(Some(both)));
        object["status"]["podIP"] = "2001:db8::1".into();
        assert_eq!(decode(&object).unwrap().unwrap().ip.to_string(), "2001:db8::1");
    }

    #[test]
    fn a_pod_that_is_not_ready_is_left_out() {
        let unready: [(&str, Json); 9] = [
            ("/metadata/deletionTimestamp", "2026-01-31T12:00:00Z".into()),
            ("/status/conditions/1/status", "False".into()),
            ("/status/conditions/1/status", "Unknown".into()),
            ("/status/conditions/1/type", "ContainersReady".into()),
            ("/status/conditions", Json::Null),
            ("/status/conditions", json!([])),
            ("/status/podIP", Json::Null),
            ("/status", json!({})),
            ("/status", Json::Null),
        ];
        for (path, value) in unready {
            let mut object = pod();
            let (parent, field) = path.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[field] = value.clone();
            assert_eq!(decode(&object), Ok(None), "{path}: {value}");
        }
    }

    #[test]
    fn a_pod_that_cannot_be_an_endpoint_is_refused_with_the_reason() {
        let many =
            (0..65).map(|key| (key.to_string(), Json::from(""))).collect::<serde_json::Map<_, _>>().into();
        for (path, value, reason) in [
            ("/status/podIP", Json::from("localhost"), "\"localhost\" is not an IP address"),
            ("/status/podIP", "".into(), "\"\" is not an IP address"),
            ("/metadata/labels", many, "65 labels; allowed are at most 64"),
            (
                "/metadata/labels",
                json!({"a": "x".repeat(1025)}),
                "\"a\" has 1025 bytes; allowed are 0 to 1024",
            ),
            ("/metadata/uid", Json::Null, "invalid type: null"),
        ] {
            let mut object = pod();
            *object.pointer_mut(path).unwrap() = value;
            let refusal = decode(&object).unwrap_err();
            assert!(refusal.contains(reason), "{path}: {refusal}");
        }
    }
}
