//! The conditions `Accepted` and `ResolvedRefs` in the status of a pool.

use core::fmt;

use hyper::Method;
use jiff::Timestamp;
use metrics_agent_catalogue::Refusal;
use metrics_agent_sources::kubernetes::{ApiError, Client, ClusterObject, ObjectId};
use serde_json::{Value as Json, json};

use super::AGENT;

/// Names in the status of a pool, which depend on the API's version.
struct StatusForm {
    /// The field with the list of parents.
    parents: &'static str,
    /// The reason for `Accepted` when it is false.
    refused: &'static str,
}

impl StatusForm {
    /// `None`: the version has no such status.
    fn of_version(api_version: &str) -> Option<Self> {
        match api_version {
            "inference.networking.k8s.io/v1" => {
                Some(Self { parents: "parents", refused: "NotSupportedByParent" })
            }
            "inference.networking.x-k8s.io/v1alpha2" => {
                Some(Self { parents: "parent", refused: "NotSupportedByGateway" })
            }
            _ => None,
        }
    }
}

const GATEWAY: &str = "gateway.networking.k8s.io";

/// Maximum length of a condition's `message`, in characters: the API allows 32 768 bytes, and a character has
/// up to four.
const MAX_MESSAGE_CHARS: usize = 8192;

/// The Gateway in whose name the status is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// `None`: the pool's namespace.
    pub namespace: Option<String>,
    /// The Gateway's name.
    pub name: String,
}

impl Parent {
    fn reference(&self, pool_namespace: &str) -> Json {
        let namespace = self.namespace.as_deref().unwrap_or(pool_namespace);
        json!({"group": GATEWAY, "kind": "Gateway", "namespace": namespace, "name": self.name})
    }
}

impl fmt::Display for Parent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A status to apply.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusPatch {
    path: String,
    body: Json,
}

impl StatusPatch {
    /// The status of a pool, if it has to change: the list of parents is empty or has only this parent, with
    /// another status.
    ///
    /// Parents are one list, which server-side apply gives to one owner. So where another controller reports
    /// on a parent, there is nothing to write.
    pub fn of(
        pool: &ClusterObject,
        parent: &Parent,
        refusal: Option<&Refusal>,
        now: Timestamp,
    ) -> Option<Self> {
        let api_version = pool.id.api_version.as_str();
        let form = StatusForm::of_version(api_version)?;
        let reference = parent.reference(&pool.id.namespace);
        let parents = pool.json.get("status").and_then(|status| status.get(form.parents)?.as_array());
        let own = match parents.map_or(&[][..], Vec::as_slice) {
            [] => None,
            // Written by the API server as a default.
            [default] if default.pointer("/parentRef/kind") == Some(&"Status".into()) => None,
            [own] if own.get("parentRef") == Some(&reference) => Some(own),
            _ => return None,
        };
        let current = own.and_then(|own| own.get("conditions")).and_then(Json::as_array);
        let current = current.map(Vec::as_slice);
        let conditions = conditions_with_times(conditions(pool, refusal, &form), current, now)?;
        Some(Self::new(pool, &json!({form.parents: [{"parentRef": reference, "conditions": conditions}]})))
    }

    /// The patch that applies this status to a pool.
    pub fn new(pool: &ClusterObject, status: &Json) -> Self {
        let ObjectId { api_version, namespace, name, .. } = &pool.id;
        let body = json!({
            "apiVersion": api_version,
            "kind": "InferencePool",
            "metadata": {"name": name, "namespace": namespace},
            "status": status,
        });
        let path = format!(
            "/apis/{api_version}/namespaces/{namespace}/inferencepools/{name}/status?fieldManager={AGENT}"
        );
        Self { path, body }
    }

    /// The object with the status.
    #[cfg(test)]
    pub fn body(&self) -> &Json {
        &self.body
    }

