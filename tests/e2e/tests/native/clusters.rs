//! The module's own cluster: its hosts are the pool's endpoints, and retries go where the picker's list says.

use anyhow::{Context, Result};
use endpoint_picker_e2e::fixture::{
    CHAT, assert_no_endpoints, forget_requests, fresh_chat, prefer, request_counts,
};
use endpoint_picker_e2e::steady_load::SteadyLoad;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::scripted_agent::{Pool, ScriptedAgent};
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_harness::{client, subset_hint};
use endpoint_picker_model_server::ModelServer;
use reqwest::StatusCode;
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const FILTERS: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";

/// Manifests by which the servers with even numbers are the pool `default`, and the others the pool `second`.
pub(crate) const TWO_POOLS: &str = "
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: { name: default }
spec: { selector: { matchLabels: { side: left } }, targetPorts: [{ number: 8000 }] }
---
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: { name: second }
spec: { selector: { matchLabels: { side: right } }, targetPorts: [{ number: 8000 }] }
";

/// Without EDS file and `override_host`. The cluster's configuration has these fields of the filter's.
pub(crate) fn own_cluster_with(config: &mut Config, fields: &[&str]) -> Result<()> {
    let document = config.document();
    let filters = document.pointer(FILTERS).and_then(|filters| filters.as_array()).context("no filters")?;
    let mut filters = filters.iter().map(|filter| &filter["typed_config"]);
    let filter =
        filters.find(|filter| filter["filter_config"].is_object()).context("no native module")?.clone();
    let filter_config = filter["filter_config"]["value"].as_str().context("no configuration")?;
    let mut cluster_config: Map<String, Value> = serde_json::from_str(filter_config)?;
    cluster_config.retain(|field, _| fields.contains(&field.as_str()));
    document["static_resources"]["clusters"][0] = json!({
        "name": "model-servers",
        "connect_timeout": "1s",
        "lb_policy": "CLUSTER_PROVIDED",
        "cluster_type": {
            "name": "envoy.clusters.dynamic_modules",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig",
                "dynamic_module_config": filter["dynamic_module_config"],
                "cluster_name": "endpoint-picker",
                "cluster_config": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": Value::from(cluster_config).to_string(),
                },
            },
        },
    });
    Ok(())
}

/// A cluster that follows the pool of the filter's configurations.
fn own_cluster(config: &mut Config) -> Result<()> {
    own_cluster_with(config, &["pool"])
}

/// A cluster that has snapshots before the first listener.
fn own_cluster_with_agent(config: &mut Config) -> Result<()> {
    own_cluster_with(config, &["pool", "agent"])
}

fn builder() -> Builder {
    Stack::builder().picker_field("steering", "cluster").change(own_cluster)
}

/// Clients that together send up to 1 600 requests a second.
fn heavy_load(stack: &Stack) -> Vec<SteadyLoad> {
    (0..8).map(|_| SteadyLoad::start(stack)).collect()
}

/// Ends them and checks that every request was served.
async fn stop(loads: Vec<SteadyLoad>) {
    for load in loads {
        load.stop().await;
    }
}

