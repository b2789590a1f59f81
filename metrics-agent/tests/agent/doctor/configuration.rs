//! Mistakes of Envoy's configuration, each by itself.

use metrics_agent_doctor::doctor::Severity::{Error, Warning};
use serde_json::{Value, json};

use super::fixture::{DESTINATION, Recorded, remove};

const IGNORED: &str = "Envoy balances by itself, and ignores the picker's choice";

#[test]
fn the_recorded_envoys_have_no_mistake() {
    let report = Recorded::wasm().assert_is_ok();
    assert!(report.passed().len() >= 16, "{report}");
    let native = Recorded::native().assert_is_ok();
    assert!(!native.passed().iter().any(|check| check.contains("wasm")), "{native}");
}

#[test]
fn a_listener_without_picker() {
    let mut envoy = Recorded::wasm();
    envoy.filters().remove(0);
    let report = envoy.diagnose();
    let finding = report.findings().next().unwrap();
    assert_eq!(finding.severity, Error);
    assert!(finding.problem.contains("no listener has the endpoint picker"), "{report}");
    assert_eq!(report.findings().count(), 1, "{report}");
}

#[test]
fn header_to_metadata_is_missing_or_misplaced() {
    let mut envoy = Recorded::wasm();
    envoy.filters().remove(1);
    envoy.assert_finds(
        Error,
        IGNORED,
        "cluster model-servers",
        "put a header_to_metadata filter right behind the picker",
    );

    let mut envoy = Recorded::wasm();
    envoy.filters().swap(0, 1);
    let problem =
        "destination-metadata copies x-gateway-destination-endpoint into metadata before the picker sets it";
    envoy.assert_finds(Error, problem, "route prefix /", "move destination-metadata behind the picker");

    let mut envoy = Recorded::wasm();
    envoy.filters()[1]["disabled"] = true.into();
    envoy.assert_finds(
        Error,
        "is disabled on this route",
        "cluster model-servers",
        "enable destination-metadata",
    );

    let mut envoy = Recorded::wasm();
    envoy.filters()[1]["typed_config"]["request_rules"][0]["on_header_present"]["key"] = "other".into();
    envoy.assert_finds(Error, "no filter writes it", "cluster model-servers", "metadata_namespace: envoy.lb");

    // The native module writes the metadata itself.
    Recorded::native().assert_is_ok();
}

#[test]
fn a_cluster_without_override_host() {
    for mut envoy in [Recorded::wasm(), Recorded::native()] {
        remove(envoy.cluster("model-servers"), "load_balancing_policy");
        let fix = "load_balancing_policy envoy.load_balancing_policies.override_host with the metadata source envoy.lb / x-gateway-destination-endpoint";
        envoy.assert_finds(Error, "has no override_host policy", "cluster model-servers", fix);
    }
    let mut envoy = Recorded::native();
    remove(envoy.cluster("model-servers"), "load_balancing_policy");
    envoy.set_picker("steering", "overrideHost".into());
    envoy.assert_is_ok();
}

#[test]
fn an_override_host_that_reads_something_else() {
    let mut envoy = Recorded::native();
    let policy = envoy.cluster("model-servers").pointer_mut(
        "/load_balancing_policy/policies/0/typed_extension_config/typed_config/override_host_sources",
    );
    *policy.unwrap() = json!([{"header": "x-other"}]);
    envoy.assert_finds(Error, "reads the header x-other", "cluster model-servers", DESTINATION);
}

/// The shipped circuit breakers of a cluster.
fn circuit_breakers() -> Value {
    let limit = 65536;
    json!({"thresholds": [
        {"max_connections": limit, "max_pending_requests": limit, "max_requests": limit, "max_retries": 1024},
    ]})
}

/// The shipped options of a cluster for HTTP.
fn protocol_options() -> Value {
    json!({"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
        "common_http_protocol_options": {"idle_timeout": "4s"},
    }})
}

/// A cluster of the native module.
pub(super) fn module_cluster(pool: &str) -> Value {
    json!({
        "name": "model-servers",
        "lb_policy": "CLUSTER_PROVIDED",
        "circuit_breakers": circuit_breakers(),
        "typed_extension_protocol_options": protocol_options(),
        "cluster_type": {
            "name": "envoy.clusters.dynamic_modules",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig",
                "cluster_name": "endpoint-picker",
                "cluster_config": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": json!({"pool": pool}).to_string(),
                },
            },
        },
    })
}

