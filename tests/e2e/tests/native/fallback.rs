//! A pool whose requests go to another pool while it has no ready endpoint, or is saturated.

use anyhow::{Result, ensure};
use endpoint_picker_e2e::fixture::{CHAT, fresh_chat};
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_e2e::steady_load::SteadyLoad;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::MODEL;
use reqwest::StatusCode;
use serde_json::json;

use crate::clusters::{TWO_POOLS, own_cluster_with};

/// Server of the pool `default`.
const FIRST: [usize; 2] = [0, 2];
/// Server of the pool `second`.
const SECOND: [usize; 2] = [1, 3];

fn own_cluster(config: &mut Config) -> Result<()> {
    own_cluster_with(config, &["pool", "fallback"])
}

fn builder() -> Builder {
    let builder = Stack::builder().servers(4).workers(2).manifests(TWO_POOLS).without_access_log();
    builder.one_eds_file_per_pool().picker_field("steering", "cluster").change(own_cluster)
}

/// Waits until all requests go to these servers.
async fn until_all_go_to(stack: &Stack, servers: [usize; 2]) {
    eventually("all requests go to the pool", async || {
        for _ in 0..20 {
            let response = stack.post(CHAT, &fresh_chat()).await;
            assert_eq!(response.status(), StatusCode::OK);
            let served = stack.served_by(&response);
            ensure!(servers.contains(&served), "{served} has served, not one of {servers:?}");
        }
        Ok(())
    })
    .await;
}

/// Body-based routing has set the header of all requests that these servers have got.
fn assert_all_name_their_model(stack: &Stack, servers: [usize; 2]) {
    let requests: Vec<_> =
        servers.into_iter().flat_map(|server| stack.servers()[server].take_requests()).collect();
    assert!(!requests.is_empty());
    for request in requests {
        assert_eq!(request.header("x-gateway-model-name"), Some(MODEL));
    }
}

fn set_waiting(stack: &Stack, servers: [usize; 2], waiting: u64) {
    for server in servers {
        stack.servers()[server].update_metrics(|metrics| metrics.waiting = waiting);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_to_the_second_pool_and_back_and_none_is_lost() {
    // Requests have their route, and so their pool, when their model has been read.
    let builder = builder().picker_field("bodyBasedRouting", true);
    let stack = builder.picker_field("fallback", json!(["second"])).start().await;
    until_all_go_to(&stack, FIRST).await;
    let load = SteadyLoad::start(&stack);
    for _ in 0..2 {
        for server in FIRST {
            stack.servers()[server].refuse().await.unwrap();
        }
        until_all_go_to(&stack, SECOND).await;
        assert_all_name_their_model(&stack, SECOND);
        for server in FIRST {
            stack.servers()[server].listen().unwrap();
        }
        until_all_go_to(&stack, FIRST).await;
        set_waiting(&stack, FIRST, 50);
        until_all_go_to(&stack, SECOND).await;
        set_waiting(&stack, FIRST, 0);
        until_all_go_to(&stack, FIRST).await;
    }
    load.stop().await;
    eventually("the statistics have the reasons, and no load is left", async || {
        let statistics = statistics(&stack).await;
        let of = |name: &str, labels: &str| statistics.count(&format!("{name}{{{labels}}}"));
        for reason in ["no_endpoints", "saturated"] {
            let count = of("fallbacks", &format!(r#"pool="default",reason="{reason}""#));
            ensure!(count > 0, "{reason}: {count}");
        }
        for pool in ["default", "second"] {
            ensure!(of("routed", &format!(r#"pool="{pool}""#)) > 0, "{pool} has no requests");
            let in_flight = of("in_flight", &format!(r#"pool="{pool}""#));
            ensure!(in_flight == 0, "{in_flight} in flight in {pool}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_a_pools_annotation_counts_without_another_configuration_of_envoy() {
    let stack = builder().start().await;
    set_waiting(&stack, FIRST, 50);
    let load = SteadyLoad::start(&stack);
    until_all_go_to(&stack, FIRST).await;
    let annotated = TWO_POOLS.replacen(
        "name: default",
        "name: default, annotations: { endpoint-picker/fallback: second }",
        1,
    );
    stack.set_manifests(&annotated);
    until_all_go_to(&stack, SECOND).await;
    stack.set_manifests(TWO_POOLS);
    until_all_go_to(&stack, FIRST).await;
    load.stop().await;
}
