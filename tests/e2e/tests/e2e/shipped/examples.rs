//! The shipped examples of gateways that have more in them than one pool and the picker.

use crate::fixture::{CHAT, DESTINATION, forget_requests, fresh_chat, prefer, request_counts, until_picked};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::ModelServer;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::fs;

#[tokio::test(flavor = "multi_thread")]
async fn two_pools_and_a_foreign_backend_share_a_listener() {
    const FOREIGN_PORT: &str = "/static_resources/clusters/2/load_assignment/endpoints/0/lb_endpoints/0/endpoint\
                                /address/socket_address/port_value";
    let foreign = ModelServer::start().unwrap();
    // The test's endpoints have their own label.
    let pools = fs::read_to_string(tools::root().join("examples/two-pools/pools.yaml")).unwrap();
    let pools = pools.replace("serves: chat", "side: left").replace("serves: embeddings", "side: right");
    let builder = Stack::builder().servers(4).config("examples/two-pools/envoy.yaml").manifests(&pools);
    let builder = builder.one_eds_file_per_pool().value_at(FOREIGN_PORT, foreign.address().port());
    let stack = builder.start().await;
    until_picked(&stack, "/embed/picking").await;
    forget_requests(&stack);

    for (prefix, side) in [("", 0), ("/embed", 1)] {
        for _ in 0..8 {
            let response = stack.post(&format!("{prefix}{CHAT}"), &fresh_chat()).await;
            assert_eq!(response.status(), StatusCode::OK);
            let served = stack.served_by(&response);
            assert_eq!(served % 2, side, "{prefix}");
            let received = stack.servers()[served].take_requests();
            assert_eq!(received[0].header(DESTINATION), Some(stack.servers()[served].endpoint().as_str()));
        }
    }
    assert_eq!(foreign.requests().len(), 0);

    // What a client sends in the picker's place does not count, and no picker reads the body: one without a model is served.
    let request = client::http1().post(stack.url("/hosted/v1/chat/completions"));
    let request = request.header(DESTINATION, stack.servers()[0].endpoint()).json(&json!({"messages": []}));
    assert_eq!(request.send().await.unwrap().status(), StatusCode::OK);
    let received = foreign.take_requests();
    assert_eq!((received.len(), received[0].header(DESTINATION)), (1, None));
    assert_eq!(request_counts(&stack), [0, 0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limited_request_is_not_picked_and_tokens_are_counted_under_the_clients_model() {
    const BUCKET: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters/0\
                          /typed_config/token_bucket";
    const ROUTED: &str = "wasmcustom.endpoint_picker.default.routed";
    const REWRITE: &str = "
apiVersion: llm-d.ai/v1alpha2
kind: InferenceModelRewrite
metadata: { name: canary }
spec: { poolRef: { name: default }, rules: [{ targets: [{ modelRewrite: demo-canary }] }] }
";
    // Enough for the start, and no more for an hour.
    const REQUESTS: u32 = 400;
    let builder = Stack::builder().config("examples/rate-limit-and-tokens.yaml").manifests(REWRITE);
    let bucket = json!({"max_tokens": REQUESTS, "tokens_per_fill": 1, "fill_interval": "3600s"});
    let stack = builder.value_at(BUCKET, bucket).start().await;

    let path = format!("{CHAT}?counted");
    let answer: Value = stack.post(&path, &fresh_chat()).await.json().await.unwrap();
    let received: Vec<_> = stack.servers().iter().flat_map(ModelServer::take_requests).collect();
    let received: Value = serde_json::from_slice(&received[0].body).unwrap();
    assert_eq!(received["model"], "demo-canary");
    let entry = stack.logged(&path).await;
    assert_eq!(entry["model"], "demo-model", "{entry}");
    assert_eq!(entry["tokens"], answer["usage"]["total_tokens"], "{entry}");

    let mut allowed = 0;
    loop {
        let response = stack.post(CHAT, &fresh_chat()).await;
        if response.status() == StatusCode::TOO_MANY_REQUESTS {
            break;
        }
        assert_eq!(response.status(), StatusCode::OK);
        allowed += 1;
        assert!(allowed <= REQUESTS, "no request was limited");
    }
    let routed = stack.envoy().stat(ROUTED).await.unwrap();
    assert!(routed >= u64::from(allowed), "{routed}");
    for _ in 0..5 {
        let response = stack.post(CHAT, &fresh_chat()).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    assert_eq!(stack.envoy().stat(ROUTED).await.unwrap(), routed, "a limited request was picked");
}

/// Endpoints of two zones, as the agent reads them.
fn in_zones(stack: &Stack) -> String {
    let zones = ["a", "b", "a"];
    let endpoints = stack.servers().iter().zip(zones).map(|(server, zone)| {
        let (address, port) = (server.address().ip().to_string(), server.address().port().to_string());
        json!({"name": format!("server-{port}"), "address": address, "port": port, "labels": {"zone": zone}})
    });
    json!({"endpoints": endpoints.collect::<Vec<_>>()}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_subset_load_balancer_takes_the_picked_endpoint_and_else_those_with_a_label() {
    const LIST: &str = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - { type: queue-scorer }
  - { type: max-score-picker, parameters: { maxNumOfEndpoints: 3 } }
";
    let builder = Stack::builder().config("examples/subset.yaml").manifests(LIST);
    let stack = builder.route_without_picker("/unpicked/").start().await;
    for best in [1, 2, 0] {
        prefer(&stack, best).await;
    }

    stack.set_endpoints_text(&in_zones(&stack)).unwrap();
    eventually("requests without a choice stay in the zone", async || {
        forget_requests(&stack);
        for _ in 0..20 {
            let response = client::http1().get(stack.url("/unpicked/v1/models")).send().await?;
            anyhow::ensure!(response.status() == StatusCode::OK, "{}", response.status());
        }
        let counts = request_counts(&stack);
        anyhow::ensure!(counts[0] > 0 && counts[1] == 0 && counts[2] > 0, "{counts:?}");
        anyhow::Ok(())
    })
    .await;
    // The picker's choice is not bound to the label.
    prefer(&stack, 1).await;
}
