//! The harness and the shipped configuration without the picker: the client plays its part and names the
//! endpoints.

use endpoint_picker_harness::client::{self, Ending};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::{Behaviour, ModelServer};
use reqwest::{Response, StatusCode};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

const DESTINATION: &str = "x-gateway-destination-endpoint";

/// Sends a request with this list of endpoints to Envoy without the picker.
async fn chat_at(stack: &Stack, path: &str, servers: &[usize]) -> Response {
    let list: Vec<String> = servers.iter().map(|index| stack.servers()[*index].endpoint()).collect();
    let request = client::http1().post(stack.url(path)).header(DESTINATION, list.join(","));
    request.json(&client::chat("hello")).send().await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_endpoint_in_the_header_serves_and_the_log_agrees() {
    let stack = Stack::builder().bare().start().await;
    for (index, server) in stack.servers().iter().enumerate() {
        let path = format!("/v1/chat/completions?to={index}");
        let response = chat_at(&stack, &path, &[index]).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(stack.served_by(&response), index);

        let received = server.take_requests();
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].header(DESTINATION), Some(server.endpoint().as_str()));
        let entry = stack.logged(&path).await;
        for field in ["header", "metadata", "upstream"] {
            assert_eq!(entry[field], server.endpoint(), "field {field} of {entry}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_first_of_the_list_refuses_the_next_one_serves() {
    let stack = Stack::builder().bare().start().await;
    stack.servers()[2].refuse().await.unwrap();
    let response = chat_at(&stack, "/v1/chat/completions?walk", &[2, 1, 0]).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(stack.served_by(&response), 1);
    let entry = stack.logged("/v1/chat/completions?walk").await;
    assert_eq!(entry["upstream"], stack.servers()[1].endpoint());
    assert_eq!(entry["attempts"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_whole_list_refuses_the_fallback_finds_a_server_that_does_not() {
    let stack = Stack::builder().bare().start().await;
    stack.servers()[0].refuse().await.unwrap();
    for attempt in 0..12 {
        let response = chat_at(&stack, &format!("/v1/chat/completions?only={attempt}"), &[0]).await;
        assert_eq!(response.status(), StatusCode::OK, "attempt {attempt}");
        assert_ne!(stack.served_by(&response), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_whole_list_refuses_each_is_tried_once_before_envoy_finds_another() {
    let stack = Stack::builder().bare().start().await;
    let list = format!("{},{}", stack.servers()[2].endpoint(), stack.servers()[0].endpoint());
    stack.servers()[0].refuse().await.unwrap();
    stack.servers()[2].refuse().await.unwrap();
    let path = "/v1/chat/completions?list";
    let response = chat_at(&stack, path, &[2, 0]).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(stack.served_by(&response), 1);
    let entry = stack.logged(path).await;
    assert_eq!(entry["metadata"], list, "{entry}");
    assert_eq!(entry["attempts"], 3, "{entry}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_walked_as_far_as_there_are_retries() {
    let walk: fn() -> Builder = || Stack::builder().bare().servers(6);
    for (builder, status, attempts) in [
        (walk(), StatusCode::SERVICE_UNAVAILABLE, 4),
        (walk().change(|config| config.set_retries(5)), StatusCode::OK, 5),
    ] {
        let stack = builder.start().await;
        for server in &stack.servers()[..4] {
            server.behave(Behaviour::Reset);
        }
        let response = chat_at(&stack, "/v1/chat/completions?six", &[0, 1, 2, 3, 4, 5]).await;
        assert_eq!(response.status(), status);
        assert_eq!(stack.logged("/v1/chat/completions?six").await["attempts"], attempts);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_streamed_answer_comes_through_byte_for_byte_over_http1_and_h2c() {
    let stack = Stack::builder().bare().servers(1).start().await;
    stack.servers()[0].behave(Behaviour::SlowChunks(Duration::from_millis(2)));
    let mut body = client::chat("tell me");
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let direct = format!("http://{}/v1/chat/completions", stack.servers()[0].endpoint());
    let expected = client::http1().post(direct).json(&body).send().await.unwrap().text().await.unwrap();
    assert!(expected.ends_with("data: [DONE]\n\n"), "{expected}");
    assert!(expected.contains("\"usage\":{"), "{expected}");

    for client in [client::http1(), client::h2c()] {
        let response = client.post(stack.url("/v1/chat/completions")).json(&body).send().await.unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        assert_eq!(response.text().await.unwrap(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_added_to_the_file_is_used_and_a_removed_one_is_left() {
    let stack = Stack::builder().bare().start().await;
    let extra = ModelServer::start().unwrap();
    let ask = async || {
        let request = client::http1().get(stack.url("/v1/models")).header(DESTINATION, extra.endpoint());
        request.send().await.unwrap().headers()["x-served-by"].to_str().unwrap().to_owned()
    };
    assert_ne!(ask().await, extra.endpoint());
    let mut endpoints: Vec<_> = stack.servers().iter().map(ModelServer::address).collect();

    endpoints.push(extra.address());
    stack.set_endpoints(&endpoints);
    eventually("the added endpoint serves", async || {
        let served = ask().await;
        if served == extra.endpoint() { Ok(()) } else { Err(served) }
    })
    .await;

    endpoints.pop();
    stack.set_endpoints(&endpoints);
    eventually("the removed endpoint does not serve", async || {
        let served = ask().await;
        if served == extra.endpoint() { Err(served) } else { Ok(()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_far_above_envoys_default_limit_arrives_whole() {
    let stack = Stack::builder().bare().servers(1).start().await;
    let prompt = "x".repeat(8 << 20);
    let response = stack.post("/v1/completions", &client::completion(&prompt)).await;
    assert_eq!(response.status(), StatusCode::OK);
    let received = stack.servers()[0].take_requests();
    assert_eq!(received[0].body, client::completion(&prompt).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_http_get_an_answer_and_the_connection_is_closed() {
    let stack = Stack::builder().bare().servers(1).start().await;
    let answer = client::raw(stack.envoy().listener(), b"good morning\r\n\r\n", Ending::KeepOpen).await;
    let answer = answer.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_stack_leaves_nothing_behind() {
    let stack = Stack::builder().bare().servers(1).start().await;
    let (admin, server) = (stack.envoy().admin(), stack.servers()[0].address());
    drop(stack);
    for address in [admin, server] {
        eventually("the port is closed", async || match TcpStream::connect(address).await {
            Ok(_) => Err("a program listens"),
            Err(_) => Ok(()),
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_server_behaves_as_scripted() {
    let server = ModelServer::start().unwrap();
    let url = format!("http://{}/v1/models", server.endpoint());
    let ask = async || client::http1().get(&url).timeout(Duration::from_millis(300)).send().await;

    assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
    server.behave(Behaviour::Status(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(ask().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    server.behave(Behaviour::Hang);
    assert!(ask().await.unwrap_err().is_timeout());
    server.behave(Behaviour::Reset);
    let started = Instant::now();
    let reset = ask().await.unwrap_err();
    assert!(format!("{reset:?}").contains("ConnectionReset"), "{reset:?} after {:?}", started.elapsed());

    server.refuse().await.unwrap();
    assert!(ask().await.unwrap_err().is_connect());
    server.listen().unwrap();
    server.behave(Behaviour::Answer);
    assert_eq!(ask().await.unwrap().status(), StatusCode::OK);
    assert_eq!(server.requests().len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_shows_the_metrics_a_test_has_set() {
    let server = ModelServer::start().unwrap();
    server.update_metrics(|metrics| {
        metrics.waiting = 7;
        metrics.kv_cache_usage = 0.25;
    });
    let text = client::http1().get(format!("http://{}/metrics", server.endpoint())).send().await.unwrap();
    let text = text.text().await.unwrap();
    assert!(
        text.contains("\nvllm:num_requests_waiting{engine=\"0\",model_name=\"demo-model\"} 7.0\n"),
        "{text}"
    );
    assert!(
        text.contains("\nvllm:kv_cache_usage_perc{engine=\"0\",model_name=\"demo-model\"} 0.25\n"),
        "{text}"
    );
    assert_eq!((server.scrapes(), server.requests().len()), (1, 0));
}
