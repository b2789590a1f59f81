//! The chart's `EnvoyFilter` in a real Envoy, in a configuration like the one that Istio 1.31 makes for a
//! route to an `InferencePool`.

mod patches;

use anyhow::{Context, Result, ensure};
use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, fresh_chat, fresh_prompt};
use endpoint_picker_e2e::statistics::published_statistics;
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use endpoint_picker_kube::chart::{of_kind, render};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};
use std::path::PathBuf;

const LISTENER: &str = "/static_resources/listeners/0";
const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
const ROUTES: &str = "/route_config/virtual_hosts/0/routes";
const CLUSTERS: &str = "/static_resources/clusters";

/// Istio's name of the filter that calls EPPs.
const EXT_PROC: &str = "envoy.filters.http.ext_proc";

/// The header with which a test makes the other picker choose.
const CHOICE: &str = "x-test-choice";

/// A path of a route that leads to another pool of the same Gateway.
const OTHER: &str = "/other";

#[tokio::test(flavor = "multi_thread")]
async fn the_wasm_filter_picks_where_istio_calls_an_external_picker() {
    assert_picks(&started(Filter::Wasm).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_native_module_picks_where_istio_calls_an_external_picker() {
    assert_picks(&started(Filter::Native).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_wasm_filter_compares_behind_the_external_picker() {
    assert_compares(Filter::Wasm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_native_module_compares_behind_the_external_picker() {
    assert_compares(Filter::Native).await;
}

async fn started(filter: Filter) -> Stack {
    let change = match filter {
        Filter::Wasm => |config: &mut Config| picking(config, Filter::Wasm),
        Filter::Native => |config: &mut Config| picking(config, Filter::Native),
    };
    let token_file = token_folder().join("token").display().to_string();
    let flags = ["--bearer-token-file", &token_file, "--allow-unauthenticated-reads"];
    let stack = Stack::builder().filter(filter).agent_flags(&flags).change(change).start().await;
    eventually("the agent takes the proxy's reports", async || {
        let metrics = stack.agent().context("an agent")?.metrics().await?;
        let refused = "metrics_agent_reports_total{outcome=\"accepted\"} 0\n";
        ensure!(metrics.contains("metrics_agent_reports_total") && !metrics.contains(refused), "{metrics}");
        Ok(())
    })
    .await;
    stack
}

/// The files that proxies mount of the Secret with the agent's token.
fn token_folder() -> PathBuf {
    tools::root().join("tests/kube/tests/chart/istio/token")
}

/// The pool of the chart's values.
fn pool() -> Value {
    json!({"name": "chat", "selector": {"app": "vllm"}, "targetPorts": [8000]})
}

fn picking(config: &mut Config, filter: Filter) -> Result<()> {
    let document = config.document();
    let agent = agent_of(document, filter)?;
    make_istios(document)?;
    patch(document, filter, &agent, &pool())
}

/// The filter behind another picker, which stands where Istio calls the EPP.
fn comparing(config: &mut Config, filter: Filter) -> Result<()> {
    let document = config.document();
    let agent = agent_of(document, filter)?;
    make_istios(document)?;
    let manager = at_mut(document, MANAGER)?;
    let filters = manager["http_filters"].as_array_mut().context("filters")?;
    filters.splice(..1, other_picker());
    for route in at_mut(manager, ROUTES)?.as_array_mut().context("routes")? {
        route.as_object_mut().context("a route")?.remove("typed_per_filter_config");
    }
    let mut pool = pool();
    pool["shadow"] = json!({});
    patch(document, filter, &agent, &pool)?;
    let filters = at_mut(document, MANAGER)?["http_filters"].as_array().context("filters")?;
    let names: Vec<_> = filters.iter().filter_map(|filter| filter["name"].as_str()).collect();
    let expected = [EXT_PROC, "metadata", "endpoint-picker/inference/chat", "envoy.filters.http.router"];
    ensure!(names == expected, "{names:?}");
    Ok(())
}

/// A picker under the name of `ext_proc`, with the choice of the client, and the metadata that `ext_proc`
/// writes.
fn other_picker() -> [Value; 2] {
    let copied = json!({"key": DESTINATION, "value": format!("%REQ({CHOICE})%")});
    let target = json!({"metadata_namespace": "envoy.lb", "key": DESTINATION, "type": "STRING"});
    [
        json!({
            "name": EXT_PROC,
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
                "mutations": {"request_mutations": [{"append": {"header": copied, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}}]},
            },
        }),
        json!({
            "name": "metadata",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
                "request_rules": [{"header": DESTINATION, "on_header_present": target}],
            },
        }),
    ]
}

fn patch(document: &mut Value, filter: Filter, agent: &str, pool: &Value) -> Result<()> {
    let token_folder = token_folder();
    let objects = render(&json!({
        "pools": [pool],
        "gateway": {
            "kind": "istio",
            "form": filter.to_string(),
            // The agent of this test knows its pool without a namespace.
            "filter": {"pool": "default"},
            "tokenFolder": token_folder,
        },
    }))?;
    let mut envoy_filter = of_kind(&objects, "EnvoyFilter")?.clone();
    let patches = envoy_filter["spec"]["configPatches"].as_array_mut().context("patches")?;
    for patch in patches.iter_mut() {
        let value = &mut patch["patch"]["value"];
        use_agent(value, agent)?;
        use_module(value, filter)?;
    }
    patches::apply(patches, document)
}

/// The address of the test's agent, as `ip:port`.
fn agent_of(document: &Value, filter: Filter) -> Result<String> {
    match filter {
        Filter::Wasm => {
            let clusters = document.pointer(CLUSTERS).and_then(Value::as_array).context("clusters")?;
            let cluster = clusters.iter().find(|cluster| cluster["name"] == "metrics-agent");
            let address = cluster
                .and_then(|cluster| cluster.pointer("/load_assignment/endpoints/0/lb_endpoints/0/endpoint"))
                .context("the agent's cluster")?;
            let address = &address["address"]["socket_address"];
            Ok(format!("{}:{}", address["address"].as_str().context("an address")?, address["port_value"]))
        }
        Filter::Native => {
            let filters = document.pointer(MANAGER).context("a manager")?["http_filters"].clone();
            let picker = filters.as_array().into_iter().flatten().find_map(|filter| {
                filter.pointer("/typed_config/filter_config/value").and_then(Value::as_str)
            });
            let fields: Value = serde_json::from_str(picker.context("a picker")?)?;
            let url = fields["agent"]["addresses"][0].as_str().context("an address")?;
            Ok(url.strip_prefix("http://").context(url.to_owned())?.to_owned())
        }
    }
}

/// Replaces the agent's Service in what a patch inserts.
fn use_agent(value: &mut Value, agent: &str) -> Result<()> {
    const SERVICE: &str = "picker-endpoint-picker.inference.svc.cluster.local";
    let (ip, port) = agent.split_once(':').context("an address and a port")?;
    if let Some(address) =
        value.pointer_mut("/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address")
        && address["address"] == SERVICE
    {
        *address = json!({"address": ip, "port_value": port.parse::<u16>()?});
        // The agent of this test has one port.
        let endpoint = at_mut(value, "/load_assignment/endpoints/0/lb_endpoints/0/endpoint")?;
        endpoint.as_object_mut().context("an endpoint")?.remove("health_check_config").context("a port")?;
    }
    if let Some(config) = value.pointer_mut("/typed_config/filter_config/value") {
        let text = config.as_str().context("a text")?.replace(&format!("{SERVICE}:9095"), agent);
        *config = text.into();
    }
    Ok(())
}

/// Replaces the mounted module in what a patch inserts by the stack's.
fn use_module(value: &mut Value, filter: Filter) -> Result<()> {
    const MOUNTED: &str = "/opt/endpoint-picker/";
    for place in ["/typed_config/config/vm_config/code", "/typed_config/dynamic_module_config/module"] {
        if let Some(file) = value.pointer_mut(place).and_then(|module| module.pointer_mut("/local/filename"))
        {
            ensure!(
                file.as_str().is_some_and(|file| file.starts_with(MOUNTED)),
                "{file} is not in {MOUNTED}"
            );
            *file = filter.shipped_path().into();
        }
    }
    Ok(())
}

/// Changes the shipped configuration to one like Istio's: without our filters and settings, with its own
/// filter, names, limits and cluster.
fn make_istios(document: &mut Value) -> Result<()> {
    let ext_proc = json!({
        "name": EXT_PROC,
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
            "grpc_service": {"envoy_grpc": {"cluster_name": "dummy"}, "timeout": "10s"},
            "failure_mode_allow": true,
            "processing_mode": {"request_header_mode": "SKIP", "response_header_mode": "SKIP"},
            "message_timeout": "1000s",
        },
    });
    let to_external_picker = json!({"envoy.filters.http.ext_proc": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute",
        "overrides": {
            "failure_mode_allow": false,
            "grpc_service": {"envoy_grpc": {"cluster_name": "model-servers"}},
            "processing_mode": {"request_header_mode": "SEND", "request_body_mode": "FULL_DUPLEX_STREAMED", "request_trailer_mode": "SEND"},
        },
    }});
    at_mut(document, LISTENER)?["per_connection_buffer_limit_bytes"] = json!(32768);
    let manager = at_mut(document, MANAGER)?;
    let router = manager["http_filters"].as_array_mut().and_then(Vec::pop).context("a router")?;
    manager["http_filters"] = json!([ext_proc, router]);
    let fields = manager.as_object_mut().context("a manager")?;
    for field in [
        "early_header_mutation_extensions",
        "normalize_path",
        "merge_slashes",
        "path_with_escaped_slashes_action",
    ] {
        fields.remove(field).with_context(|| format!("no {field}"))?;
    }
    let routes = at_mut(manager, ROUTES)?;
    let route = &mut routes[0];
    route["name"] = "inference.chat.0".into();
    route["route"]["retry_policy"] =
        json!({"retry_on": "connect-failure,refused-stream,unavailable,cancelled,503", "num_retries": 2});
    let mut other = route.clone();
    other["name"] = "inference.other.0".into();
    other["match"] = json!({"prefix": OTHER});
    route["typed_per_filter_config"] = to_external_picker;
    let chat = route.clone();
    *routes = json!([other, chat]);

    let clusters = at_mut(document, CLUSTERS)?.as_array_mut().context("clusters")?;
    clusters.retain(|cluster| cluster["name"] == "model-servers");
    clusters[0]["load_balancing_policy"] = json!({"policies": [{"typed_extension_config": {
        "name": "envoy.load_balancing_policies.override_host",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
            "override_host_sources": [{"metadata": {"key": "envoy.lb", "path": [{"key": DESTINATION}]}}],
            "selected_host_key": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint-served"}]},
            "fallback_policy": {"policies": [{"typed_extension_config": {
                "name": "envoy.load_balancing_policies.round_robin",
                "typed_config": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"},
            }}]},
        },
    }}]});
    Ok(())
}

/// Checks that each request goes where the picker's header says, also one that is larger than Istio's
/// buffers, that no client chooses, and that routes to other pools are left alone.
async fn assert_picks(stack: &Stack) {
    let large = client::chat(&format!("{} {}", fresh_prompt(), "x".repeat(5 << 20)));
    for body in (0..8).map(|_| fresh_chat()).chain([large]) {
        let request = client::http1().post(stack.url(CHAT)).header(DESTINATION, "127.0.0.1:1").json(&body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let served = &stack.servers()[stack.served_by(&response)];
        let received = served.take_requests();
        assert_eq!(received[0].header(DESTINATION), Some(served.endpoint().as_str()));
    }
    let request =
        client::http1().post(stack.url(OTHER)).header(DESTINATION, "127.0.0.1:1").json(&fresh_chat());
    let response = request.send().await.unwrap();
    let received = stack.servers()[stack.served_by(&response)].take_requests();
    assert_eq!(received[0].header(DESTINATION), None, "neither the client nor the picker may choose here");
}

/// Checks that requests go where the other picker sends them, and that the filter compares those of its own
/// route.
async fn assert_compares(filter: Filter) {
    let change = match filter {
        Filter::Wasm => |config: &mut Config| comparing(config, Filter::Wasm),
        Filter::Native => |config: &mut Config| comparing(config, Filter::Native),
    };
    // Without an agent the start does not wait for picks, of which there are none.
    let mut stack = Stack::builder().filter(filter).change(change).without_agent().start().await;
    stack.start_agent().await;
    eventually("every worker compares", async || {
        let (compared, _) = compared(&stack).await;
        for _ in 0..20 {
            chosen(&stack, CHAT, 0).await;
        }
        let (now, _) = self::compared(&stack).await;
        if now == compared + 20 { Ok(()) } else { Err(format!("{} of 20", now - compared)) }
    })
    .await;
    let before = compared(&stack).await;
    for request in 0..12 {
        chosen(&stack, CHAT, request % stack.servers().len()).await;
        sent(&stack, OTHER, request % stack.servers().len()).await;
    }
    let after = compared(&stack).await;
    assert_eq!((after.0 - before.0, after.1 - before.1), (12, 0), "requests of the pool's route only");
}

/// Sends a request that the other picker sends to this server, and that it serves.
async fn chosen(stack: &Stack, path: &str, server: usize) {
    assert_eq!(sent(stack, path, server).await.status(), StatusCode::OK);
}

/// Sends a request that the other picker sends to this server, and checks that it went there.
async fn sent(stack: &Stack, path: &str, server: usize) -> Response {
    let choice = stack.servers()[server].endpoint();
    let request = client::http1().post(stack.url(path)).header(CHOICE, choice).json(&fresh_chat());
    let response = request.send().await.unwrap();
    assert_eq!(stack.served_by(&response), server);
    response
}

/// Requests that were compared, and those that were not.
async fn compared(stack: &Stack) -> (u64, u64) {
    let statistics = published_statistics(stack).await;
    let count = |name: &str| statistics.count(&format!("shadow_{name}{{pool=\"default\"}}"));
    (count("agreed") + count("disagreed"), count("not_compared"))
}

fn at_mut<'a>(value: &'a mut Value, pointer: &str) -> Result<&'a mut Value> {
    value.pointer_mut(pointer).with_context(|| format!("nothing at {pointer}"))
}
