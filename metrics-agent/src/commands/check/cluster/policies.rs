//! Whether the gateway's policies with the filter are in force.

use serde_json::Value as Json;

use super::read::{Reader, Resource, items, text};
use super::report::Report;

/// The label of the chart's objects.
const OWN: &str = "app.kubernetes.io/part-of=endpoint-picker";

const ENVOY_GATEWAY: &str = "/apis/gateway.envoyproxy.io/v1alpha1";
const ROUTES: Resource = Resource { api: "/apis/gateway.networking.k8s.io/v1", plural: "httproutes" };

/// The policies of Envoy Gateway that carry the filter.
const POLICIES: [(&str, Resource); 4] = [
    ("EnvoyExtensionPolicy", Resource { api: ENVOY_GATEWAY, plural: "envoyextensionpolicies" }),
    ("EnvoyPatchPolicy", Resource { api: ENVOY_GATEWAY, plural: "envoypatchpolicies" }),
    ("BackendTrafficPolicy", Resource { api: ENVOY_GATEWAY, plural: "backendtrafficpolicies" }),
    ("ClientTrafficPolicy", Resource { api: ENVOY_GATEWAY, plural: "clienttrafficpolicies" }),
];

/// Adds a line for each policy, and one for each route to a pool that its gateway does not take.
pub(super) async fn add(report: &mut Report, reader: &Reader) {
    for (kind, resource) in POLICIES {
        match reader.list(resource, Some(OWN)).await {
            Ok(policies) => policies.iter().flatten().for_each(|policy| add_policy(report, kind, policy)),
            Err(error) => report.line(format_args!("{} were not read: {error}", resource.plural)),
        }
    }
    match reader.list(ROUTES, None).await {
        Ok(routes) => routes.iter().flatten().for_each(|route| add_route(report, route)),
        Err(error) => report.line(format_args!("{} were not read: {error}", ROUTES.plural)),
    }
}

fn add_policy(report: &mut Report, kind: &str, policy: &Json) {
    let name = format!("{kind} {}/{}", text(policy, "/metadata/namespace"), text(policy, "/metadata/name"));
    let faults = faults(kind, policy);
    if faults.is_empty() {
        report.line(format_args!("{name}: in force"));
    } else {
        report.problem(&format!("{name}: not in force"), faults.iter());
    }
}

/// What is wrong with a policy, each with its fix.
fn faults(kind: &str, policy: &Json) -> Vec<String> {
    let ancestors = items(policy, "/status/ancestors");
    if ancestors.is_empty() {
        let text = "no controller has taken it: its targetRefs must name a Gateway, or a route of one, that exists in its namespace and has a \
                    GatewayClass of a running Envoy Gateway";
        return vec![text.to_owned()];
    }
    let conditions = ancestors.iter().flat_map(|ancestor| items(ancestor, "/conditions"));
    let conditions: Vec<_> = conditions.map(Condition::of).collect();
    let expected = if kind == "EnvoyPatchPolicy" { &["Accepted", "Programmed"][..] } else { &["Accepted"] };
    let mut faults = Vec::new();
    for kind in expected {
        if !conditions.iter().any(|condition| condition.kind == *kind) {
            faults.push(format!("{kind} is not known yet: Envoy Gateway has not finished with it"));
        }
    }
    for condition in &conditions {
        let is_fault = match condition.kind {
            "Overridden" | "Conflicted" => condition.status == "True",
            kind => expected.contains(&kind) && condition.status != "True",
        };
        if is_fault {
            faults.push(condition.to_string());
        }
    }
    faults
}

fn add_route(report: &mut Report, route: &Json) {
    let is_of_pool = |reference: &Json| text(reference, "/kind") == "InferencePool";
    let references = items(route, "/spec/rules").iter().flat_map(|rule| items(rule, "/backendRefs"));
    let is_own = text(route, "/metadata/labels/app.kubernetes.io~1part-of") == "endpoint-picker";
    if !is_own && !references.into_iter().any(is_of_pool) {
        return;
    }
    let parents = items(route, "/status/parents").iter();
    let conditions = parents.flat_map(|parent| items(parent, "/conditions")).map(Condition::of);
    let is_fault = |it: &Condition<'_>| matches!(it.kind, "Accepted" | "ResolvedRefs") && it.status != "True";
    let faults: Vec<_> = conditions.filter(is_fault).map(|condition| condition.to_string()).collect();
    let name = format!("HTTPRoute {}/{}", text(route, "/metadata/namespace"), text(route, "/metadata/name"));
    if faults.is_empty() {
        report.line(format_args!("{name}: in force"));
    } else {
        report.problem(&format!("{name}: not in force"), faults.iter());
    }
}

/// A condition of a status.
struct Condition<'a> {
    kind: &'a str,
    status: &'a str,
    reason: &'a str,
    message: &'a str,
}

impl<'a> Condition<'a> {
    fn of(condition: &'a Json) -> Self {
        Self {
            kind: text(condition, "/type"),
            status: text(condition, "/status"),
            reason: text(condition, "/reason"),
            message: text(condition, "/message"),
        }
    }

