//! Checks of the status of routes, which Envoy Gateway writes, and of pools, which the agents write.

use std::sync::Arc;

use metrics_agent_doctor::doctor::Finding;
use metrics_agent_gateway::pool::GROUP;
use metrics_agent_gateway::status::{CONTROLLER, ENVOY_GATEWAY, gateways};
use metrics_agent_sources::kubernetes::ClusterObject;
use serde_json::Value as Json;

/// Routes to pools whose backends Envoy Gateway does not resolve.
pub(super) fn routes(routes: &[Arc<ClusterObject>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for route in routes.iter().filter(|route| leads_to_pools(&route.json)) {
        let parents = array(&route.json, "/status/parents");
        let own = parents.filter(|parent| text(parent, "controllerName").starts_with(ENVOY_GATEWAY));
        for condition in own.flat_map(|parent| array(parent, "/conditions")) {
            if (text(condition, "type"), text(condition, "status")) != ("ResolvedRefs", "False") {
                continue;
            }
            let fix = match text(condition, "reason") {
                "InvalidKind" => {
                    "enter the agents in Envoy Gateway's extensionManagers, with InferencePool in backendResources, and restart it"
                }
                "BackendNotFound" => "correct the pool's name; a pool in another namespace needs `namespace`",
                "RefNotPermitted" => "add a ReferenceGrant in the pool's namespace",
                _ => "as the message says",
            };
            let problem = format!(
                "Envoy Gateway does not lead the route to its pools ({}): {}",
                text(condition, "reason"),
                text(condition, "message")
            );
            findings.push(Finding::error(route.id.to_string(), problem, fix));
        }
    }
    findings
}

/// Pools of routes whose status the agents have not written, or in which they refuse the pool.
pub(super) fn pools(pools: &[Arc<ClusterObject>], routes: &[Arc<ClusterObject>]) -> Vec<Finding> {
    let gateways = gateways(routes);
    let mut findings = Vec::new();
    let is_pool = |object: &&Arc<ClusterObject>| {
        object.id.kind == "InferencePool" && object.id.api_version.starts_with(GROUP)
    };
    for pool in pools.iter().filter(is_pool) {
        let Some(own) = gateways.get(&format!("{}/{}", pool.id.namespace, pool.id.name)) else { continue };
        let parents: Vec<_> = array(&pool.json, "/status/parents").collect();
        // Another controller writes for its own routes.
        let is_of_another = |parent: &&Json| {
            parent.pointer("/parentRef/kind") != Some(&"Status".into())
                && text(parent, "controllerName") != CONTROLLER
        };
        if parents.iter().any(is_of_another) {
            continue;
        }
        for (namespace, name) in own.keys() {
            let is_it = |parent: &&&Json| {
                let reference = &parent["parentRef"];
                (text(reference, "namespace"), text(reference, "name")) == (namespace, name)
            };
            match parents.iter().find(is_it) {
                None => findings.push(Finding::error(
                    pool.id.to_string(),
                    format!("routes of the Gateway {namespace}/{name} lead to the pool, and no agent has written its status"),
                    "start the agents, and see their log. If the pool has an endpointPickerRef, remove it, let it name the agents' Service, or \
                     name the pool with --extension-pool (the chart's `pools`): otherwise it belongs to another endpoint picker, which \
                     Envoy Gateway does not call",
                )),
                Some(parent) => findings.extend(refused(pool, parent)),
            }
        }
    }
    findings
}

fn refused(pool: &ClusterObject, parent: &Json) -> Vec<Finding> {
    let refused = array(parent, "/conditions").filter(|condition| text(condition, "status") == "False");
    let finding = |condition: &Json| {
        let problem = format!(
            "{}=False ({}): {}",
            text(condition, "type"),
            text(condition, "reason"),
            text(condition, "message")
        );
        let fix = match text(condition, "reason") {
            "InvalidExtensionRef" => "create the Service, or remove the pool's endpointPickerRef",
            "HTTPRouteNotAccepted" => "see the status of the routes to the pool",
            _ => "correct the pool as the message says",
        };
        Finding::error(pool.id.to_string(), problem, fix)
    };
    refused.map(finding).collect()
}

fn leads_to_pools(route: &Json) -> bool {
    let backends = array(route, "/spec/rules").flat_map(|rule| array(rule, "/backendRefs"));
    backends.into_iter().any(|backend| text(backend, "kind") == "InferencePool")
}

fn array<'a>(json: &'a Json, pointer: &str) -> impl Iterator<Item = &'a Json> + use<'a> {
    json.pointer(pointer).and_then(Json::as_array).into_iter().flatten()
}

