//! The main job: a request goes to the best model server.

use endpoint_picker_tests::client;
use endpoint_picker_tests::eventually::eventually;
use endpoint_picker_tests::stack::{SOON, Stack};
use endpoint_picker_tests::subset_hint;
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
                // A new prompt each time: a cached prefix would outweigh the queue.
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
    let mut attempt = 0;
    eventually("the idle server serves", SOON, async || {
        // A new prompt each time: a cached prefix would outweigh the queue.
        attempt += 1;
        let response = stack.post("/v1/chat/completions", &client::chat(&format!("{attempt} times"))).await;
        let served = stack.served_by(&response);
        if served == 0 { Ok(()) } else { Err(format!("server {served} did")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn picking_begins_when_the_agent_comes_and_requests_go_on_when_it_has_gone() {
    let mut stack = Stack::builder().without_agent().start().await;
    let response = stack.post("/v1/completions?alone", &client::completion("hello")).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(stack.logged("/v1/completions?alone").await["header"], serde_json::Value::Null);

    stack.start_agent().await;
    stack.wait_until_picking().await;

    stack.kill_agent();
    for _ in 0..10 {
        let response = stack.post("/v1/completions", &client::completion("hello")).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subset_hint_of_an_earlier_filter_narrows_the_choice() {
    let stack = Stack::builder().filter_before_picker(subset_hint::filter()).start().await;
    let inside = [stack.servers()[0].endpoint(), stack.servers()[2].endpoint()];
    stack.servers()[0].update_metrics(|metrics| metrics.waiting = 9);
    stack.servers()[2].update_metrics(|metrics| metrics.waiting = 9);
    let ask = async |hint: String| {
        let request = client::http1().post(stack.url("/v1/completions")).header(subset_hint::HEADER, hint);
        request.json(&client::completion("hello")).send().await.unwrap()
    };
    for hint in [subset_hint::list(&inside), subset_hint::string(&inside.join(","))] {
        for _ in 0..10 {
            assert_ne!(stack.served_by(&ask(hint.clone()).await), 1, "hint {hint}");
        }
    }
    for hint in [subset_hint::list::<&str>(&[]), subset_hint::string("10.1.2.3:4")] {
        assert_eq!(ask(hint).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
