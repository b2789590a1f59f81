//! The main job: a request goes to the best model server.

use endpoint_picker_tests::client;
use endpoint_picker_tests::eventually::eventually;
use endpoint_picker_tests::stack::{SOON, Stack};
use reqwest::StatusCode;

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_to_the_server_without_a_queue_and_follow_when_the_metrics_change() {
    let stack = Stack::builder().start().await;
    for best in [2, 0, 1] {
        for (index, server) in stack.servers().iter().enumerate() {
            server.update_metrics(|metrics| {
                metrics.waiting = if index == best { 0 } else { 5 };
                metrics.kv_cache_usage = if index == best { 0.1 } else { 0.6 };
            });
        }
        eventually("ten requests in a row go to the best server", SOON, async || {
            for attempt in 0..10 {
                // A new prompt each time: a cached prefix would be a reason to stay.
                let prompt = format!("{best} {attempt} {}", "word ".repeat(100));
                let response = stack.post("/v1/chat/completions", &client::chat(&prompt)).await;
                assert_eq!(response.status(), StatusCode::OK);
                let served = stack.served_by(&response);
                if served != best {
                    return Err(format!("request {attempt} went to server {served}, not to {best}"));
                }
            }
            Ok(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn header_metadata_and_serving_endpoint_agree() {
    let stack = Stack::builder().start().await;
    let path = "/v1/completions?agree";
    let response = stack.post(path, &client::completion("hello")).await;
    let server = &stack.servers()[stack.served_by(&response)];
    let received = server.take_requests();
    assert_eq!(received[0].header("x-gateway-destination-endpoint"), Some(server.endpoint().as_str()));
    let entry = stack.logged(path).await;
    for field in ["header", "metadata", "served", "upstream"] {
        assert_eq!(entry[field], server.endpoint(), "field {field} of {entry}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_original_dst_cluster_connects_to_the_picked_endpoint() {
    let stack = Stack::builder().config("examples/original-dst.yaml").start().await;
    stack.servers()[1].update_metrics(|metrics| metrics.waiting = 9);
    stack.servers()[2].update_metrics(|metrics| metrics.waiting = 9);
    eventually("the idle server serves", SOON, async || {
        let response = stack.post("/v1/chat/completions", &client::chat("hello")).await;
        let served = stack.served_by(&response);
        if served == 0 { Ok(()) } else { Err(format!("server {served} did")) }
    })
    .await;
}
