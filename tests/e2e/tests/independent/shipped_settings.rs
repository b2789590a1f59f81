//! The settings of routes and clusters for which `envoy.yaml` gives a reason are the same wherever else they
//! are written.

use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::{Config, examples};
use endpoint_picker_harness::shipped::snippets::{self, Snippet};
use endpoint_picker_harness::tools;
use serde_json::{Value, json};
use std::fs;

const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
const ROUTES: &str = "/route_config/virtual_hosts/0/routes";
const PICKER: &str = "/http_filters/0/typed_config/config";
const IDLE_TIMEOUT: &str = "/typed_extension_protocol_options/envoy.extensions.upstreams.http.v3.HttpProtocolOptions/common_http_protocol_options/idle_timeout";
const THRESHOLDS: &str = "/circuit_breakers/thresholds/0";

/// Clusters that are not of model servers with a picker.
const OTHERS: [&str; 2] = ["metrics-agent", "hosted"];

fn shipped() -> Value {
    Config::converted("envoy.yaml", Filter::Wasm).unwrap().document().clone()
}

fn at<'a>(value: &'a Value, place: &str) -> &'a Value {
    value.pointer(place).unwrap_or_else(|| panic!("nothing at {place} of {value}"))
}

fn manager(document: &Value) -> &Value {
    at(document, MANAGER)
}

fn route(document: &Value) -> &Value {
    at(manager(document), &format!("{ROUTES}/0/route"))
}

/// The cluster of the model servers in `envoy.yaml`.
fn model_servers(document: &Value) -> &Value {
    at(document, "/static_resources/clusters/0")
}

/// Checks the limits of a cluster, of which the retries count only where Envoy's router sends the requests.
fn assert_limits(cluster: &Value, shipped: &Value, place: &str) {
    for setting in ["/connect_timeout", IDLE_TIMEOUT] {
        assert_eq!(cluster.pointer(setting), Some(at(shipped, setting)), "{place}: {setting} of {cluster}");
    }
    for limit in ["max_connections", "max_pending_requests", "max_requests"] {
        let setting = format!("{THRESHOLDS}/{limit}");
        assert_eq!(cluster.pointer(&setting), Some(at(shipped, &setting)), "{place}: {limit} of {cluster}");
    }
}

/// The first configuration of a page that has this text.
fn of_page(page: &str, text: &str) -> Snippet {
    let mut all = snippets::of_documents().unwrap().into_iter();
    all.find(|snippet| snippet.at.starts_with(&format!("{page}:")) && snippet.text.contains(text)).unwrap()
}

/// A configuration without the parts that the page leaves out, and with the picker's own configuration as
/// JSON.
fn comparable(mut document: Value) -> Value {
    let manager = document.pointer_mut(MANAGER).unwrap();
    manager.as_object_mut().unwrap().remove("access_log");
    let picker = manager.pointer_mut(PICKER).unwrap();
    picker.as_object_mut().unwrap().remove("capability_restriction_config");
    let own = &mut picker["configuration"]["value"];
    *own = serde_json::from_str(own.as_str().unwrap()).unwrap();
    document
}

#[test]
fn the_whole_configuration_of_the_page_is_envoy_yaml() {
    let whole = of_page("docs/install/envoy.md", "\nstatic_resources:\n");
    let documented = Config::installed(&whole.text, Filter::Wasm).unwrap().document().clone();
    let (documented, shipped) = (comparable(documented), comparable(shipped()));
    let text = |value: &Value| serde_json::to_string_pretty(value).unwrap();
    assert_eq!(text(&documented), text(&shipped), "{}", whole.at);
}

#[test]
fn the_documented_cluster_of_the_module_has_the_limits_of_envoy_yaml() {
    let cluster = of_page("docs/reference/filter.md", "cluster_type:");
    let clusters: Value = serde_saphyr::from_str(&cluster.text).unwrap();
    assert_limits(&clusters[0], model_servers(&shipped()), &cluster.at);
    assert_eq!(at(&clusters[0], THRESHOLDS), at(model_servers(&shipped()), THRESHOLDS), "{}", cluster.at);
}