#[test]
fn steering_and_cluster_of_the_module_belong_together() {
    let mut envoy = Recorded::native();
    envoy.set_picker("steering", "cluster".into());
    envoy.assert_finds(
        Error,
        "not one of the module",
        "cluster model-servers",
        "envoy.clusters.dynamic_modules",
    );

    *envoy.cluster("model-servers") = module_cluster("default");
    envoy.assert_is_ok();
    envoy.set_picker("steering", Value::Null);
    envoy.assert_finds(
        Error,
        "the picker does not choose for it",
        "cluster model-servers",
        "\"steering\": \"cluster\"",
    );

    envoy.set_picker("steering", "cluster".into());
    *envoy.cluster("model-servers") = module_cluster("other");
    envoy.assert_finds(
        Error,
        "the pool \"other\", and the picker chooses in \"default\"",
        "cluster",
        "same pool",
    );
}

#[test]
fn an_original_dst_cluster_needs_the_address() {
    let mut envoy = Recorded::native();
    *envoy.cluster("model-servers") = json!({
        "name": "model-servers",
        "type": "ORIGINAL_DST",
        "circuit_breakers": circuit_breakers(),
        "typed_extension_protocol_options": protocol_options(),
        "original_dst_lb_config": {"metadata_key": {"key": "endpoint-picker", "path": [{"key": "first-endpoint"}]}},
    });
    // Its retries would connect to the same address again.
    remove(&mut envoy.routes()[0]["route"], "retry_policy");
    envoy.assert_finds(
        Error,
        "metadata endpoint-picker / first-endpoint, and no filter writes it",
        "",
        "key: first-endpoint",
    );
    let target = json!({"metadata_namespace": "endpoint-picker", "key": "first-endpoint"});
    let copy = json!({
        "name": "first",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [{"header": "X-Gateway-Destination-Endpoint", "on_header_present": target}],
        },
    });
    envoy.filters().insert(1, copy);
    envoy.assert_is_ok();
    envoy.cluster("model-servers")["original_dst_lb_config"] =
        json!({"use_http_header": true, "http_header_name": "x-gateway-destination-endpoint"});
    envoy.assert_is_ok();
    envoy.cluster("model-servers")["original_dst_lb_config"] = json!({"use_http_header": true});
    envoy.assert_finds(Error, "reads the header x-envoy-original-dst-host", "", DESTINATION);
}

#[test]
fn a_subset_hint_that_is_set_behind_the_picker() {
    let hint = json!({
        "name": "hint",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
            "request_rules": [{"header": "x-hint", "on_header_present": {
                "metadata_namespace": "envoy.lb.subset_hint", "key": "x-gateway-destination-endpoint-subset"}}],
        },
    });
    let mut envoy = Recorded::native();
    envoy.filters().insert(0, hint.clone());
    let report = envoy.assert_is_ok();
    assert!(report.passed().iter().any(|check| check.contains("subset hints")), "{report}");
    envoy.filters().swap(0, 1);
    envoy.assert_finds(
        Error,
        "hint sets the subset hint behind the picker",
        "route prefix /",
        "move hint before",
    );
}

#[test]
fn a_route_to_a_cluster_that_does_not_exist() {
    let mut envoy = Recorded::wasm();
    envoy.routes()[0]["route"]["cluster"] = "model-server".into();
    let problem = "Envoy has no cluster \"model-server\": requests of this route get 503; did you mean \"model-servers\"?";
    envoy.assert_finds(
        Error,
        problem,
        "virtual host model-servers, route prefix /",
        "let the route name the cluster",
    );
}

#[test]
fn a_picker_that_runs_on_no_route_or_twice_on_one() {
    let mut envoy = Recorded::wasm();
    envoy.filters()[0]["disabled"] = true.into();
    let fix = "typed_per_filter_config: {endpoint-picker: {";
    envoy.assert_finds(Error, "no route enables the picker endpoint-picker", "listener inference", fix);

    let mut envoy = Recorded::wasm();
    let again = envoy.filters()[0].clone();
    envoy.filters().insert(0, again);
    envoy.assert_finds(
        Error,
        "2 pickers run on one route, for the pools default, default",
        "route prefix /",
        "disable all but one",
    );
    envoy.set_picker("mode", "shadow".into());
    envoy.assert_is_ok();
}

#[test]
fn a_wasm_filter_that_cannot_wait_for_bodies() {
    let mut envoy = Recorded::wasm();
    remove(&mut envoy.filters()[0]["typed_config"]["config"], "allow_on_headers_stop_iteration");
    let place = "listener inference, HTTP filter endpoint-picker";
    envoy.assert_finds(
        Error,
        "requests with one get 503 after a second",
        place,
        "allow_on_headers_stop_iteration: true",
    );
}

