//! The status of pools: a parent for each Gateway whose routes lead to them. Envoy Gateway writes none.
//!
//! Every replica writes, without a leader: the second of two equal writes has no effect.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use metrics_agent_catalogue::{Refusal, Refusals};
use metrics_agent_sources::kubernetes::{ClusterObject, ObjectsResult, Services};
use serde::Deserialize;
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use super::ownership::{ObjectName, Ownership};
use super::pool::ReferencedPool;
use super::references::MISSING_SERVICE;
use crate::object_reports::status::{StatusPatch, condition, conditions_with_times};
use crate::object_reports::{StatusSource, changed, refused_objects};

/// The controller in the parents that are written, by which replicas and later versions know them.
pub const CONTROLLER: &str = "endpoint-picker/extension-server";

/// The beginning of the names of Envoy Gateway's controllers. Routes of other gateways do not pass the
/// extension server.
pub const ENVOY_GATEWAY: &str = "gateway.envoyproxy.io/";

const POOLS: &str = "inference.networking.k8s.io";
const GATEWAYS: &str = "gateway.networking.k8s.io";

/// Maximum number of parents, as the API allows.
const MAX_PARENTS: usize = 32;

/// Inputs of the status.
#[derive(Debug)]
pub struct StatusInputs {
    /// The pools, with the status that they have.
    pub objects: watch::Receiver<ObjectsResult>,
    /// The routes, with Envoy Gateway's status.
    pub routes: watch::Receiver<ObjectsResult>,
    /// The Services that pools name.
    pub services: watch::Receiver<Services>,
    /// The refused objects.
    pub refusals: watch::Receiver<Refusals>,
}

/// The status of own pools, from these inputs.
#[derive(Debug)]
pub struct OwnStatus {
    /// Which pools are own ones.
    pub ownership: Ownership,
    /// The inputs.
    pub inputs: StatusInputs,
}

impl StatusSource for OwnStatus {
    fn patches(&mut self, now: Timestamp) -> Vec<StatusPatch> {
        let inputs = &mut self.inputs;
        let Ok(objects) = inputs.objects.borrow_and_update().clone() else { return Vec::new() };
        let Ok(routes) = inputs.routes.borrow_and_update().clone() else { return Vec::new() };
        let services = inputs.services.borrow_and_update().clone();
        let refusals = inputs.refusals.borrow_and_update().clone();
        patches(&objects.0, &routes.0, &services, &refusals, &self.ownership, now)
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = changed(&mut self.inputs.objects) => {}
            () = changed(&mut self.inputs.routes) => {}
            () = changed(&mut self.inputs.services) => {}
            () = changed(&mut self.inputs.refusals) => {}
        }
    }
}

/// The Gateways of a pool, and whether one of their routes to it is accepted.
pub type Gateways = BTreeMap<ObjectName, bool>;

/// The patches that are due.
fn patches(
    objects: &[Arc<ClusterObject>],
    routes: &[Arc<ClusterObject>],
    services: &Services,
    refusals: &[Refusal],
    ownership: &Ownership,
    now: Timestamp,
) -> Vec<StatusPatch> {
    let refused = refused_objects(refusals);
    let gateways = gateways(routes);
    let patch = |object: &Arc<ClusterObject>| {
        let referenced = ReferencedPool::read(&object.json, ownership)?;
        let pool = &referenced.pool;
        if !pool.is_own {
            return None;
        }
        if object.json.pointer("/metadata/deletionTimestamp").is_some() {
            return None;
        }
        let none = Gateways::new();
        let gateways = gateways.get(&pool.name).unwrap_or(&none);
        let is_missing = referenced.lacks_service(services);
        patch(object, gateways, refused.get(&object.id).copied(), is_missing, now)
    };
    objects.iter().filter_map(patch).collect()
}

/// The fields of an `HTTPRoute` that are read.
#[derive(Deserialize)]
struct RouteFields {
    spec: RouteSpec,
    #[serde(default)]
    status: RouteStatus,
}

