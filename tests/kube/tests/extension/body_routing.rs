//! Routes by the model in the body, and the list of the models of a listener's pools.

use crate::fixture::{CHAT, GROUND, Models, ROUTE, backend, route, rule};
use anyhow::ensure;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use serde_json::{Value, json};

const MODEL: &str = "X-Gateway-Model-Name";
const BASE_MODEL: &str = "X-Gateway-Base-Model-Name";

fn rule_of(header: &str, value: &str, pool: &str) -> Value {
    let matches = json!([{"headers": [{"name": header, "value": value}]}]);
    json!({"matches": matches, "backendRefs": [backend(pool, 1)]})
}

/// Envoy Gateway asks the agents again only when an object changes, or after its start.
async fn restart_gateway(models: &Models) {
    let mut gateway = models.extension.gateway().await;
    gateway.kill();
    gateway.start_again().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_of_the_body_leads_to_a_route_and_its_pool() {
    let _ground = GROUND.write().await;
    let models =
        Models::new(&[("llama", 2), ("qwen", 2)], &json!([rule("/", &[backend("llama", 1)])]), CHAT).await;
    let upgrade = |on: bool| json!({"gateway": {"bodyBasedRouting": on, "listModels": on}});
    models.extension.upgrade(&upgrade(true)).await.unwrap();
    restart_gateway(&models).await;
    let adapters = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": {"baseModel": "llama", "adapters": "- lora\n"},
        "metadata": {"name": "adapters", "labels": {"inference.networking.k8s.io/bbr-managed": "true"}},
    });
    models.apply(&adapters).await;
    // No rule is for other models.
    let rules = [rule_of(BASE_MODEL, "llama", "llama"), rule_of(MODEL, "qwen", "qwen")];
    models.apply(&route(ROUTE, &json!(rules))).await;
    let [llama, qwen] = [models.until_ready("llama", 2).await, models.until_ready("qwen", 2).await];
    for (model, pods) in [("llama", &llama), ("lora", &llama), ("qwen", &qwen)] {
        eventually(&format!("{model} has a route"), async || {
            let pod = models.chat_with(model, "hello", &[]).await?;
            ensure!(pods.contains(&pod), "{model}: {pod}");
            Ok(())
        })
        .await;
    }
    // Each pool picks, and a client's own headers do not choose the route.
    let of_client = [(MODEL, "qwen"), (BASE_MODEL, "llama")];
    for _ in 0..10 {
        assert!(qwen.contains(&models.chat_with("qwen", "hello", &of_client).await.unwrap()));
        assert!(llama.contains(&models.chat_with("lora", "hello", &of_client).await.unwrap()));
    }
    let other = models.chat_with("other", "hello", &of_client).await.unwrap_err().to_string();
    assert!(other.starts_with("404"), "{other}");
    let malformed = client::http1().post(models.url(CHAT)).body("{").send().await.unwrap();
    assert_eq!(malformed.status().as_u16(), 400);
    let error: Value = malformed.json().await.unwrap();
    assert!(
        error["error"]["message"].as_str().unwrap().starts_with("failed to parse request body"),
        "{error}"
    );
    // A request without a body keeps its headers.
    let version = client::http1().get(models.url("/version")).header(MODEL, "qwen").send().await.unwrap();
    assert!(version.status().is_success(), "{}", version.status());

    models
        .apply(&json!({
            "apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceModelRewrite", "metadata": {"name": "alias"},
            "spec": {
                "poolRef": {"name": "llama"},
                "rules": [{"matches": [{"model": {"type": "Exact", "value": "alias"}}], "targets": [{"modelRewrite": "llama"}]}],
            },
        }))
        .await;
    eventually("the rewrite's model is listed", async || {
        let list: Value = client::http1().get(models.url("/v1/models")).send().await?.json().await?;
        ensure!(
            list["data"].as_array().is_some_and(|all| all.len() == 1) && list["data"][0]["id"] == "alias",
            "{list}"
        );
        Ok(())
    })
    .await;

    models.extension.upgrade(&upgrade(false)).await.unwrap();
    restart_gateway(&models).await;
    models.apply(&route(ROUTE, &json!([rule("/", &[backend("llama", 1)])]))).await;
    eventually("the path alone leads to the pool", async || models.chat_with("other", "hello", &[]).await)
        .await;
    models.remove().await;
}
