//! Configurations as control planes send them: by LDS, RDS, CDS and ECDS, with filters that routes enable.

use metrics_agent_doctor::doctor::Severity::Error;
use serde_json::{Value, json};

use super::fixture::{DESTINATION, Recorded, remove};

const FILTER_CONFIG: &str = "type.googleapis.com/envoy.config.route.v3.FilterConfig";

/// All resources of the recorded Envoy as resources of a control plane.
pub(super) fn dynamic(mut envoy: Recorded) -> Recorded {
    let routes = remove(envoy.manager(), "route_config");
    envoy.manager()["rds"] = json!({"route_config_name": "inference"});
    let listeners = envoy.section("static_listeners");
    let listener = listeners["static_listeners"][0]["listener"].take();
    *listeners =
        json!({"dynamic_listeners": [{"name": "inference", "active_state": {"listener": listener}}]});
    let clusters = envoy.section("static_clusters");
    let entries = clusters["static_clusters"].take();
    *clusters = json!({"dynamic_active_clusters": entries});
    *envoy.section("static_route_configs") = json!({"dynamic_route_configs": [{"route_config": routes}]});
    envoy
}

/// Disables the filters in the chain, and enables them on the first route.
fn enable_by_route(envoy: &mut Recorded, filters: usize) {
    let names: Vec<Value> = envoy.filters()[..filters]
        .iter_mut()
        .map(|filter| {
            filter["disabled"] = true.into();
            filter["name"].clone()
        })
        .collect();
    let route = &mut envoy.routes()[0];
    for name in names {
        route["typed_per_filter_config"][name.as_str().unwrap()] =
            json!({"@type": FILTER_CONFIG, "config": {}});
    }
}

/// As the chart's `EnvoyFilter` changes what Istio sends: the pool's cluster reads the metadata of an
/// external picker.
#[test]
fn istio_with_the_chart_has_no_mistake() {
    let mut wasm = Recorded::wasm();
    wasm.filters()[1]["typed_config"]["request_rules"].as_array_mut().unwrap().truncate(1);
    let mutations = "/early_header_mutation_extensions/0/typed_config/mutations";
    let mutations = wasm.manager().pointer_mut(mutations).unwrap().as_array_mut().unwrap();
    mutations
        .retain(|it| it["remove"] == DESTINATION || it["remove"].as_str().unwrap().contains("model-name"));
    enable_by_route(&mut wasm, 2);
    dynamic(wasm).assert_is_ok();
    let mut native = Recorded::native();
    enable_by_route(&mut native, 1);
    dynamic(native).assert_is_ok();
}

/// As Envoy Gateway makes it of the chart's policies: the cluster reads the header.
#[test]
fn envoy_gateway_with_the_chart_has_no_mistake() {
    for (mut envoy, filters) in [(Recorded::wasm(), 1), (Recorded::native(), 1)] {
        let sources =
            "/load_balancing_policy/policies/0/typed_extension_config/typed_config/override_host_sources";
        *envoy.cluster("model-servers").pointer_mut(sources).unwrap() = json!([{"header": DESTINATION}]);
        envoy.filters().retain(|filter| filter["name"] != "destination-metadata");
        enable_by_route(&mut envoy, filters);
        let cluster = envoy.routes()[0]["route"]["cluster"].take();
        envoy.routes()[0]["route"]["weighted_clusters"] =
            json!({"clusters": [{"name": cluster, "weight": 1}]});
        remove(&mut envoy.routes()[0]["route"], "cluster");
        dynamic(envoy).assert_is_ok();
    }
}

#[test]
fn routes_that_envoy_does_not_have() {
    let mut envoy = dynamic(Recorded::wasm());
    *envoy.section("dynamic_route_configs") = json!({});
    let problem = "Envoy does not have the route configuration \"inference\"";
    envoy.assert_finds(Error, problem, "listener inference", "route_config_name");
}

#[test]
fn a_listener_that_waits_for_its_routes() {
    let mut envoy = dynamic(Recorded::wasm());
    let listener = &mut envoy.section("dynamic_listeners")["dynamic_listeners"][0];
    let state = remove(listener, "active_state");
    listener["warming_state"] = state;
    *envoy.section("dynamic_route_configs") = json!({});
    let problem = "Envoy does not have the route configuration \"inference\"";
    envoy.assert_finds(Error, problem, "listener inference", "route_config_name");
}

#[test]
fn a_filter_that_comes_by_itself() {
    let mut envoy = Recorded::native();
    let typed_config = remove(&mut envoy.filters()[0], "typed_config");
    envoy.filters()[0]["config_discovery"] = json!({"type_urls": []});
    let filter = json!({"name": "endpoint-picker", "typed_config": typed_config});
    envoy.dump["configs"].as_array_mut().unwrap().push(json!({"ecds_filters": [{"ecds_filter": filter}]}));
    envoy.assert_is_ok();
}

#[test]
fn a_picker_of_a_route() {
    let mut envoy = Recorded::native();
    let config = json!({"pool": "other", "agent": {"addresses": ["http://127.0.0.1:9095"]}}).to_string();
    envoy.routes()[0]["typed_per_filter_config"]["endpoint-picker"] = json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute",
        "filter_config": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": config},
    });
    envoy.assert_finds(Error, "the agent has no pool \"other\"", "route prefix /", "pools: default");
}

/// In a `TypedStruct`, and with a `Struct` as the picker's own configuration.
#[test]
fn a_filter_in_a_message_that_the_control_plane_does_not_know() {
    let mut envoy = Recorded::wasm();
    let mut fields = envoy.filters()[0]["typed_config"].take();
    let url = remove(&mut fields, "@type");
    fields["config"]["configuration"] = json!({
        "@type": "type.googleapis.com/google.protobuf.Struct",
        "value": {"pool": "default", "agentCluster": "metrics-agent"},
    });
    envoy.filters()[0]["typed_config"] =
        json!({"@type": "type.googleapis.com/xds.type.v3.TypedStruct", "type_url": url, "value": fields});
    let report = envoy.assert_is_ok();
    assert!(report.passed().contains(&"the wasm filter can wait for bodies"), "{report}");
}
