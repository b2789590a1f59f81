//! Requests that name a stored response or conversation, in front of three servers that store their own.

use endpoint_picker_e2e::fixture::{fresh_prompt, second_envoy};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

const RESPONSES: &str = "/v1/responses";
const CONVERSATIONS: usize = 13;
const TURNS: usize = 4;

/// The status of a request without a body, on a new connection.
async fn status(stack: &Stack, method: Method, path: &str) -> StatusCode {
    let response = client::http1().request(method, stack.url(path)).send().await;
    response.unwrap().status()
}

/// Sends a turn and returns the id of its response. Of two turns one is streamed.
async fn turn(stack: &Stack, number: usize, members: &Value) -> String {
    let is_streamed = number.is_multiple_of(2);
    let mut body = json!({"model": "demo", "input": fresh_prompt(), "stream": is_streamed});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let response = stack.post(RESPONSES, &body).await;
    assert_eq!(response.status(), StatusCode::OK, "turn {number}: {body}");
    let text = response.text().await.unwrap();
    let first = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap_or(&text);
    let first: Value = serde_json::from_str(first).unwrap();
    let id = if is_streamed { &first["response"]["id"] } else { &first["id"] };
    id.as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn they_go_to_the_server_that_stores_it_from_every_worker_and_proxy() {
    let one = Stack::builder().servers(3).workers(4).agent_flags(&["--share", "agent"]).start().await;
    let two = second_envoy(&one).await;
    let mut ids = Vec::new();
    for conversation in 0..CONVERSATIONS {
        let mut members = json!({});
        for number in 0..TURNS {
            let id = turn(&one, conversation + number, &members).await;
            members = json!({"previous_response_id": id});
            ids.push(id);
        }
    }
    for id in &ids {
        let path = format!("{RESPONSES}/{id}");
        assert_eq!(status(&one, Method::GET, &path).await, StatusCode::OK, "{path}");
    }
    let last = format!("{RESPONSES}/{}", ids.last().unwrap());
    eventually("the other proxy knows the server of the last response", async || {
        // By chance, one of three servers has it.
        for _ in 0..20 {
            let status = status(&two, Method::GET, &last).await;
            if status != StatusCode::OK {
                return Err(status);
            }
        }
        Ok(())
    })
    .await;
    for (number, id) in ids.iter().enumerate() {
        turn(&two, number, &json!({"previous_response_id": id})).await;
        let path = format!("{RESPONSES}/{id}");
        assert_eq!(status(&two, Method::DELETE, &path).await, StatusCode::OK, "{path}");
    }

    let response = one.post("/v1/conversations", &json!({"items": [{"type": "message"}]})).await;
    let conversation: Value = response.json().await.unwrap();
    for number in 0..20 {
        turn(&one, number, &json!({"conversation": conversation["id"]})).await;
    }
    let unknown = status(&one, Method::GET, "/v1/responses/resp_unknown").await;
    assert_eq!(unknown, StatusCode::NOT_FOUND, "a server says so");
}
