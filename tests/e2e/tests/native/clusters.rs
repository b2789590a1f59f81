//! The module's own cluster: its hosts are the pool's endpoints, and retries go where the picker's list says.

use anyhow::{Context, Result};
use endpoint_picker_e2e::fixture::{
    CHAT, assert_no_endpoints, forget_requests, fresh_chat, prefer, request_counts,
};
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_harness::{client, subset_hint};
use reqwest::StatusCode;
use serde_json::json;

const FILTERS: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";

/// Without EDS file and `override_host`.
fn own_cluster(config: &mut Config) -> Result<()> {
    let document = config.document();
    let filters = document.pointer(FILTERS).and_then(|filters| filters.as_array()).context("no filters")?;
    let mut modules = filters.iter().map(|filter| &filter["typed_config"]["dynamic_module_config"]);
    let module = modules.find(|module| module.is_object()).context("no native module")?.clone();
    document["static_resources"]["clusters"][0] = json!({
        "name": "model-servers",
        "connect_timeout": "1s",
        "lb_policy": "CLUSTER_PROVIDED",
        "cluster_type": {
            "name": "envoy.clusters.dynamic_modules",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.dynamic_modules.v3.ClusterConfig",
                "dynamic_module_config": module,
                "cluster_name": "endpoint-picker",
                "cluster_config": {
                    "@type": "type.googleapis.com/google.protobuf.StringValue",
                    "value": json!({"pool": "default"}).to_string(),
                },
            },
        },
    });
    Ok(())
}

fn builder() -> Builder {
    Stack::builder().picker_field("steering", "cluster").change(own_cluster)
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
