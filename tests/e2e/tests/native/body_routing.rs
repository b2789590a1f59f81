//! The model in a request's body leads to its route, and the route to its pool, in one filter.

use anyhow::Result;
use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, forget_requests, fresh_chat, openai_error};
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::MODEL;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::routes::{OfPool, pools, pools_by_route};

const MODEL_NAME: &str = "x-gateway-model-name";
const BASE_MODEL_NAME: &str = "x-gateway-base-model-name";

/// The adapter `lora` has the base model `llama`.
const BASE_MODEL: &str = "
---
apiVersion: v1
kind: ConfigMap
metadata: {name: llama, labels: {inference.networking.k8s.io/bbr-managed: 'true'}}
data: {baseModel: llama, adapters: '[lora]'}
";

/// Servers of the pool `chat` have even numbers, and those of `embeddings` odd ones; 2 and 1 are the best of
/// theirs. The base model `llama` leads to the pool `embeddings`, the model `plain` to a cluster without a
/// picker, and any other model to the pool `chat`.
fn routes(of_pool: &OfPool<'_>) -> Value {
    let by_header = |name: &str, value: &str| json!({"prefix": "/", "headers": [{"name": name, "string_match": {"exact": value}}]});
    json!([
        {"match": by_header(BASE_MODEL_NAME, "llama"), "route": {"cluster": "embeddings"}, "typed_per_filter_config": of_pool("embeddings")},
        {"match": by_header(MODEL_NAME, "plain"), "route": {"cluster": "embeddings"}},
        {"match": {"prefix": "/"}, "route": {"cluster": "chat"}, "typed_per_filter_config": of_pool("chat")},
    ])
}

async fn start() -> Stack {
    let change = |config: &mut Config| -> Result<()> {
        let limits = json!({"peekBytes": 16384, "maxHeldBytes": 65536});
        let chain = json!({"pool": null, "bodyBasedRouting": true, "limits": limits});
        pools_by_route(config, &chain, routes).map(drop)
    };
    let builder = Stack::builder().servers(4).config("examples/two-pools").manifests(&(pools() + BASE_MODEL));
    let stack = builder.one_eds_file_per_pool().change(change).start().await;
    for (index, server) in stack.servers().iter().enumerate() {
        server.update_metrics(|metrics| metrics.waiting = if [1, 2].contains(&index) { 0 } else { 50 });
    }
    for (model, best) in [(MODEL, 2), ("lora", 1)] {
        eventually("requests go to the best server of the model's pool", async || {
            for _ in 0..10 {
                let served = send(&stack, model, &[]).await;
                anyhow::ensure!(served == best, "{model}: {served}");
            }
            anyhow::Ok(())
        })
        .await;
    }
    forget_requests(&stack);
    stack
}

/// The server of a chat with this model and these headers.
async fn send(stack: &Stack, model: &str, headers: &[(&str, &str)]) -> usize {
    let mut chat = fresh_chat();
    chat["model"] = model.into();
    let mut request = client::http1().post(stack.url(CHAT)).json(&chat);
    for &(name, value) in headers {
        request = request.header(name, value);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK, "{model}");
    stack.served_by(&response)
}

/// The one request that a server has seen since the last call: its model, its base model, and whether it was
/// picked.
fn seen(stack: &Stack, server: usize) -> (Option<String>, Option<String>, bool) {
    let requests = stack.servers()[server].take_requests();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    let header = |name| request.header(name).map(str::to_owned);
    (header(MODEL_NAME), header(BASE_MODEL_NAME), request.header(DESTINATION).is_some())
}

/// The view that a server has of a request with these names.
fn named(model: &str, base_model: Option<&str>, is_picked: bool) -> (Option<String>, Option<String>, bool) {
    (Some(model.to_owned()), base_model.map(str::to_owned), is_picked)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_leads_to_the_pool_of_its_route_and_to_its_best_server() {
    let stack = start().await;
    let of_client = [(MODEL_NAME, "plain"), (BASE_MODEL_NAME, "llama")];
    for headers in [&[][..], &of_client] {
        assert_eq!(send(&stack, MODEL, headers).await, 2);
        assert_eq!(seen(&stack, 2), named(MODEL, None, true));
        assert_eq!(send(&stack, "lora", headers).await, 1);
        assert_eq!(seen(&stack, 1), named("lora", Some("llama"), true));
        let plain = send(&stack, "plain", headers).await;
        assert_eq!(plain % 2, 1, "the cluster of the pool embeddings");
        assert_eq!(seen(&stack, plain), named("plain", None, false));
    }

    // The model is in the beginning of a body that is longer than what may be held.
    let content = "a long prompt ".repeat(20_000);
    let long = format!(r#"{{"model": "lora", "messages": [{{"role": "user", "content": "{content}"}}]}}"#);
    let response = client::http1().post(stack.url(CHAT)).body(long).send().await.unwrap();
    assert_eq!((response.status(), stack.served_by(&response)), (StatusCode::OK, 1));
    forget_requests(&stack);

    let without = json!({"messages": [{"role": "user", "content": "hi"}]});
    let request = client::http1().post(stack.url(CHAT)).header(BASE_MODEL_NAME, "llama").json(&without);
    // The route without headers, whose pool leaves the model to the server.
    let response = request.send().await.unwrap();
    assert_eq!((response.status(), stack.served_by(&response)), (StatusCode::OK, 2));
    let malformed = client::http1().post(stack.url("/anything")).body("good morning").send().await.unwrap();
    let status = malformed.status();
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let message = openai_error(status, &malformed.text().await.unwrap());
    assert!(message.contains("failed to parse request body: "), "{message}");
    eventually("both are counted", async || {
        let statistics = statistics(&stack).await;
        for outcome in ["no_model", "malformed"] {
            // The metric belongs to no pool.
            let counted = statistics.count(&format!("body_based_routing{{pool=\"\",outcome=\"{outcome}\"}}"));
            anyhow::ensure!(counted == 1, "{outcome}: {counted}");
        }
        anyhow::Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_body_keeps_its_route_and_a_base_model_may_change() {
    let stack = start().await;
    let list = client::http1().get(stack.url("/v1/models")).header(MODEL_NAME, "plain");
    let response = list.send().await.unwrap();
    assert_eq!((response.status(), stack.served_by(&response) % 2), (StatusCode::OK, 1));

    stack.set_manifests(&(pools() + &BASE_MODEL.replace("[lora]", "[other]")));
    for (model, best) in [("lora", 2), ("other", 1)] {
        eventually("the adapter has the route of its base model", async || {
            let served = send(&stack, model, &[]).await;
            if served == best { Ok(()) } else { Err(served) }
        })
        .await;
    }
}
