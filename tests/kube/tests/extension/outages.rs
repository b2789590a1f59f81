//! Agents and Envoy Gateway that are away, under load and while routes change.

use crate::fixture::{CHAT, GROUND, Models, ROUTE, backend, route, rule};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_kube::Load;
use serde_json::json;
use std::time::Duration;

/// Longer than readings count.
const AWAY: Duration = Duration::from_secs(12);
const LATER: &str = "/later/v1/chat/completions";

async fn start() -> (Models, Load) {
    let models = Models::new(&[("chat", 3)], &json!([rule("/v1", &[backend("chat", 1)])]), CHAT).await;
    let load = Load::start(&models.url(CHAT), 2, Duration::from_millis(10));
    (models, load)
}

async fn add_rule(models: &Models) {
    let rules = json!([rule("/v1", &[backend("chat", 1)]), rule("/later", &[backend("chat", 1)])]);
    models.apply(&route(ROUTE, &rules)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_agents_traffic_continues_and_changes_wait() {
    let _ground = GROUND.write().await;
    let (models, load) = start().await;
    models.extension.scale_agents(0).await.unwrap();
    add_rule(&models).await;
    tokio::time::sleep(AWAY).await;
    assert_eq!(models.status(LATER).await.unwrap(), 404, "the change waits for an agent");
    models.extension.scale_agents(2).await.unwrap();
    // Without a further change of an object.
    eventually("the change takes effect", async || models.chat(LATER, "hello").await).await;
    load.stop().await.assert_none_lost();
    models.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_gateway_restarts_under_load() {
    let _ground = GROUND.write().await;
    let (models, load) = start().await;
    {
        let mut gateway = models.extension.gateway().await;
        gateway.kill();
        add_rule(&models).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        gateway.start_again().await.unwrap();
    }
    eventually("the change takes effect", async || models.chat(LATER, "hello").await).await;
    load.stop().await.assert_none_lost();
    models.remove().await;
}