#[derive(Deserialize)]
struct RouteSpec {
    #[serde(default)]
    rules: Vec<RouteRule>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RouteRule {
    #[serde(default)]
    backend_refs: Vec<ParentReference>,
}

#[derive(Deserialize)]
struct ParentReference {
    #[serde(default)]
    group: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    namespace: Option<String>,
    name: String,
}

#[derive(Default, Deserialize)]
struct RouteStatus {
    #[serde(default)]
    parents: Vec<RouteParent>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RouteParent {
    parent_ref: ParentReference,
    controller_name: String,
    #[serde(default)]
    conditions: Vec<StatusCondition>,
}

#[derive(Deserialize)]
struct StatusCondition {
    r#type: String,
    status: String,
}

/// The Gateways of each pool, by the pool's name.
pub fn gateways(routes: &[Arc<ClusterObject>]) -> HashMap<String, Gateways> {
    let mut gateways: HashMap<String, Gateways> = HashMap::new();
    for object in routes {
        // The API server has checked it; a route of a newer form has no part here.
        let Ok(RouteFields { spec, status }) = RouteFields::deserialize(&object.json) else { continue };
        let namespace = |reference: &ParentReference| {
            reference.namespace.clone().unwrap_or_else(|| object.id.namespace.clone())
        };
        let parents: Vec<_> = status
            .parents
            .iter()
            .filter(|parent| {
                parent.controller_name.starts_with(ENVOY_GATEWAY) && parent.parent_ref.is_gateway()
            })
            .map(|parent| {
                ((namespace(&parent.parent_ref), parent.parent_ref.name.clone()), parent.is_accepted())
            })
            .collect();
        for backend in
            spec.rules.iter().flat_map(|rule| &rule.backend_refs).filter(|backend| backend.is_pool())
        {
            let of_pool = gateways.entry(format!("{}/{}", namespace(backend), backend.name)).or_default();
            for (gateway, is_accepted) in &parents {
                *of_pool.entry(gateway.clone()).or_default() |= is_accepted;
            }
        }
    }
    gateways
}

impl ParentReference {
    fn is_gateway(&self) -> bool {
        self.group.as_deref().unwrap_or(GATEWAYS) == GATEWAYS
            && self.kind.as_deref().unwrap_or("Gateway") == "Gateway"
    }

    fn is_pool(&self) -> bool {
        self.group.as_deref() == Some(POOLS) && self.kind.as_deref() == Some("InferencePool")
    }
}

impl RouteParent {
    fn is_accepted(&self) -> bool {
        self.conditions.iter().any(|condition| condition.r#type == "Accepted" && condition.status == "True")
    }
}

/// The status of a pool, if it has to change: all its parents are ours, and differ.
///
/// Parents are one list, which server-side apply gives to one owner. So where another controller reports on a
/// parent, as Envoy AI Gateway does, there is nothing to write.
fn patch(
    pool: &ClusterObject,
    gateways: &Gateways,
    refusal: Option<&Refusal>,
    is_missing: bool,
    now: Timestamp,
) -> Option<StatusPatch> {
    let parents = pool.json.pointer("/status/parents").and_then(Json::as_array);
    let current: Vec<_> = parents
        .map_or(&[][..], Vec::as_slice)
        .iter()
        // Written by the API server as a default.
        .filter(|parent| parent.pointer("/parentRef/kind") != Some(&"Status".into()))
        .collect();
    if !current.iter().all(|parent| parent["controllerName"] == CONTROLLER) {
        return None;
    }
    let mut is_equal = current.len() == gateways.len().min(MAX_PARENTS);
    let wanted = gateways.iter().take(MAX_PARENTS).map(|((namespace, name), is_accepted)| {
        let reference = json!({"group": GATEWAYS, "kind": "Gateway", "namespace": namespace, "name": name});
        let current = current.iter().find(|parent| parent["parentRef"] == reference);
        let current = current.and_then(|parent| parent["conditions"].as_array());
        let new = conditions(pool, *is_accepted, refusal, is_missing);
        let new =
            conditions_with_times(new, current.map(Vec::as_slice), now).map(|new| Json::from(new.to_vec()));
        is_equal &= new.is_none();
        let conditions = new.or_else(|| current.cloned().map(Json::from));
        json!({"parentRef": reference, "controllerName": CONTROLLER, "conditions": conditions})
    });
    let wanted: Vec<_> = wanted.collect();
    // An empty list, too: the API server refuses a status from which the list is taken.
    (!is_equal).then(|| StatusPatch::new(pool, &json!({"parents": wanted})))
}

/// The conditions without their times.
fn conditions(
    pool: &ClusterObject,
    is_accepted: bool,
    refusal: Option<&Refusal>,
    is_missing: bool,
) -> [Json; 2] {
    let accepted = match refusal {
        Some(refusal) => condition(pool, "Accepted", false, "NotSupportedByParent", &refusal.to_string()),
        None if is_accepted => {
            condition(pool, "Accepted", true, "Accepted", "the endpoint picker serves the pool")
        }
        None => condition(
            pool,
            "Accepted",
            false,
            "HTTPRouteNotAccepted",
            "no route of this Gateway to the pool is accepted",
        ),
    };
    let resolved = if is_missing {
        condition(pool, "ResolvedRefs", false, "InvalidExtensionRef", MISSING_SERVICE)
    } else {
        condition(pool, "ResolvedRefs", true, "ResolvedRefs", "the endpoint picker runs in the gateway")
    };
    [accepted, resolved]
}

#[cfg(test)]
mod tests {
    use metrics_agent_sources::kubernetes::ObjectId;

