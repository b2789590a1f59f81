//! The module as Envoy Gateway and Istio configure it, from the shipped manifests.

use anyhow::{Context, Result, ensure};
use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, fresh_chat, fresh_prompt};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::fs;

const LISTENER: &str = "/static_resources/listeners/0";
const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
const ROUTE: &str = "/route_config/virtual_hosts/0/routes/0";
const CLUSTER_POLICY: &str =
    "/static_resources/clusters/0/load_balancing_policy/policies/0/typed_extension_config/typed_config";
const MODULE_FILE: &str = "/typed_config/dynamic_module_config/module/local/filename";
const MODULE_CONFIG: &str = "/typed_config/filter_config/value";

/// Both have round robin where the picker's list ends.
fn round_robin() -> Value {
    json!({"policies": [{"typed_extension_config": {
        "name": "envoy.load_balancing_policies.round_robin",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"},
    }}]})
}

#[tokio::test(flavor = "multi_thread")]
async fn the_module_picks_as_envoy_gateway_configures_it() {
    assert_picks(&Stack::builder().change(as_envoy_gateway_does).start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_module_picks_as_istio_configures_it() {
    assert_picks(&Stack::builder().change(as_istio_does).start().await).await;
}

/// Envoy Gateway 1.9: the filter is off for the listener and on for the route, a listener buffers 32 KiB, and the cluster's policy reads the
/// header.
fn as_envoy_gateway_does(config: &mut Config) -> Result<()> {
    const FILTER: &str =
        "envoy.filters.http.dynamic_modules/envoyextensionpolicy/inference/endpoint-picker/dynamic-module/0";
    let manifests = manifests("examples/envoy-gateway/native.yaml")?;
    let registered = at(of_kind(&manifests, "EnvoyProxy")?, "/spec/dynamicModules/0")?;
    let used = at(of_kind(&manifests, "EnvoyExtensionPolicy")?, "/spec/dynamicModule/0")?;
    ensure!(used["name"] == registered["name"], "{used} uses a module that is not registered");
    put_filter(
        config,
        json!({
            "name": FILTER,
            "disabled": true,
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter",
                "dynamic_module_config": {
                    "do_not_close": registered["doNotClose"],
                    "module": {"local": {"filename": registered["source"]["local"]["path"]}},
                },
                "filter_name": used["filterName"],
                "filter_config": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": used["config"].to_string(),
                },
            },
        }),
    )?;
    let removed =
        at(of_kind(&manifests, "ClientTrafficPolicy")?, "/spec/headers/earlyRequestHeaders/remove")?;
    let mutations: Vec<_> =
        removed.as_array().context("a list")?.iter().map(|name| json!({"remove": name})).collect();
    let document = config.document();
    at_mut(document, LISTENER)?["per_connection_buffer_limit_bytes"] = json!(32768);
    let manager = at_mut(document, MANAGER)?;
    manager["early_header_mutation_extensions"][0]["typed_config"]["mutations"] = mutations.into();
    at_mut(manager, ROUTE)?["typed_per_filter_config"] =
        json!({FILTER: {"@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig", "config": {}}});
    let traffic = at(of_kind(&manifests, "BackendTrafficPolicy")?, "/spec/loadBalancer")?;
    let policy = at_mut(document, CLUSTER_POLICY)?;
    policy["override_host_sources"] = traffic["endpointOverride"]["extractFrom"].clone();
    policy["fallback_policy"] = round_robin();
    Ok(())
}