    /// What to do about it.
    fn fix(&self) -> Option<&'static str> {
        let fix = match (self.kind, self.reason) {
            (_, "Disabled") => {
                "install Envoy Gateway with config.envoyGateway.extensionApis.enableEnvoyPatchPolicy=true"
            }
            ("Programmed", "ResourceNotFound") => {
                "name the Gateway's listeners as they are: with the chart, gateway.listeners; with Envoy Gateway's runtime flag XDSNameSchemeV2, \
                 gateway.xdsListeners"
            }
            ("Programmed", "Invalid") => {
                "the listener does not have the filter that the patch changes: see that the EnvoyExtensionPolicy is accepted, and that a route is \
                 attached to the listener"
            }
            ("Accepted", "TargetNotFound") => "create what its targetRefs name, in the policy's namespace",
            ("Accepted", "Conflicted") | ("Overridden" | "Conflicted", _) => {
                "another policy of the same kind has the same target: remove one of them, or put both into one"
            }
            ("Accepted", "Invalid") if self.message.contains("allowlist") => {
                "add the module to dynamicModules of the EnvoyProxy that the GatewayClass or the Gateway refers to"
            }
            ("Accepted", "Invalid") if self.message.contains("wasm") => {
                "see that Envoy Gateway reaches the module's image or URL, and that its checksum is the module's"
            }
            ("ResolvedRefs", "InvalidKind") => {
                "the gateway has no InferencePool as a backend: route to the pool's Service, as the chart does"
            }
            ("ResolvedRefs", "BackendNotFound") => "create the Service that the route names",
            ("ResolvedRefs", "RefNotPermitted") => "create a ReferenceGrant in the backend's namespace",
            _ => return None,
        };
        Some(fix)
    }
}

impl core::fmt::Display for Condition<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Self { kind, status, reason, message } = self;
        write!(f, "{kind} is {status}, {reason}: {message}")?;
        self.fix().map_or(Ok(()), |fix| write!(f, "; fix: {fix}"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Json {
        json!({"type": kind, "status": status, "reason": reason, "message": message})
    }

    fn policy(conditions: &[Json]) -> Json {
        json!({"metadata": {"name": "p", "namespace": "n"}, "status": {"ancestors": [{"conditions": conditions}]}})
    }

    fn report(add: impl FnOnce(&mut Report)) -> String {
        let mut report = Report::default();
        add(&mut report);
        report.to_string()
    }

    #[test]
    fn an_accepted_policy_is_in_force_and_a_patch_must_be_programmed_too() {
        let accepted = policy(&[condition("Accepted", "True", "Accepted", "")]);
        let text = report(|report| add_policy(report, "EnvoyExtensionPolicy", &accepted));
        assert_eq!(text, "EnvoyExtensionPolicy n/p: in force\nno problems\n");
        let text = report(|report| add_policy(report, "EnvoyPatchPolicy", &accepted));
        let expected = "EnvoyPatchPolicy n/p: not in force\n  Programmed is not known yet: Envoy Gateway has not finished with it\n1 problem\n";
        assert_eq!(text, expected);
        let programmed = policy(&[
            condition("Accepted", "True", "Accepted", ""),
            condition("Programmed", "True", "Programmed", ""),
        ]);
        assert!(faults("EnvoyPatchPolicy", &programmed).is_empty());
    }

    #[test]
    fn a_fault_has_the_reason_and_the_fix() {
        for (kind, fault, expected) in [
            (
                "EnvoyPatchPolicy",
                condition("Accepted", "False", "Disabled", "EnvoyPatchPolicy is disabled"),
                "enableEnvoyPatchPolicy=true",
            ),
            (
                "EnvoyPatchPolicy",
                condition("Programmed", "False", "Invalid", "no match"),
                "EnvoyExtensionPolicy is accepted",
            ),
            (
                "EnvoyPatchPolicy",
                condition("Programmed", "False", "ResourceNotFound", "x"),
                "gateway.listeners",
            ),
            ("EnvoyExtensionPolicy", condition("Accepted", "False", "TargetNotFound", "x"), "targetRefs"),
            (
                "EnvoyExtensionPolicy",
                condition("Accepted", "False", "Invalid", "not in the dynamicModules allowlist"),
                "EnvoyProxy",
            ),
            (
                "BackendTrafficPolicy",
                condition("Overridden", "True", "Overridden", "x"),
                "remove one of them",
            ),
        ] {
            let faults = faults(kind, &policy(core::slice::from_ref(&fault)));
            let reason = text(&fault, "/reason");
            assert!(
                faults.iter().any(|fault| fault.contains(reason)
                    && fault.contains("; fix: ")
                    && fault.contains(expected)),
                "{faults:?}"
            );
        }
        let nothing = faults("ClientTrafficPolicy", &json!({}));
        assert!(nothing[0].contains("no controller has taken it"), "{nothing:?}");
    }

    #[test]
    fn only_routes_to_pools_and_those_of_the_chart_are_looked_at() {
        let route = |kind: &str, labels: Json| {
            json!({
                "metadata": {"name": "r", "namespace": "n", "labels": labels},
                "spec": {"rules": [{"backendRefs": [{"kind": kind, "name": "x"}]}]},
                "status": {"parents": [{"conditions": [condition("ResolvedRefs", "False", "InvalidKind", "only Service")]}]},
            })
        };
        let other = route("Service", json!({}));
        assert_eq!(report(|report| add_route(report, &other)), "no problems\n");
        for route in [
            route("InferencePool", json!({})),
            route("Service", json!({"app.kubernetes.io/part-of": "endpoint-picker"})),
        ] {
            let text = report(|report| add_route(report, &route));
            assert!(
                text.contains("HTTPRoute n/r: not in force") && text.contains("route to the pool's Service"),
                "{text}"
            );
        }
    }
}