#[test]
fn buffers_below_the_bodies_that_are_held() {
    let mut envoy = Recorded::wasm();
    remove(envoy.listener(), "per_connection_buffer_limit_bytes");
    let problem = "the listener buffers 1048576 bytes, and the filter holds up to 33554432";
    envoy.assert_finds(
        Warning,
        problem,
        "listener inference",
        "per_connection_buffer_limit_bytes of the listener above 33554432",
    );
    let mut without_limit = envoy.clone();
    without_limit.listener()["per_connection_buffer_limit_bytes"] = 0.into();
    without_limit.assert_is_ok();
    envoy.set_picker("limits", json!({"maxHeldBytes": 1_048_576}));
    envoy.assert_is_ok();
    // The native module raises the limit.
    Recorded::native().assert_is_ok();
}

#[test]
fn a_route_without_retries() {
    let mut envoy = Recorded::wasm();
    let policy = remove(&mut envoy.routes()[0]["route"], "retry_policy");
    envoy.assert_finds(
        Warning,
        "the route has no retry policy",
        "route prefix /",
        "retry_on: \"connect-failure",
    );
    let mut at_host = envoy.clone();
    at_host.manager()["route_config"]["virtual_hosts"][0]["retry_policy"] = policy.clone();
    at_host.assert_is_ok();
    for (field, value) in [("retry_on", json!("retriable-status-codes")), ("num_retries", json!(0))] {
        let mut policy = policy.clone();
        policy[field] = value;
        envoy.routes()[0]["route"]["retry_policy"] = policy;
        envoy.assert_finds(
            Warning,
            "leaves out servers that refuse",
            "route prefix /",
            "retry_on: \"connect-failure",
        );
    }
}

#[test]
fn paths_that_are_not_normalized() {
    let mut envoy = Recorded::native();
    remove(envoy.manager(), "merge_slashes");
    envoy.manager()["path_with_escaped_slashes_action"] = "KEEP_UNCHANGED".into();
    let fix = "set merge_slashes: true, path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD";
    envoy.assert_finds(Warning, "paths are not normalized", "listener inference", fix);
}

#[test]
fn headers_that_clients_can_set() {
    let mut envoy = Recorded::native();
    remove(envoy.manager(), "early_header_mutation_extensions");
    let problem = "clients can set x-gateway-destination-endpoint, x-llm-d-model-name-rewrite, x-gateway-model-name-rewrite:";
    let fix = "mutations: [{remove: x-gateway-destination-endpoint}, {remove: x-llm-d-model-name-rewrite}, ";
    envoy.assert_finds(Error, problem, "listener inference", fix);

    // The wasm filter's other headers count where a filter copies them.
    let mut envoy = Recorded::wasm();
    let place = "/early_header_mutation_extensions/0/typed_config/mutations";
    let mutations = envoy.manager().pointer_mut(place).unwrap().as_array_mut().unwrap();
    mutations[0] = json!({"remove": "X-Gateway-Destination-Endpoint"});
    mutations.drain(1..4);
    let problem = "clients can set x-endpoint-picker-fallback, x-gateway-destination-endpoint-scores, x-endpoint-picker-explanation:";
    envoy.assert_finds(Error, problem, "listener inference", "[{remove: x-endpoint-picker-fallback}, ");

    let mut envoy = Recorded::wasm();
    envoy.manager().pointer_mut(place).unwrap().as_array_mut().unwrap().pop();
    let problem = "clients can set x-gateway-model-name-rewrite: they choose a model";
    envoy.assert_finds(Warning, problem, "listener inference", "unless a gateway in front");
}

#[test]
fn updates_that_envoy_has_refused() {
    let mut envoy = Recorded::wasm();
    let section = json!({"dynamic_listeners": [{
        "name": "chat",
        "error_state": {"failed_configuration": {"name": "chat"}, "details": "duplicate address"},
    }]});
    envoy.dump["configs"].as_array_mut().unwrap().push(section);
    envoy.assert_finds(Error, "duplicate address", "listener chat", "correct the resource");
}

#[test]
fn one_mistake_at_many_places_is_one_finding() {
    let mut envoy = Recorded::wasm();
    let mut route = envoy.routes()[0].clone();
    remove(&mut route["route"], "retry_policy");
    let routes: Vec<_> = (0..5)
        .map(|number| {
            let mut route = route.clone();
            route["match"] = json!({"path": format!("/{number}")});
            route
        })
        .collect();
    *envoy.routes() = routes.into();
    let report = envoy.diagnose();
    assert_eq!(report.findings().count(), 1, "{report}");
    let text = report.to_string();
    assert!(text.contains("route path /0\n") && text.contains("and at 2 other places\n"), "{text}");
}