#[test]
fn each_example_has_the_limits_of_envoy_yaml() {
    let shipped = shipped();
    for name in examples().unwrap() {
        let mut config = Config::converted(&format!("examples/{name}"), Filter::Wasm).unwrap();
        let document = config.document();
        let clusters = document["static_resources"]["clusters"].as_array().unwrap();
        for cluster in clusters.iter().filter(|cluster| !OTHERS.iter().any(|it| cluster["name"] == *it)) {
            assert_limits(cluster, model_servers(&shipped), &name);
        }
        for entry in at(manager(document), ROUTES).as_array().unwrap() {
            for timeout in ["timeout", "idle_timeout"] {
                assert_eq!(entry["route"][timeout], route(&shipped)[timeout], "{name}: {entry}");
            }
        }
    }
}

/// The objects of a file of `deploy/rendered`.
fn rendered(name: &str) -> Vec<Value> {
    let file = tools::root().join(format!("deploy/rendered/{name}.yaml"));
    serde_saphyr::from_multiple(&fs::read_to_string(file).unwrap()).unwrap()
}

fn object<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[test]
fn istio_gets_the_settings_of_envoy_yaml() {
    let shipped = shipped();
    let (cluster, route) = (model_servers(&shipped), route(&shipped));
    for name in ["istio-wasm", "istio-native"] {
        let objects = rendered(name);
        // Istio's own circuit breakers have no limits.
        let rule = &object(&objects, "DestinationRule")["spec"];
        let expected = json!({"connectionPool": {
            "tcp": {"connectTimeout": cluster["connect_timeout"]},
            "http": {"idleTimeout": at(cluster, IDLE_TIMEOUT)},
        }});
        assert_eq!(rule["trafficPolicy"], expected, "{name}");
        let patches = object(&objects, "EnvoyFilter")["spec"]["configPatches"].as_array().unwrap();
        let value = |kind: &str| {
            let patch = patches.iter().find(|patch| patch["applyTo"] == kind);
            &patch.unwrap_or_else(|| panic!("{name}: no patch of {kind}"))["patch"]["value"]
        };
        let patched = &value("HTTP_ROUTE")["route"];
        for setting in ["retry_policy", "idle_timeout"] {
            assert_eq!(patched[setting], route[setting], "{name}: {setting}");
        }
        let of_manager = &value("NETWORK_FILTER")["typed_config"];
        assert_eq!(of_manager["request_timeout"], manager(&shipped)["request_timeout"], "{name}");
        assert_eq!(at(object(&objects, "HTTPRoute"), "/spec/rules/0/timeouts/request"), &route["timeout"]);
    }
}

/// Its own retries have the `previous_hosts` predicate.
#[test]
fn envoy_gateway_gets_the_settings_of_envoy_yaml() {
    let shipped = shipped();
    let (cluster, route) = (model_servers(&shipped), route(&shipped));
    let limits = at(cluster, THRESHOLDS);
    for name in ["envoy-gateway-wasm", "envoy-gateway-native"] {
        let objects = rendered(name);
        let traffic = &object(&objects, "BackendTrafficPolicy")["spec"];
        let expected = json!({
            "tcp": {"connectTimeout": cluster["connect_timeout"]},
            "http": {
                "requestTimeout": route["timeout"],
                "streamIdleTimeout": route["idle_timeout"],
                "connectionIdleTimeout": at(cluster, IDLE_TIMEOUT),
            },
        });
        assert_eq!(traffic["timeout"], expected, "{name}");
        let expected = json!({
            "maxConnections": limits["max_connections"],
            "maxPendingRequests": limits["max_pending_requests"],
            "maxParallelRequests": limits["max_requests"],
            "maxParallelRetries": limits["max_retries"],
        });
        assert_eq!(traffic["circuitBreaker"], expected, "{name}");
        assert_eq!(traffic["retry"]["numRetries"], route["retry_policy"]["num_retries"], "{name}");
        let received =
            at(object(&objects, "ClientTrafficPolicy"), "/spec/timeout/http/requestReceivedTimeout");
        assert_eq!(received, &manager(&shipped)["request_timeout"], "{name}");
    }
}

/// An archive has these files without the repository around them.
#[test]
fn the_shipped_files_need_no_make() {
    for name in ["envoy.yaml", "envoy-native.yaml"] {
        let text = fs::read_to_string(tools::root().join(name)).unwrap();
        assert!(!text.contains("make build"), "{name} needs the repository");
    }
}
