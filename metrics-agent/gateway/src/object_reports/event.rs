//! Events on refused objects, as `kubectl describe` shows them.

use std::collections::HashSet;

use hyper::Method;
use jiff::Timestamp;
use metrics_agent_catalogue::{Refusal, Refusals};
use metrics_agent_sources::kubernetes::{ApiError, Client, ObjectId};
use metrics_agent_sources::manifests::Source;
use serde_json::{Value as Json, json};
use tokio::sync::watch;
use xxhash_rust::xxh64::xxh64;

use super::{AGENT, LoggedError, PAUSE, RETRY, changed};

/// Maximum length of `note`, in bytes, as the API allows.
const MAX_NOTE_BYTES: usize = 1024;

/// Maximum length of the part of an object's name in the name of its Event, in bytes: a dot and 16 digits
/// follow, and Kubernetes allows 253 bytes.
const MAX_NAME_BYTES: usize = 236;

/// An Event to create. Equal refusals have Events of equal names, so of several replicas only the first
/// creates one.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectEvent {
    namespace: String,
    name: String,
    body: Json,
}

impl ObjectEvent {
    /// The Event of a refusal; `None` for a file, which has no object. `instance` is the name of this
    /// replica.
    pub fn of(refusal: &Refusal, instance: &str, now: Timestamp) -> Option<Self> {
        let (id, field) = match &refusal.source {
            Source::File(_) => return None,
            Source::Object(id) => (id, None),
            Source::ConfigMapKey(id, key) => (id, Some(format!("data[{key}]"))),
        };
        let ObjectId { api_version, kind, namespace, name } = &**id;
        let note = cut(refusal.to_string(), MAX_NOTE_BYTES);
        let key = format!("{:?} {:?} {field:?} {note}", refusal.uid, refusal.generation);
        let event_name = format!("{}.{:016x}", cut(name.clone(), MAX_NAME_BYTES), xxh64(key.as_bytes(), 0));
        let mut regarding = json!({
            "apiVersion": api_version, "kind": kind, "namespace": namespace, "name": name,
        });
        let optional = [("uid", refusal.uid.clone()), ("fieldPath", field)];
        for (field, value) in optional.into_iter().filter_map(|(field, value)| Some((field, value?))) {
            regarding[field] = value.into();
        }
        let body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": event_name, "namespace": namespace},
            "eventTime": format!("{now:.6}"),
            "reportingController": AGENT,
            "reportingInstance": instance,
            "action": "Read",
            "reason": "Refused",
            "type": "Warning",
            "regarding": regarding,
            "note": note,
        });
        Some(Self { namespace: namespace.clone(), name: event_name, body })
    }

    async fn create(&self, client: &Client) -> Result<(), ApiError> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.namespace);
        match client.send(Method::POST, &path, "application/json", self.body.to_string().into_bytes()).await {
            // Another replica has created it, or this replica before a restart.
            Ok(_) | Err(ApiError::Status { code: 409, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Creates an Event for each new reason, forever. `instance` is the name of this replica.
pub async fn report(client: Client, instance: String, mut refusals: watch::Receiver<Refusals>) {
    let mut created: HashSet<String> = HashSet::new();
    let mut logged = LoggedError::default();
    loop {
        let current = refusals.borrow_and_update().clone();
        let events =
            current.iter().filter_map(|refusal| ObjectEvent::of(refusal, &instance, Timestamp::now()));
        let events: Vec<_> = events.collect();
        created.retain(|name| events.iter().any(|event| event.name == *name));
        let mut failed = false;
        for event in &events {
            if created.contains(&event.name) {
                continue;
            }
            match event.create(&client).await {
                Ok(()) => drop(created.insert(event.name.clone())),
                Err(error) => {
                    logged.log("an Event on a refused object was not created (--kubernetes-events)", error);
                    failed = true;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
        if !failed {
            logged.clear();
        }
        if failed {
            let _ = tokio::time::timeout(RETRY, changed(&mut refusals)).await;
        } else {
            changed(&mut refusals).await;
        }
    }
}

fn cut(mut text: String, max: usize) -> String {
    let end = (0..=max.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn refusal(reason: &str) -> Refusal {
        let id = ObjectId {
            api_version: "llm-d.ai/v1alpha2".to_owned(),
            kind: "InferenceObjective".to_owned(),
            namespace: "team-a".to_owned(),
            name: "batch".to_owned(),
        };
        Refusal {
            source: Source::Object(Arc::new(id)),
            uid: Some("u-1".to_owned()),
            generation: Some(2),
            reasons: vec![reason.to_owned()],
            earlier_in_force: true,
        }
    }

    fn event(refusal: &Refusal, instance: &str) -> ObjectEvent {
        ObjectEvent::of(refusal, instance, "2026-11-23T05:00:00.1234567Z".parse().unwrap()).unwrap()
    }

    #[test]
    fn an_event_names_the_object_and_the_reason() {
        let ObjectEvent { namespace, name, body } = event(&refusal("spec.priority: 1e9"), "agent-0");
        assert_eq!(namespace, "team-a");
        assert!(name.starts_with("batch.") && name.len() == 22, "{name}");
        let regarding = json!({
            "apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceObjective", "namespace": "team-a", "name": "batch", "uid": "u-1",
        });
        assert_eq!(body["regarding"], regarding);
        assert_eq!(body["note"], "spec.priority: 1e9; its last valid version stays in force");
        assert_eq!(body["eventTime"], "2026-11-23T05:00:00.123456Z");
        assert_eq!(body["reportingInstance"], "agent-0");
    }

    #[test]
    fn the_name_depends_on_object_version_and_reason_and_not_on_the_replica() {
        let one = refusal("x");
        let name = event(&one, "agent-0").name;
        assert_eq!(event(&one, "agent-1").name, name);
        let others = [
            refusal("y"),
            Refusal { generation: Some(3), ..one.clone() },
            Refusal { uid: Some("u-2".to_owned()), ..one.clone() },
            Refusal { earlier_in_force: false, ..one.clone() },
        ];
        for other in others {
            assert_ne!(event(&other, "agent-0").name, name, "{other:?}");
        }
    }

    #[test]
    fn names_and_notes_have_the_lengths_that_the_api_allows() {
        let mut long = refusal(&"\u{e9}".repeat(2000));
        let id = ObjectId {
            api_version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: "n".to_owned(),
            name: "a".repeat(253),
        };
        long.source = Source::ConfigMapKey(Arc::new(id), "config.yaml".into());
        let event = event(&long, "agent-0");
        assert_eq!(event.name.len(), 253);
        assert_eq!(event.body["note"].as_str().unwrap().len(), MAX_NOTE_BYTES);
        assert_eq!(event.body["regarding"]["fieldPath"], "data[config.yaml]");
        let file = Refusal { source: Source::File(std::path::Path::new("m.yaml").into()), ..long };
        assert_eq!(ObjectEvent::of(&file, "agent-0", Timestamp::UNIX_EPOCH), None);
    }
}