fn text<'a>(json: &'a Json, field: &str) -> &'a str {
    json[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use metrics_agent_sources::kubernetes::ObjectId;
    use serde_json::json;

    use super::*;

    fn object(kind: &str, mut json: Json) -> Arc<ClusterObject> {
        let id = ObjectId {
            api_version: "inference.networking.k8s.io/v1".to_owned(),
            kind: kind.to_owned(),
            namespace: "team".to_owned(),
            name: "chat".to_owned(),
        };
        json["metadata"] = json!({"namespace": "team", "name": "chat"});
        let (uid, resource_version) = (String::new(), String::new());
        Arc::new(ClusterObject { id, uid, generation: None, resource_version, json })
    }

    fn route(reason: &str) -> Arc<ClusterObject> {
        let status = if reason == "ResolvedRefs" { "True" } else { "False" };
        let backend =
            json!({"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": "chat"});
        let condition = json!({"type": "ResolvedRefs", "status": status, "reason": reason, "message": "m"});
        let parent = json!({
            "parentRef": {"name": "edge"}, "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
            "conditions": [condition],
        });
        object(
            "HTTPRoute",
            json!({"spec": {"rules": [{"backendRefs": [backend]}]}, "status": {"parents": [parent]}}),
        )
    }

    fn pool(parents: &Json) -> Arc<ClusterObject> {
        object("InferencePool", json!({"spec": {}, "status": {"parents": parents}}))
    }

    fn parent(controller: &str, conditions: &Json) -> Json {
        let reference = json!({"kind": "Gateway", "namespace": "team", "name": "edge"});
        json!({"parentRef": reference, "controllerName": controller, "conditions": conditions})
    }

    #[test]
    fn a_route_that_envoy_gateway_does_not_resolve_has_the_fix_of_its_reason() {
        for (reason, fix) in [("InvalidKind", "extensionManagers"), ("RefNotPermitted", "ReferenceGrant")] {
            let found = routes(&[route(reason)]);
            assert!(found.len() == 1 && found[0].fix.contains(fix), "{found:?}");
            assert_eq!(found[0].place, "HTTPRoute team/chat");
        }
        assert_eq!(routes(&[route("ResolvedRefs")]), []);
    }

    #[test]
    fn pools_of_routes_need_a_status_that_is_true() {
        let found = |parents: &Json| pools(&[pool(parents)], &[route("ResolvedRefs")]);
        let unwritten = found(&json!([{"parentRef": {"kind": "Status", "name": "default"}}]));
        assert!(unwritten.len() == 1 && unwritten[0].problem.contains("team/edge"), "{unwritten:?}");
        let accepted = json!([{"type": "Accepted", "status": "True", "reason": "Accepted", "message": ""}]);
        assert_eq!(found(&json!([parent(CONTROLLER, &accepted)])), []);
        assert_eq!(found(&json!([parent("aigateway.envoyproxy.io/x", &json!([]))])), []);
        let missing = json!([{"type": "ResolvedRefs", "status": "False", "reason": "InvalidExtensionRef", "message": "m"}]);
        let missing = found(&json!([parent(CONTROLLER, &missing)]));
        assert!(missing.len() == 1 && missing[0].fix.contains("create the Service"), "{missing:?}");
        assert_eq!(pools(&[pool(&json!([]))], &[]), [], "no route leads to the pool");
        let mut earlier = ClusterObject::clone(&pool(&json!([])));
        "inference.networking.x-k8s.io/v1alpha2".clone_into(&mut earlier.id.api_version);
        assert_eq!(pools(&[Arc::new(earlier)], &[route("ResolvedRefs")]), [], "routes lead to its namesake");
    }
}
