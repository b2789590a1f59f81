//! Routes to `InferencePool`s of Envoy Gateway, whose extension server the agent is.

use metrics_agent_doctor::doctor::Severity::Error;
use metrics_agent_status::extension::{HookCalls, ServerStatus, TranslationParts};
use serde_json::{Value, json};

use super::configuration::module_cluster;
use super::control_planes::dynamic;
use super::fixture::{Recorded, remove};

const PER_ROUTE: &str =
    "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute";

/// Calls without a mistake.
fn calls() -> ServerStatus {
    ServerStatus {
        connections: 1,
        failed_handshake: None,
        calls: HookCalls { route: 2, endpoints: 2, translation: 1 },
        largest_translation: TranslationParts { listeners: 1, routes: 1, clusters: 3 },
    }
}

/// An Envoy with a route to the pool, as the extension server makes it.
fn gateway() -> Recorded {
    let mut envoy = Recorded::native();
    let config = envoy.filters()[0]["typed_config"]["filter_config"].take();
    let mut fields: Value = serde_json::from_str(config["value"].as_str().unwrap()).unwrap();
    fields["steering"] = "cluster".into();
    let text = |value: &Value| json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": value.to_string()});
    envoy.filters()[0]["typed_config"]["filter_config"] = text(&json!({"pool": null}));
    *envoy.cluster("model-servers") = module_cluster("default");
    let route = &mut envoy.routes()[0];
    route["typed_per_filter_config"]["endpoint-picker"] =
        json!({"@type": PER_ROUTE, "filter_config": text(&fields)});
    let pool = json!({"pool": "default", "own": true, "h2c": false, "ports": [8000]});
    route["metadata"] = json!({"filter_metadata": {"endpoint-picker": {"pools": [pool]}}});
    envoy.extension = Some(calls());
    envoy
}

#[test]
fn envoy_gateway_with_the_extension_server_has_no_mistake() {
    let report = dynamic(gateway()).assert_is_ok();
    for check in
        ["Envoy Gateway calls the agent", "routes to InferencePools have the filter and its configuration"]
    {
        assert!(report.passed().contains(&check), "{report}");
    }
}

#[test]
fn a_route_without_its_pools_configuration() {
    let mut envoy = gateway();
    remove(&mut envoy.routes()[0], "typed_per_filter_config");
    let fix = "translation: {route: {includeAll: true}}";
    dynamic(envoy).assert_finds(Error, "has no configuration of the filter", "route prefix /", fix);
}

#[test]
fn a_listener_without_the_filter() {
    let mut envoy = gateway();
    envoy.filters().remove(0);
    let fix = "translation: {listener: {includeAll: true}}";
    dynamic(envoy).assert_finds(
        Error,
        "the listener does not have the filter",
        "configuration inference",
        fix,
    );
}

#[test]
fn a_listener_that_envoy_refuses_without_the_modules_file() {
    let mut envoy = dynamic(gateway());
    let listener = &mut envoy.section("dynamic_listeners")["dynamic_listeners"][0];
    listener["error_state"] =
        json!({"details": "Failed to load dynamic module: /x/libendpoint_picker.so: no such file"});
    envoy.assert_finds(Error, "no such file", "listener inference", "mount the module's file");
}

#[test]
fn a_pool_of_another_picker_among_the_routes_pools() {
    let mut envoy = gateway();
    let pools = envoy.routes()[0].pointer_mut("/metadata/filter_metadata/endpoint-picker/pools").unwrap();
    pools.as_array_mut().unwrap().push(json!({"pool": "team/other", "own": false}));
    let problem = "the pool team/other has an endpoint picker of its own";
    dynamic(envoy).assert_finds(Error, problem, "route prefix /", "endpointPickerRef");
}

#[test]
fn a_route_that_is_refused_because_of_the_order_of_extension_servers() {
    let mut envoy = gateway();
    let route = &mut envoy.routes()[0];
    remove(route, "route");
    route["direct_response"] = json!({"status": 503, "body": {"inline_string":
        "Envoy AI Gateway's extension server is called after the endpoint picker's: enter it before the endpoint picker in \
         extensionManagers of Envoy Gateway"}});
    let fix = "enter Envoy AI Gateway's server before the agents";
    dynamic(envoy).assert_finds(Error, "its requests are refused", "route prefix /", fix);
}

#[test]
fn a_pool_that_is_refused() {
    let mut envoy = gateway();
    envoy.refusal = Some("the Service of endpointPickerRef does not exist");
    let problem = "every request to the pool gets 503: the Service";
    dynamic(envoy).assert_finds(Error, problem, "pool default", "create the Service");
}

/// Without the filter and routes to pools in Envoy, the agent's calls say why.
#[test]
fn calls_that_do_not_come() {
    let never = || ServerStatus { connections: 0, calls: HookCalls::default(), ..calls() };
    let only = |route, translation| HookCalls { route, endpoints: 0, translation };
    for (status, problem, fix) in [
        (never(), "has not connected to this agent", "extensionManagers"),
        (
            ServerStatus { failed_handshake: Some("certificate expired".to_owned()), ..never() },
            "the TLS handshake with Envoy Gateway fails, and changes of routes wait: certificate expired",
            "renew what has expired",
        ),
        (
            ServerStatus { calls: only(0, 1), ..calls() },
            "for no route to an InferencePool",
            "backendResources",
        ),
        (
            ServerStatus { calls: only(1, 0), ..calls() },
            "never Translation",
            "post: [Route, Endpoints, Translation]",
        ),
        (
            ServerStatus { calls: only(1, 0), ..never() },
            "never Translation",
            "post: [Route, Endpoints, Translation]",
        ),
        (
            ServerStatus {
                largest_translation: TranslationParts { routes: 0, ..calls().largest_translation },
                ..calls()
            },
            "passes no routes",
            "translation: {route: {includeAll: true}}",
        ),
        (
            ServerStatus {
                largest_translation: TranslationParts { listeners: 0, ..calls().largest_translation },
                ..calls()
            },
            "passes no listeners",
            "translation: {listener: {includeAll: true}}",
        ),
        (
            ServerStatus {
                largest_translation: TranslationParts { clusters: 0, ..calls().largest_translation },
                ..calls()
            },
            "passes no clusters",
            "translation: {cluster: {includeAll: true}}",
        ),
        (
            ServerStatus { calls: only(1, 1), ..calls() },
            "all pools of a rule have the same weight",
            "Endpoints",
        ),
    ] {
        let mut envoy = gateway();
        envoy.filters().remove(0);
        for field in ["typed_per_filter_config", "metadata"] {
            remove(&mut envoy.routes()[0], field);
        }
        envoy.extension = Some(status);
        let envoy = dynamic(envoy);
        envoy.assert_finds(Error, problem, "extension server", fix);
        assert!(!envoy.diagnose().passed().contains(&"a listener has the endpoint picker"), "{problem}");
    }
}

#[test]
fn an_agent_that_envoy_gateway_does_not_call_is_one_of_several() {
    let mut envoy = gateway();
    envoy.extension = Some(ServerStatus { connections: 0, calls: HookCalls::default(), ..calls() });
    dynamic(envoy).assert_is_ok();
}
