//! A client cannot choose its server, nor set the picker's headers.

use endpoint_picker_e2e::fixture::{DESTINATION, fresh_chat, prefer, request_counts};
use endpoint_picker_harness::client::{self, Ending};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{CLAIM_HEADER, ModelServer};
use reqwest::{RequestBuilder, Response, StatusCode};
use serde_json::Value;

/// Further headers that a client must not set: each has an effect in Envoy or in a model server.
const OTHERS: [&str; 8] = [
    "x-endpoint-picker-fallback",
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    "x-llm-d-request-dropped-reason",
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
];

/// Every way a client may try to go to `wanted`: in one header or two, spelled in another way, listed, or
/// named as a header that a proxy takes away.
fn attempts(request: impl Fn() -> RequestBuilder, wanted: &str) -> Vec<RequestBuilder> {
    vec![
        request().header(DESTINATION, wanted),
        request().header("X-Gateway-Destination-Endpoint", wanted),
        request().header(DESTINATION, wanted).header(DESTINATION, wanted),
        request().header(DESTINATION, "").header(DESTINATION, wanted),
        request().header(DESTINATION, format!("{wanted},{wanted}")),
        request().header(DESTINATION, format!(" {wanted}")),
        OTHERS
            .iter()
            .fold(request().header(DESTINATION, wanted), |request, name| request.header(*name, wanted)),
    ]
}

/// All attempts as a chat and as a request without a body, over HTTP/1.1 and h2c.
fn all_attempts(stack: &Stack, path: &str, wanted: &str) -> Vec<RequestBuilder> {
    all_attempts_under(stack, "", path, wanted)
}

/// The same for the route of a path prefix.
fn all_attempts_under(stack: &Stack, prefix: &str, path: &str, wanted: &str) -> Vec<RequestBuilder> {
    let (path, models) = (stack.url(&format!("{prefix}{path}")), stack.url(&format!("{prefix}/v1/models")));
    let (http1, h2c) = (client::http1(), client::h2c());
    let mut all = Vec::new();
    for client in [&http1, &h2c] {
        all.extend(attempts(|| client.post(&path).json(&fresh_chat()), wanted));
        all.extend(attempts(|| client.get(&models), wanted));
    }
    all.extend(attempts(|| http1.post(&path).header("connection", DESTINATION).json(&fresh_chat()), wanted));
    all
}

/// Envoy alone has spread these requests over the servers.
fn assert_balanced(stack: &Stack, sent: usize) {
    let counts = request_counts(stack);
    assert_eq!(counts.iter().sum::<usize>(), sent);
    // Each worker goes round; with chance at the start of the round no server is more than two rounds ahead.
    let fair = sent / counts.len();
    assert!(counts.iter().all(|count| count.abs_diff(fair) <= 2), "{counts:?} of {sent}");
}

