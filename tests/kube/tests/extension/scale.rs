//! Hundreds of pools and routes at one Gateway.

use crate::fixture::{CHAT, GATEWAY, GROUND, Models, backend, pool, route, rule};
use anyhow::{Context, Result};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_kube::PROXIES;
use serde_json::{Value, json};
use std::time::Instant;

const POOLS: usize = 200;
const ROUTES: usize = 400;
/// More than Envoy's memory grows for them.
const MEMORY: f64 = 256.0 * 1024.0 * 1024.0;

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_pools_and_four_hundred_routes_take_effect() {
    let _ground = GROUND.write().await;
    let models = Models::new(&[("chat", 1)], &json!([rule("/v1", &[backend("chat", 1)])]), CHAT).await;
    let before = memory(&models).await.unwrap();
    // All pools select the same server.
    let pools = (0..POOLS).map(|index| {
        let mut pool = pool(&format!("pool-{index}"));
        pool["spec"]["selector"]["matchLabels"]["app"] = json!("chat");
        pool
    });
    let routes = (0..ROUTES).map(|index| {
        let rules = json!([rule(&format!("/{index}/"), &[backend(&format!("pool-{}", index % POOLS), 1)])]);
        route(&format!("route-{index}"), &rules)
    });
    let objects: Vec<Value> = pools.chain(routes).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    models.apply(&list).await;
    let applied = Instant::now();
    for index in [0, ROUTES / 2, ROUTES - 1] {
        let path = format!("/{index}{CHAT}");
        eventually(&format!("{path} is served"), async || models.chat(&path, "hello").await).await;
    }
    let took = applied.elapsed();

    // One change of one route, with all others in the same message.
    let changed = Instant::now();
    models.apply(&route("route-0", &json!([rule("/changed/", &[backend("pool-0", 1)])]))).await;
    let path = format!("/changed{CHAT}");
    eventually("the change is served", async || models.chat(&path, "hello").await).await;
    let change = changed.elapsed();
    let after = memory(&models).await.unwrap();
    println!(
        "{ROUTES} routes to {POOLS} pools: served {took:?} after the last object, one change after {change:?}; Envoy has {:.1} MiB, {:.1} before",
        after / 1024.0 / 1024.0,
        before / 1024.0 / 1024.0
    );
    assert!(after - before <= MEMORY, "Envoy grew from {before} to {after}");
    models.remove().await;
}

/// The memory in use of the Gateway's Envoy, in bytes.
async fn memory(models: &Models) -> Result<f64> {
    let selector = format!(
        "--selector=gateway.envoyproxy.io/owning-gateway-namespace={},gateway.envoyproxy.io/owning-gateway-name={GATEWAY}",
        models.namespace
    );
    let get =
        ["get", "pods", "--namespace", PROXIES, &selector, "--output=jsonpath={.items[0].status.podIP}"];
    let address = models.extension.cluster().kubectl(get).await?;
    let text =
        client::http1().get(format!("http://{address}:19001/stats/prometheus")).send().await?.text().await?;
    let line = text.lines().find_map(|line| line.strip_prefix("envoy_server_memory_allocated{} "));
    Ok(line.with_context(|| "no memory".to_owned())?.parse()?)
}
