//! Steering in front of clusters that are not made for it: a hint holds all the same.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat, prefer, request_counts};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::{client, subset_hint};
use endpoint_picker_model_server::{Behaviour, ModelServer};
use reqwest::StatusCode;
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn with_an_override_host_no_attempt_leaves_a_hint_and_others_are_tried_again() {
    const BALANCING: &str = "/static_resources/clusters/0/load_balancing_policy";
    let round_robin = json!({"policies": [{"typed_extension_config": {
        "name": "envoy.load_balancing_policies.round_robin",
        "typed_config": {"@type": "type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin"},
    }}]});
    let builder = Stack::builder().picker_field("steering", "overrideHost").value_at(BALANCING, round_robin);
    let stack = builder.filter_before_picker(subset_hint::filter()).start().await;
    prefer(&stack, 0).await;
    let inside: Vec<String> = stack.servers()[..2].iter().map(ModelServer::endpoint).collect();
    for server in &stack.servers()[..2] {
        server.behave(Behaviour::Reset);
    }
    for _ in 0..6 {
        let request = client::http1().post(stack.url(CHAT)).json(&fresh_chat());
        let response = request.header(subset_hint::HEADER, subset_hint::list(&inside)).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(request_counts(&stack)[2], 0, "outside of the hint");
    let response = stack.post(CHAT, &fresh_chat()).await;
    assert_eq!(stack.served_by(&response), 2, "without a hint any endpoint serves");
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_beside_a_subset_load_balancer_leaves_no_hint() {
    // The example has the module set an override host.
    let builder = Stack::builder().config("examples/subset").picker_field("steering", "metadata");
    let stack = builder.filter_before_picker(subset_hint::filter()).start().await;
    prefer(&stack, 0).await;
    let endpoints: Vec<String> = stack.servers().iter().map(ModelServer::endpoint).collect();
    for hint in [&endpoints[1..2], &endpoints[1..]] {
        for _ in 0..10 {
            let request = client::http1().post(stack.url(CHAT)).json(&fresh_chat());
            let response = request.header(subset_hint::HEADER, subset_hint::list(hint)).send().await.unwrap();
            // The balancer compares one address, and so finds none for a list.
            let is_one = hint.len() == 1;
            let expected = if is_one { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
            assert_eq!(response.status(), expected, "{hint:?}");
        }
    }
    assert_eq!(request_counts(&stack), [0, 10, 0]);
}