async fn send(request: RequestBuilder) -> Response {
    request.send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_choose_a_server() {
    let stack = Stack::builder().start().await;
    prefer(&stack, 1).await;
    let wanted = stack.servers()[2].endpoint();
    for request in all_attempts(&stack, "/v1/chat/completions", &wanted) {
        let response = send(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        let server = &stack.servers()[stack.served_by(&response)];
        let received = server.take_requests();
        let header: Vec<_> = received[0].headers.get_all(DESTINATION).iter().collect();
        assert_eq!(header, [&server.endpoint()], "the picker's choice alone reaches the server");
        // A request without a body goes to any server, a chat to the best.
        if received[0].method == "POST" {
            assert_eq!(server.endpoint(), stack.servers()[1].endpoint());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_name_an_address_outside_the_pool() {
    let stack = Stack::builder().start().await;
    let outside = ModelServer::start().unwrap();
    for request in all_attempts(&stack, "/v1/chat/completions", &outside.endpoint()) {
        let response = send(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        stack.served_by(&response);
    }
    assert_eq!(outside.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn control_headers_are_removed_and_all_others_arrive() {
    let stack = Stack::builder().start().await;
    for client in [client::http1(), client::h2c()] {
        let chat = client.post(stack.url("/v1/chat/completions")).json(&fresh_chat());
        for mut request in [chat, client.get(stack.url("/v1/models"))] {
            for name in OTHERS {
                request = request.header(name, "127.0.0.1:1").header(name, "again");
            }
            let request = request.header("authorization", "Bearer key").header("x-session-token", "abc");
            let response = send(request.header("x-gateway-destination", "x")).await;
            let received = stack.servers()[stack.served_by(&response)].take_requests();
            for name in OTHERS {
                assert_eq!(received[0].header(name), None, "{name}");
            }
            let kept =
                [("authorization", "Bearer key"), ("x-session-token", "abc"), ("x-gateway-destination", "x")];
            for (name, value) in kept {
                assert_eq!(received[0].header(name), Some(value), "{name}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_in_the_trailers_of_a_chunked_body_does_not_steer() {
    let stack = Stack::builder().start().await;
    prefer(&stack, 1).await;
    let wanted = stack.servers()[2].endpoint();
    let body = fresh_chat().to_string();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\ntrailer: {DESTINATION}\r\n\
         connection: close\r\n\r\n{:x}\r\n{body}\r\n0\r\n{DESTINATION}: {wanted}\r\n\r\n",
        body.len()
    );
    let answer = client::raw(stack.envoy().listener(), request.as_bytes(), Ending::KeepOpen).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(request_counts(&stack), [0, 1, 0]);
    assert_eq!(
        stack.servers()[1].requests()[0].header(DESTINATION),
        Some(stack.servers()[1].endpoint().as_str())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_picker_abstains_no_destination_is_left_and_the_client_does_not_steer_either() {
    let stack = Stack::builder().without_agent().start().await;
    let wanted = stack.servers()[2].endpoint();
    let requests = all_attempts(&stack, "/v1/chat/completions?abstained", &wanted);
    let sent = requests.len();
    for request in requests {
        assert_eq!(send(request).await.status(), StatusCode::OK);
    }
    for server in stack.servers() {
        for received in server.requests() {
            assert_eq!(received.header(DESTINATION), None, "{received:?}");
        }
    }
    assert_balanced(&stack, sent);

    let entry = stack.logged("/v1/chat/completions?abstained").await;
    for field in ["header", "metadata"] {
        assert_eq!(entry[field], Value::Null, "field {field} of {entry}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_choose_a_server_on_a_route_without_the_picker() {
    const EXPLANATION: &str = "x-endpoint-picker-explanation";
    const SCORES: &str = "x-gateway-destination-endpoint-scores";
    let stack = Stack::builder().route_without_picker("/unpicked/").start().await;
    let wanted = stack.servers()[2].endpoint();
    let requests = all_attempts_under(&stack, "/unpicked", "/v1/chat/completions?unpicked", &wanted);
    let sent = requests.len();
    for request in requests {
        // base64 of a protobuf value: `{"a": 1}`.
        let request = request.header(EXPLANATION, "forged").header(SCORES, "KgwKCgoBYRIFEQAAAAA=");
        assert_eq!(send(request).await.status(), StatusCode::OK);
    }
    for server in stack.servers() {
        for received in server.requests() {
            assert_eq!(received.header(DESTINATION), None, "{received:?}");
        }
    }
    assert_balanced(&stack, sent);
    let entry = stack.logged("/v1/chat/completions?unpicked").await;
    for field in ["header", "metadata", "scores", "explanation"] {
        assert_eq!(entry[field], Value::Null, "field {field} of {entry}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_original_dst_cluster_is_not_an_open_proxy_on_a_route_without_the_picker() {
    let builder = Stack::builder().config("examples/original-dst").route_without_picker("/unpicked/");
    let stack = builder.start().await;
    let outside = ModelServer::start().unwrap();
    for request in all_attempts_under(&stack, "/unpicked", "/v1/chat/completions", &outside.endpoint()) {
        assert_eq!(send(request).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    assert_eq!(outside.requests().len(), 0);
    assert_eq!(request_counts(&stack), [0, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_original_dst_cluster_is_not_an_open_proxy() {
    let stack = Stack::builder().config("examples/original-dst").start().await;
    prefer(&stack, 1).await;
    let outside = ModelServer::start().unwrap();
    for request in all_attempts(&stack, "/v1/chat/completions", &outside.endpoint()) {
        let response = send(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        stack.served_by(&response);
    }
    // A refused body does not bypass the picker.
    let bad = client::http1().post(stack.url("/v1/chat/completions")).header(DESTINATION, outside.endpoint());
    assert_eq!(send(bad.body("not JSON")).await.status(), StatusCode::BAD_REQUEST);
    assert_eq!(outside.requests().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_original_dst_cluster_is_not_an_open_proxy_while_the_picker_abstains() {
    for (failure_mode, reason) in [("FailOpen", None), ("FailClose", Some("rejected-no-endpoints"))] {
        let builder = Stack::builder().config("examples/original-dst").without_agent();
        let stack = builder.picker_field("failureMode", failure_mode).start().await;
        let outside = ModelServer::start().unwrap();
        for request in all_attempts(&stack, "/v1/chat/completions", &outside.endpoint()) {
            let response = send(request).await;
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE, "{failure_mode}");
            let dropped_reason = response.headers().get("x-llm-d-request-dropped-reason");
            assert_eq!(dropped_reason.map(|value| value.to_str().unwrap()), reason, "{failure_mode}");
        }
        assert_eq!(outside.requests().len(), 0, "{failure_mode}");
        assert_eq!(request_counts(&stack), [0, 0, 0], "{failure_mode}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_cannot_set_the_headers_of_the_picker() {
    const CLAIMS: [&str; 5] = [
        DESTINATION,
        "x-gateway-destination-endpoint-scores",
        "x-gateway-destination-endpoint-served",
        "x-llm-d-request-dropped-reason",
        "x-its-own",
    ];
    let stack = Stack::builder().start().await;
    for client in [client::http1(), client::h2c()] {
        let request = client.post(stack.url("/v1/chat/completions")).json(&fresh_chat());
        let request = CLAIMS.iter().fold(request, |request, claim| request.header(CLAIM_HEADER, *claim));
        let response = send(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        let came: Vec<&str> =
            CLAIMS.into_iter().filter(|claim| response.headers().contains_key(*claim)).collect();
        assert_eq!(came, ["x-its-own"]);
    }
}