    use super::*;

    const FIRST: &str = "2026-11-24T05:00:00Z";
    const LATER: &str = "2026-11-24T06:00:00Z";

    fn object(kind: &str, name: &str, mut json: Json) -> Arc<ClusterObject> {
        let api_version = if kind == "InferencePool" { "inference.networking.k8s.io/v1" } else { "v1" };
        let id = ObjectId {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            namespace: "team".to_owned(),
            name: name.to_owned(),
        };
        json["apiVersion"] = api_version.into();
        json["kind"] = kind.into();
        json["metadata"] = json!({"name": name, "namespace": "team"});
        let (uid, resource_version) = ("u".to_owned(), "1".to_owned());
        Arc::new(ClusterObject { id, uid, generation: Some(3), resource_version, json })
    }

    fn pool(spec: &Json, status: &Json) -> Arc<ClusterObject> {
        object("InferencePool", "chat", json!({"spec": spec, "status": status}))
    }

    /// A route to the pool whose parents are Gateways of these controllers.
    fn route(name: &str, gateways: &[(&str, &str, bool)]) -> Arc<ClusterObject> {
        let backends = json!([
            {"name": "service"},
            {"group": POOLS, "kind": "InferencePool", "name": "chat", "port": 8000},
        ]);
        let parent = |(gateway, controller, is_accepted): &(&str, &str, bool)| {
            json!({
                "parentRef": {"name": gateway, "namespace": "edge", "sectionName": "http"},
                "controllerName": controller,
                "conditions": [{"type": "Accepted", "status": if *is_accepted { "True" } else { "False" }}],
            })
        };
        let parents: Vec<_> = gateways.iter().map(parent).collect();
        object(
            "HTTPRoute",
            name,
            json!({"spec": {"rules": [{"backendRefs": backends}]}, "status": {"parents": parents}}),
        )
    }

    const EG: &str = "gateway.envoyproxy.io/gatewayclass-controller";

    /// The status that is written, if one is.
    fn written(pool: &Arc<ClusterObject>, routes: &[Arc<ClusterObject>], now: &str) -> Option<Json> {
        let services = Services::all(&[("team", "epp")]);
        let ownership = Ownership {
            services: ["epp", "gone"].map(|name| ("team".to_owned(), name.to_owned())).into(),
            ..Ownership::default()
        };
        let pools = [Arc::clone(pool)];
        let found = patches(&pools, routes, &services, &[], &ownership, now.parse().unwrap());
        found.into_iter().next().map(|patch| patch.body()["status"].clone())
    }