    pub(crate) async fn apply(&self, client: &Client) -> Result<(), ApiError> {
        let body = self.body.to_string().into_bytes();
        match client.send(Method::PATCH, &self.path, "application/apply-patch+yaml", body).await {
            // Another controller owns the parents, or the pool is gone.
            Ok(_) | Err(ApiError::Status { code: 409 | 404, .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// A condition of a pool without its time.
pub fn condition(pool: &ClusterObject, kind: &str, is_true: bool, reason: &str, message: &str) -> Json {
    json!({
        "type": kind,
        "status": if is_true { "True" } else { "False" },
        "reason": reason,
        "message": message.chars().take(MAX_MESSAGE_CHARS).collect::<String>(),
        "observedGeneration": pool.generation.unwrap_or(0),
    })
}

/// The conditions without their times.
fn conditions(pool: &ClusterObject, refusal: Option<&Refusal>, form: &StatusForm) -> [Json; 2] {
    let accepted = match refusal {
        Some(refusal) => condition(pool, "Accepted", false, form.refused, &refusal.to_string()),
        None => condition(pool, "Accepted", true, "Accepted", "the endpoint picker serves the pool"),
    };
    let message = "the endpoint picker runs in the gateway; the pool's own reference to one is not used";
    [accepted, condition(pool, "ResolvedRefs", true, "ResolvedRefs", message)]
}

/// The conditions with the times since when they have their status; `None`: they are equal to the current
/// ones.
pub(crate) fn conditions_with_times(
    mut conditions: [Json; 2],
    current: Option<&[Json]>,
    now: Timestamp,
) -> Option<[Json; 2]> {
    if current.is_some_and(|current| are_equal(current, &conditions)) {
        return None;
    }
    for condition in &mut conditions {
        let same = |other: &&Json| {
            other.get("type") == condition.get("type") && other.get("status") == condition.get("status")
        };
        let since = current.and_then(|current| current.iter().find(same)?.get("lastTransitionTime").cloned());
        condition["lastTransitionTime"] = since.unwrap_or_else(|| format!("{now:.0}").into());
    }
    Some(conditions)
}

/// Whether conditions are equal except for their times.
fn are_equal(current: &[Json], wanted: &[Json]) -> bool {
    const FIELDS: [&str; 5] = ["type", "status", "reason", "message", "observedGeneration"];
    current.len() == wanted.len()
        && wanted.iter().all(|wanted| {
            current.iter().any(|current| FIELDS.iter().all(|field| current.get(field) == wanted.get(field)))
        })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use metrics_agent_sources::manifests::Source;

    use super::*;

    const V1: &str = "inference.networking.k8s.io/v1";

    fn pool(status: &Json) -> ClusterObject {
        pool_of_version(V1, status)
    }

    fn pool_of_version(api_version: &str, status: &Json) -> ClusterObject {
        let id = ObjectId {
            api_version: api_version.to_owned(),
            kind: "InferencePool".to_owned(),
            namespace: "team-a".to_owned(),
            name: "llama".to_owned(),
        };
        let (uid, resource_version) = ("u".to_owned(), "1".to_owned());
        ClusterObject { id, uid, generation: Some(3), resource_version, json: json!({"status": status}) }
    }

    fn parent() -> Parent {
        Parent { namespace: None, name: "gateway".to_owned() }
    }

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    const FIRST: &str = "2026-11-23T05:00:00Z";
    const LATER: &str = "2026-11-23T06:00:00Z";

    fn refusal(pool: &ClusterObject) -> Refusal {
        Refusal {
            source: Source::Object(Arc::new(pool.id.clone())),
            uid: Some("u".to_owned()),
            generation: Some(3),
            reasons: vec!["spec.selector: is empty".to_owned()],
            earlier_in_force: false,
        }
    }

    /// The status after a patch.
    fn status(patch: &StatusPatch) -> Json {
        patch.body["status"].clone()
    }

    #[test]
    fn a_pool_without_parents_gets_both_conditions() {
        for empty in [
            Json::Null,
            json!({"parents": []}),
            json!({"parents": [{"parentRef": {"kind": "Status", "name": "default"}, "conditions": []}]}),
        ] {
            let patch = StatusPatch::of(&pool(&empty), &parent(), None, at(FIRST)).unwrap();
            assert_eq!(
                patch.path,
                "/apis/inference.networking.k8s.io/v1/namespaces/team-a/inferencepools/llama/status?fieldManager=endpoint-picker-agent"
            );
            let own = &patch.body["status"]["parents"][0];
            let reference = json!({
                "group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "team-a", "name": "gateway",
            });
            assert_eq!(own["parentRef"], reference);
            let accepted = json!({
                "type": "Accepted", "status": "True", "reason": "Accepted", "observedGeneration": 3,
                "message": "the endpoint picker serves the pool", "lastTransitionTime": FIRST,
            });
            assert_eq!(own["conditions"][0], accepted);
            assert_eq!(own["conditions"][1]["type"], "ResolvedRefs");
        }
    }

    #[test]
    fn the_experimental_version_has_other_names_and_further_versions_have_no_status() {
        let of = |version: &str, status: &Json, refusal: Option<&Refusal>| {
            StatusPatch::of(&pool_of_version(version, status), &parent(), refusal, at(FIRST))
        };
        let version = "inference.networking.x-k8s.io/v1alpha2";
        let default =
            json!({"parent": [{"parentRef": {"kind": "Status", "name": "default"}, "conditions": []}]});
        let patch = of(version, &default, None).unwrap();
        assert!(patch.path.starts_with(
            "/apis/inference.networking.x-k8s.io/v1alpha2/namespaces/team-a/inferencepools/llama/status?"
        ));
        assert_eq!(patch.body["apiVersion"], version);
        assert_eq!(patch.body["status"]["parent"][0]["conditions"][0]["status"], "True");
        assert_eq!(of(version, &status(&patch), None), None, "it is written already");
        let refusal = refusal(&pool_of_version(version, &Json::Null));
        let refused = of(version, &status(&patch), Some(&refusal)).unwrap();
        let accepted = &refused.body["status"]["parent"][0]["conditions"][0];
        assert_eq!(accepted["reason"], "NotSupportedByGateway");
        assert_eq!(of("inference.networking.x-k8s.io/v9", &Json::Null, None), None);
    }

    #[test]
    fn an_equal_status_is_not_written_again_and_a_new_one_keeps_the_times_of_equal_conditions() {
        let first = status(&StatusPatch::of(&pool(&Json::Null), &parent(), None, at(FIRST)).unwrap());
        let written = pool(&first);
        assert_eq!(StatusPatch::of(&written, &parent(), None, at(LATER)), None);
        let refused = StatusPatch::of(&written, &parent(), Some(&refusal(&written)), at(LATER)).unwrap();
        let conditions = &refused.body["status"]["parents"][0]["conditions"];
        assert_eq!(conditions[0]["status"], "False");
        assert_eq!(conditions[0]["message"], "spec.selector: is empty");
        assert_eq!(conditions[0]["lastTransitionTime"], LATER);
        assert_eq!(conditions[1]["lastTransitionTime"], FIRST);
    }

    #[test]
    fn nothing_is_written_where_another_controller_reports() {
        let other =
            json!({"parentRef": {"group": GATEWAY, "kind": "Gateway", "namespace": "x", "name": "y"}});
        for parents in [json!([other]), json!([other, {"parentRef": parent().reference("team-a")}])] {
            let pool = pool(&json!({"parents": parents}));
            assert_eq!(StatusPatch::of(&pool, &parent(), None, at(FIRST)), None);
        }
    }
}
