//! A path that is written in another way is subject to the same rules, because servers decode it all the
//! same.

use anyhow::ensure;
use endpoint_picker_e2e::fixture::{openai_error, until_every_worker};
use endpoint_picker_harness::client::{self, Ending, raw};
use endpoint_picker_harness::program::ServerProcess;
use endpoint_picker_harness::stack::{Builder, Stack};
use reqwest::StatusCode;
use serde_json::{Value, json};

/// Only `known` may be named, and it is served as `known-v1`.
const MODEL: &str = r"
apiVersion: inference.networking.x-k8s.io/v1alpha2
kind: InferenceModel
metadata: { name: known }
spec: { modelName: known, criticality: Critical, poolRef: { name: default }, targetModels: [{ name: known-v1 }] }
";

/// Ways to write `/v1/chat/completions` that Starlette serves when they reach it unchanged.
const DECODED: [&str; 4] = [
    "/v1/chat/completions",
    "/v1/chat/completion%73",
    "/v1%2Fchat/completions",
    "/v1/%63hat/%63ompletions?a=%3F",
];

/// Ways that are served once Envoy has normalized the path.
const NORMALIZED: [&str; 4] = [
    "//v1/chat/completions",
    "/v1//chat///completions",
    "/v1/./chat/completions",
    "/v1/x/../chat/completions",
];

/// The status and the JSON of the response, for this path as it is written and this model.
async fn post(stack: &Stack, path: &str, model: &str) -> (StatusCode, String) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]}).to_string();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    let answer = raw(stack.envoy().listener(), request.as_bytes(), Ending::KeepOpen).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{path}: {answer:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    // What remains is the framing of chunks.
    let json = body.find('{').zip(body.rfind('}')).map_or("", |(begin, end)| &body[begin..=end]);
    (status.unwrap_or_else(|| panic!("{path}: {head}")), json.to_owned())
}

async fn start(builder: Builder) -> (ServerProcess, Stack) {
    let stack = builder.manifests(MODEL).start().await;
    let server = ServerProcess::asgi(&stack.path("asgi.log")).await.unwrap();
    stack.set_endpoints(&[server.address()]);
    until_every_worker("sends requests to the ASGI server", async || {
        let answer = client::http1()
            .post(stack.url("/v1/chat/completions"))
            .json(&json!({"model": "known", "messages": [{"role": "user", "content": "hi"}]}));
        let answer: Value = answer.send().await?.json().await?;
        ensure!(answer["served_by"] == "asgi", "{answer}");
        anyhow::Ok(())
    })
    .await;
    (server, stack)
}

async fn assert_the_rules_reach(stack: &Stack, paths: &[&str]) {
    for path in paths {
        let (status, body) = post(stack, path, "unknown").await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{path}: {body}");
        assert!(openai_error(status, &body).contains("unknown"), "{path}: {body}");

        let (status, body) = post(stack, path, "known").await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        let answer: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{path}: {body:?}"));
        assert_eq!(answer["route"], "/v1/chat/completions", "{path}: {body}");
        // The server has received the target of the model; the response has the client's name for it.
        assert_eq!(answer["received"], "known-v1", "{path}: {body}");
        assert_eq!(answer["model"], "known", "{path}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_asgi_server_gets_no_request_past_the_rules_however_its_path_is_written() {
    let (_server, stack) = start(Stack::builder()).await;
    assert_the_rules_reach(&stack, &DECODED).await;
    assert_the_rules_reach(&stack, &NORMALIZED).await;
    // Starlette redirects to the path without the slash; the rules come first.
    assert_eq!(post(&stack, "/v1/chat/completions/", "unknown").await.0, StatusCode::NOT_FOUND);
    let redirected = post(&stack, "/v1/chat/completions/", "known").await;
    assert_eq!(redirected.0, StatusCode::TEMPORARY_REDIRECT, "{redirected:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_hold_too_where_envoy_passes_paths_on_unchanged() {
    let (_server, stack) = start(Stack::builder().without_path_normalization()).await;
    assert_the_rules_reach(&stack, &DECODED).await;
}
