//! `AIGatewayRoute`s of Envoy AI Gateway, whose backends are pools of the agents.

use crate::fixture::{CHAT, GATEWAY, GROUND, Models, backend, rule};
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_kube::{AiGateway, Extension, Order, PROXIES};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

/// Envoy AI Gateway replaces the proxy's pod, and Envoy writes its access log every ten seconds.
const DEADLINE: Duration = Duration::from_secs(180);

/// The path of a route that Envoy AI Gateway does not make.
const PLAIN: &str = "/plain/v1/chat/completions";

/// Waits for an effect of Envoy AI Gateway.
async fn until<T>(what: &str, check: impl AsyncFnMut() -> Result<T>) -> T {
    within(DEADLINE, check)
        .await
        .unwrap_or_else(|reason| panic!("not within {DEADLINE:?}: {what}; last seen: {reason}"))
}

/// A route of these models, each to the pool of its name, with the tokens of a request in its metadata.
fn ai_route(models: &[&str]) -> Value {
    let rule = |model: &&str| {
        let matches = json!([{"headers": [{"type": "Exact", "name": "x-ai-eg-model", "value": model}]}]);
        let pool = json!({"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": model});
        json!({"matches": matches, "backendRefs": [pool]})
    };
    json!({
        "apiVersion": "aigateway.envoyproxy.io/v1beta1", "kind": "AIGatewayRoute", "metadata": {"name": "ai"},
        "spec": {
            "parentRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": GATEWAY}],
            "rules": models.iter().map(rule).collect::<Vec<_>>(),
            "llmRequestCosts": [{"metadataKey": "llm_total_token", "type": "TotalToken"}],
        },
    })
}

/// Lets the proxies write the model and the tokens of each request into their log, or not any more.
async fn log_requests(extension: &Extension, on: bool) -> Result<()> {
    let text = "model=%REQ(X-AI-EG-MODEL)% tokens=%DYNAMIC_METADATA(io.envoy.ai_gateway:llm_total_token)%\n";
    let sinks = json!([{"type": "File", "file": {"path": "/dev/stdout"}}]);
    let settings = json!([{"format": {"type": "Text", "text": text}, "sinks": sinks}]);
    let telemetry = if on { json!({"accessLog": {"settings": settings}}) } else { Value::Null };
    let patch = json!({"spec": {"telemetry": telemetry}}).to_string();
    let arguments = [
        "patch",
        "envoyproxy",
        "endpoint-picker",
        "--namespace=inference",
        "--type=merge",
        "--patch",
        &patch,
    ];
    extension.cluster().kubectl(arguments).await.map(drop)
}

/// The lines of all proxies' logs so far.
fn logged(extension: &Extension) -> Result<String> {
    let mut lines = String::new();
    for entry in fs::read_dir(extension.cluster().logs())? {
        let file = entry?.path();
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with(&format!("pod-{PROXIES}-")) && name.contains("-envoy-") {
            lines += &String::from_utf8_lossy(&fs::read(&file)?);
        }
    }
    Ok(lines)
}

/// The tokens of a chat with this model, as its server has counted them.
async fn tokens(models: &Models, model: &str) -> Result<u64> {
    let mut body = client::chat("a prompt that no other request has");
    body["model"] = model.into();
    let response = client::http1().post(models.url(CHAT)).json(&body).send().await?.error_for_status()?;
    let response: Value = response.json().await?;
    response["usage"]["total_tokens"].as_u64().context("no usage")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pools_of_an_ai_gateway_route_are_picked_in_place_of_a_call_of_their_epp() {
    let _ground = GROUND.write().await;
    let extension = Extension::shared().await;
    let ai_gateway = AiGateway::install(extension).await.unwrap();
    log_requests(extension, true).await.unwrap();
    let began = Instant::now();
    ai_gateway.enter(Order::BeforeAgents).await.unwrap();
    let rules = json!([rule("/plain", &[backend("llama", 1)])]);
    let models = Models::new(&[("llama", 3), ("qwen", 3)], &rules, PLAIN).await;
    models.apply(&ai_route(&["llama", "qwen"])).await;
    let prompt = "the same beginning ".repeat(200);
    for pool in ["llama", "qwen"] {
        let pods = models.until_ready(pool, 3).await;
        until(&format!("{pool} has a route"), async || {
            let pod = models.chat_with(pool, &prompt, &[]).await?;
            ensure!(pods.contains(&pod), "{pool}: {pod}");
            Ok(())
        })
        .await;
        println!("{pool}: picked {:.0?} after Envoy Gateway's new configuration", began.elapsed());
        // The prompt is always the same, so that the pool picks a server by what it has cached. Nothing else
        // in Envoy can send a request to a server of the pool: there is no EPP.
        let mut served = BTreeSet::new();
        for _ in 0..30 {
            served.insert(models.chat_with(pool, &prompt, &[]).await.unwrap());
        }
        assert_eq!(served.len(), 1, "{served:?}");
    }
    models.chat(PLAIN, "hello").await.unwrap();
    let unknown = models.chat_with("other", "hello", &[]).await.unwrap_err().to_string();
    assert!(unknown.starts_with("404"), "{unknown}");

    // Envoy AI Gateway's own filter has read the body and the response.
    let expected = format!("model=qwen tokens={}\n", tokens(&models, "qwen").await.unwrap());
    until("the tokens are in the access log", async || {
        let log = logged(extension)?;
        ensure!(log.contains(&expected), "no {expected:?} in {log}");
        Ok(())
    })
    .await;

    ai_gateway.enter(Order::AfterAgents).await.unwrap();
    for (what, model) in [("of an AIGatewayRoute", Some("llama")), ("of an HTTPRoute", None)] {
        until(&format!("requests {what} are refused with the reason"), async || {
            let served = match model {
                Some(model) => models.chat_with(model, "hello", &[]).await,
                None => models.chat(PLAIN, "hello").await,
            };
            let refusal = served.err().context("it was served")?.to_string();
            ensure!(refusal.starts_with("503") && refusal.contains("extensionManagers"), "{refusal}");
            Ok(())
        })
        .await;
    }

    // Before it is uninstalled, since it has a finalizer.
    models.kubectl(&["delete", "aigatewayroute", "ai", "--timeout=60s"]).await.unwrap();
    ai_gateway.remove().await.unwrap();
    until("the HTTPRoute is served without Envoy AI Gateway", async || models.chat(PLAIN, "hello").await)
        .await;
    models.remove().await;
    log_requests(extension, false).await.unwrap();
}