/// The addresses of these servers.
fn addresses(servers: &[ModelServer]) -> Vec<SocketAddr> {
    servers.iter().map(ModelServer::address).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn replacing_all_endpoints_under_load_loses_no_request() {
    let stack = builder().servers(4).workers(4).without_access_log().start().await;
    let (some, others) = stack.servers().split_at(2);
    let loads = heavy_load(&stack);
    for _ in 0..5 {
        for endpoints in [others, some] {
            stack.set_endpoints(&addresses(endpoints));
            eventually("only the new endpoints get requests", async || {
                forget_requests(&stack);
                stack.wait_until_picking().await;
                let counts = request_counts(&stack);
                let is_new =
                    |server: &ModelServer| endpoints.iter().any(|new| new.address() == server.address());
                let older = stack.servers().iter().zip(&counts).filter(|(server, _)| !is_new(server));
                let older: usize = older.map(|(_, count)| count).sum();
                if older == 0 { Ok(()) } else { Err(format!("{counts:?}")) }
            })
            .await;
        }
    }
    stop(loads).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_agent_under_load_loses_no_request_and_its_endpoints_are_the_hosts() {
    let builder = Stack::builder().picker_field("steering", "cluster").change(own_cluster_with_agent);
    let mut stack = builder.servers(4).listeners_in_file().start().await;
    let log = stack.envoy().log().unwrap();
    assert!(!log.contains("has no snapshot yet"), "the cluster has its snapshot before any listener: {log}");
    let (some, others) = stack.servers().split_at(2);
    stack.set_endpoints(&addresses(some));
    let agent = ScriptedAgent::start().await.unwrap();
    agent.set("default", Pool { endpoints: addresses(others), ..Pool::default() });
    let addresses = json!({"addresses": [format!("http://{}", agent.address())]});
    let loads = heavy_load(&stack);
    stack.change_listeners(|config| config.set_picker_field("agent", addresses)).await;
    eventually("the new agent's endpoints get the requests", async || {
        let response = stack.post(CHAT, &fresh_chat()).await;
        assert_eq!(response.status(), StatusCode::OK);
        if stack.served_by(&response) >= 2 { Ok(()) } else { Err("an older one") }
    })
    .await;
    for _ in 0..20 {
        assert!(stack.served_by(&stack.post(CHAT, &fresh_chat()).await) >= 2);
    }
    stop(loads).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_is_named_without_its_namespace_has_hosts() {
    let agent = ScriptedAgent::start().await.unwrap();
    let stack = builder().own_agent(agent.address()).start().await;
    let pool = Pool { endpoints: addresses(stack.servers()), ..Pool::default() };
    agent.set_with_full_name("default", "team-a/default", pool);
    stack.wait_until_picking().await;
    for _ in 0..10 {
        assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
    }
}

/// Sends requests until `is_over`, from before Envoy listens. Returns the statuses that are not 200, and the
/// number of all.
async fn ask_from_the_start(url: String, is_over: Arc<AtomicBool>) -> (Vec<StatusCode>, usize) {
    let (mut refused, mut count) = (Vec::new(), 0);
    while !is_over.load(Ordering::Relaxed) {
        // Nothing listens yet, or no more.
        let Ok(response) = client::http1().post(&url).json(&fresh_chat()).send().await else {
            tokio::task::yield_now().await;
            continue;
        };
        count += 1;
        refused.extend(Some(response.status()).filter(|status| *status != StatusCode::OK));
    }
    (refused, count)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_requests_of_an_envoy_are_served_also_after_a_hot_restart() {
    let mut stack = builder().can_hot_restart().start().await;
    for _ in 0..2 {
        stack.kill_envoy();
        let is_over = Arc::<AtomicBool>::default();
        let asking = tokio::spawn(ask_from_the_start(stack.url(CHAT), is_over.clone()));
        stack.restart_envoy().await.unwrap();
        is_over.store(true, Ordering::Relaxed);
        let (refused, count) = asking.await.unwrap();
        assert!(refused.is_empty() && count > 0, "{} of {count}: {refused:?}", refused.len());
    }
    let load = SteadyLoad::start(&stack);
    stack.hot_restart().await.unwrap();
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_to_the_best_server_and_elsewhere_when_it_has_left_the_pool() {
    let stack = builder().start().await;
    stack.wait_until_picking().await;
    prefer(&stack, 1).await;
    prefer(&stack, 2).await;
    let servers = [stack.servers()[0].address(), stack.servers()[1].address()];
    stack.set_endpoints(&servers);
    eventually("a server that left gets no requests", async || {
        forget_requests(&stack);
        for _ in 0..20 {
            assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
        }
        let counts = request_counts(&stack);
        if counts[2] == 0 { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_connections_costs_no_request_and_is_avoided() {
    let stack = builder().start().await;
    stack.wait_until_picking().await;
    prefer(&stack, 1).await;
    stack.servers()[1].refuse().await.unwrap();
    for _ in 0..30 {
        assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
    }
    let counts = request_counts(&stack);
    assert_eq!((counts[0] + counts[2], counts[1]), (30, 0), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hint_is_not_left_when_its_servers_fail() {
    let stack = builder().filter_before_picker(subset_hint::filter()).start().await;
    stack.wait_until_picking().await;
    prefer(&stack, 1).await;
    let hint = subset_hint::list(&[stack.servers()[0].endpoint()]);
    let ask = async || {
        let request = client::http1().post(stack.url(CHAT)).json(&fresh_chat());
        request.header(subset_hint::HEADER, &hint).send().await.unwrap()
    };
    let response = ask().await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(stack.served_by(&response), 0);
    stack.servers()[0].refuse().await.unwrap();
    assert_eq!(ask().await.status(), StatusCode::SERVICE_UNAVAILABLE);
    eventually("the picker knows that no server of the hint is ready", async || {
        let response = ask().await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        let has_reason = response.headers().contains_key("x-llm-d-request-dropped-reason");
        if has_reason { Ok(()) } else { Err("Envoy answers itself") }
    })
    .await;
    assert_no_endpoints(ask().await, "a hint without a ready server").await;
}