/// Istio 1.31, for a route to an `InferencePool`: the cluster's policy reads the metadata, and the route still has the settings of the filter
/// that the manifest removes.
fn as_istio_does(config: &mut Config) -> Result<()> {
    const KEY: &str = "x-gateway-destination-endpoint-served";
    let manifests = manifests("examples/istio/native.yaml")?;
    let patches =
        of_kind(&manifests, "EnvoyFilter")?["spec"]["configPatches"].as_array().context("patches")?;
    let value_of = |operation: &str| {
        let patch = patches.iter().map(|patch| &patch["patch"]).find(|patch| patch["operation"] == operation);
        patch.map(|patch| &patch["value"]).with_context(|| format!("no patch has {operation}"))
    };
    put_filter(config, value_of("INSERT_BEFORE")?.clone())?;
    let merged = value_of("MERGE")?["typed_config"].as_object().context("a connection manager")?;
    let manager = at_mut(config.document(), MANAGER)?;
    for (field, value) in merged {
        manager[field] = value.clone();
    }
    at_mut(manager, ROUTE)?["typed_per_filter_config"] = json!({"envoy.filters.http.ext_proc": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
        "overrides": {"grpc_service": {"envoy_grpc": {"cluster_name": "model-servers"}}},
    }});
    let policy = at_mut(config.document(), CLUSTER_POLICY)?;
    policy["override_host_sources"] =
        json!([{"metadata": {"key": "envoy.lb", "path": [{"key": DESTINATION}]}}]);
    policy["selected_host_key"] = json!({"key": "envoy.lb", "path": [{"key": KEY}]});
    policy["fallback_policy"] = round_robin();
    Ok(())
}

/// Puts a filter in the place of the shipped one. The test's module and agent stay.
fn put_filter(config: &mut Config, mut filter: Value) -> Result<()> {
    let filters = at_mut(config.document(), MANAGER)?["http_filters"].as_array_mut().context("filters")?;
    let shipped =
        filters.iter_mut().find(|filter| filter.pointer(MODULE_CONFIG).is_some()).context("a picker")?;
    let agent = fields(shipped)?["agent"].clone();
    let mut fields = fields(&filter)?;
    ensure!(fields["agent"]["addresses"][0].is_string(), "{fields} names no agent");
    fields["agent"] = agent;
    *at_mut(&mut filter, MODULE_CONFIG)? = fields.to_string().into();
    let file = at_mut(&mut filter, MODULE_FILE)?;
    let version = concat!("-", env!("CARGO_PKG_VERSION"), "-x86_64-linux-gnu.so");
    ensure!(file.as_str().is_some_and(|file| file.ends_with(version)), "{file} does not end with {version}");
    *file = Filter::Native.shipped_path().into();
    *shipped = filter;
    Ok(())
}

/// The module's own configuration.
fn fields(filter: &Value) -> Result<Value> {
    let text = at(filter, MODULE_CONFIG)?.as_str().context("a string")?;
    serde_json::from_str(text).with_context(|| text.to_owned())
}

/// Checks that each request goes where the picker's header says, also one that is larger than Envoy's buffers, and that no client chooses.
async fn assert_picks(stack: &Stack) {
    let large = client::chat(&format!("{} {}", fresh_prompt(), "x".repeat(512 << 10)));
    for body in (0..8).map(|_| fresh_chat()).chain([large]) {
        let request = client::http1().post(stack.url(CHAT)).header(DESTINATION, "127.0.0.1:1").json(&body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let served = &stack.servers()[stack.served_by(&response)];
        let received = served.take_requests();
        assert_eq!(received[0].header(DESTINATION), Some(served.endpoint().as_str()));
    }
}

fn manifests(path: &str) -> Result<Vec<Value>> {
    let text = fs::read_to_string(tools::root().join(path)).with_context(|| path.to_owned())?;
    serde_saphyr::from_multiple(&text).with_context(|| path.to_owned())
}

fn of_kind<'a>(manifests: &'a [Value], kind: &str) -> Result<&'a Value> {
    manifests.iter().find(|manifest| manifest["kind"] == kind).with_context(|| format!("no {kind}"))
}

fn at<'a>(value: &'a Value, pointer: &str) -> Result<&'a Value> {
    value.pointer(pointer).with_context(|| format!("nothing at {pointer}"))
}

fn at_mut<'a>(value: &'a mut Value, pointer: &str) -> Result<&'a mut Value> {
    value.pointer_mut(pointer).with_context(|| format!("nothing at {pointer}"))
}
