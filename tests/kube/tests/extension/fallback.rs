//! A pool whose requests go to another pool while it has no servers or is saturated, by the annotation of
//! docs/install/envoy-gateway.md.

use crate::fixture::{CHAT, GROUND, Models, backend, rule};
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_kube::Load;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

/// Clients that saturate a server: it runs 4 of their requests at once, and each takes about a second.
const CLIENTS: usize = 16;
const TOKENS: u64 = 60;

/// Waits until all requests go to servers of this pool.
async fn until_served_by(models: &Models, pool: &str) {
    eventually(&format!("the pool {pool} serves all requests"), async || {
        for _ in 0..10 {
            let pod = models.chat(CHAT, "hello").await?;
            // Pods have the name of their Deployment, which is the pool's, and a suffix.
            ensure!(pod.starts_with(&format!("{pool}-")), "{pod}");
        }
        Ok(())
    })
    .await;
}

/// Saturates the server of a pool until the clients are dropped.
async fn saturate(models: &Models, pool: &str) -> Result<Vec<AbortOnDropHandle<()>>> {
    let [pod] = models.until_ready(pool, 1).await.try_into().unwrap();
    let pod: Value = serde_json::from_str(&models.kubectl(&["get", "pod", &pod, "--output=json"]).await?)?;
    let address = pod["status"]["podIP"].as_str().context("no address")?;
    let url = format!("http://{address}:8000{CHAT}");
    let mut body = client::chat("a long story");
    body["max_tokens"] = TOKENS.into();
    let client = |_| {
        let (url, body) = (url.clone(), body.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            while client::http1().post(&url).json(&body).send().await.is_ok() {}
        }))
    };
    Ok((0..CLIENTS).map(client).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn another_pool_serves_while_the_first_is_killed_or_saturated_and_no_request_is_lost() {
    let _ground = GROUND.read().await;
    let rules = json!([rule("/", &[backend("chat", 1)])]);
    let models = Models::new(&[("chat", 1), ("spare", 1)], &rules, CHAT).await;
    let list = "endpoint-picker/fallback=spare";
    models.kubectl(&["annotate", "inferencepool", "chat", list]).await.unwrap();
    let load = Load::start(&models.url(CHAT), 2, Duration::from_millis(20));
    for _ in 0..2 {
        until_served_by(&models, "chat").await;
        let clients = saturate(&models, "chat").await.unwrap();
        until_served_by(&models, "spare").await;
        drop(clients);
        until_served_by(&models, "chat").await;

        // A pod that is killed takes its running requests with it, and Envoy retries them in the other pool.
        models.scale("chat", 0).await;
        let kill = ["delete", "pods", "--selector=app=chat", "--force", "--grace-period=0"];
        models.kubectl(&kill).await.unwrap();
        until_served_by(&models, "spare").await;
        models.scale("chat", 1).await;
    }
    until_served_by(&models, "chat").await;
    load.stop().await.assert_none_lost();
    models.remove().await;
}