    fn condition(status: &Json, parent: usize, index: usize) -> (String, String) {
        let condition = &status["parents"][parent]["conditions"][index];
        let text = |field: &str| condition[field].as_str().unwrap().to_owned();
        (text("status"), text("reason"))
    }

    #[test]
    fn each_gateway_of_envoy_gateway_with_a_route_to_the_pool_is_a_parent() {
        let routes = [
            route("a", &[("one", EG, true), ("mesh", "istio.io/gateway-controller", true)]),
            route("b", &[("one", EG, false), ("two", EG, false)]),
        ];
        let status = written(&pool(&json!({}), &Json::Null), &routes, FIRST).unwrap();
        let names: Vec<_> =
            status["parents"].as_array().unwrap().iter().map(|it| &it["parentRef"]["name"]).collect();
        assert_eq!(names, ["one", "two"]);
        assert_eq!(status["parents"][0]["parentRef"]["namespace"], "edge");
        let pair = |status: &str, reason: &str| (status.to_owned(), reason.to_owned());
        assert_eq!(condition(&status, 0, 0), pair("True", "Accepted"));
        assert_eq!(condition(&status, 0, 1), pair("True", "ResolvedRefs"));
        assert_eq!(condition(&status, 1, 0), pair("False", "HTTPRouteNotAccepted"));
        assert_eq!(status["parents"][0]["conditions"][0]["observedGeneration"], 3);
    }

    #[test]
    fn references_are_resolved_when_the_service_exists() {
        let routes = [route("a", &[("one", EG, true)])];
        for (service, expected) in
            [("epp", ("True", "ResolvedRefs")), ("gone", ("False", "InvalidExtensionRef"))]
        {
            let pool = pool(&json!({"endpointPickerRef": {"name": service}}), &Json::Null);
            let status = written(&pool, &routes, FIRST).unwrap();
            let (state, reason) = condition(&status, 0, 1);
            assert_eq!((state.as_str(), reason.as_str()), expected);
            assert_eq!(condition(&status, 0, 0).0, "True");
        }
    }

    #[test]
    fn an_equal_status_is_not_written_again_and_the_last_route_takes_it_away() {
        let routes = [route("a", &[("one", EG, true)])];
        let status = written(&pool(&json!({}), &Json::Null), &routes, FIRST).unwrap();
        let current = pool(&json!({}), &status);
        assert_eq!(written(&current, &routes, LATER), None);
        assert_eq!(written(&current, &[], LATER), Some(json!({"parents": []})));
        assert_eq!(written(&pool(&json!({}), &Json::Null), &[], LATER), None);
        let more = written(&current, &[route("a", &[("one", EG, true), ("two", EG, true)])], LATER).unwrap();
        assert_eq!(more["parents"][0]["conditions"][0]["lastTransitionTime"], FIRST);
        assert_eq!(more["parents"][1]["conditions"][0]["lastTransitionTime"], LATER);
    }

    #[test]
    fn nothing_is_written_for_other_pickers_and_where_another_controller_writes() {
        let routes = [route("a", &[("one", EG, true)])];
        let other = pool(&json!({"endpointPickerRef": {"name": "other"}}), &Json::Null);
        assert_eq!(written(&other, &routes, FIRST), None);
        for parent in [
            json!({"parentRef": {"kind": "Gateway", "name": "one"}, "controllerName": "aigateway.envoyproxy.io/c"}),
            json!({"parentRef": {"kind": "Gateway", "name": "one"}}),
        ] {
            assert_eq!(written(&pool(&json!({}), &json!({"parents": [parent]})), &routes, FIRST), None);
        }
        let default = json!({"parents": [{"parentRef": {"kind": "Status", "name": "default"}}]});
        assert!(written(&pool(&json!({}), &default), &routes, FIRST).is_some());
    }
}
