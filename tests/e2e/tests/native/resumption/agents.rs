//! Streams of agents, with reasoning and tool calls, whose server is killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use endpoint_picker_e2e::fixture::{CHAT, fresh_prompt};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stream_output::StreamOutput;
use endpoint_picker_model_server::ModelServer;
use serde_json::{Value, json};

use super::kills::Servers;
use super::{count, post};

const RESPONSES: &str = "/v1/responses";
const MESSAGES: &str = "/v1/messages";

/// Streams of each API and kind of sampling.
const STREAMS: usize = 6;

/// A request of an agent with this prompt.
fn request(path: &str, prompt: &str) -> Value {
    match path {
        CHAT => json!({
            "stream": true, "stream_options": {"include_usage": true}, "reasoning_effort": "high",
            "messages": [{"role": "user", "content": prompt}], "tool_choice": "auto",
            "tools": [{"type": "function", "function": {"name": "read", "parameters": {}}}],
        }),
        RESPONSES => json!({
            "stream": true, "store": false, "reasoning": {"effort": "medium"}, "tool_choice": "auto",
            "input": [{"role": "user", "content": prompt}],
            "tools": [{"type": "function", "name": "shell", "parameters": {}}],
        }),
        _ => json!({
            "stream": true, "max_tokens": 32000, "thinking": {"type": "enabled", "budget_tokens": 1024},
            "messages": [{"role": "user", "content": prompt}],
            "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
        }),
    }
}

async fn undisturbed(server: &ModelServer, path: &str, request: &Value) -> String {
    let url = format!("http://{}{path}", server.endpoint());
    post(url, request).await.unwrap().text().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_stream_of_an_agent_is_truncated_when_a_server_is_killed() {
    let mut servers = Servers::start().await;
    let begun = Arc::new(AtomicUsize::new(0));
    let mut streams = Vec::new();
    for path in [CHAT, RESPONSES, MESSAGES] {
        // Without a temperature the picker adds a seed.
        for sampling in [json!({"temperature": 0}), json!({"temperature": 1, "seed": 5}), json!({})] {
            for _ in 0..STREAMS {
                let mut request = request(path, &fresh_prompt());
                request.as_object_mut().unwrap().extend(sampling.as_object().unwrap().clone());
                let (url, sent, begun) = (servers.stack.url(path), request.clone(), Arc::clone(&begun));
                let end = tokio::spawn(async move {
                    let mut response = post(url, &sent).await?;
                    let mut body = Vec::new();
                    while let Some(chunk) = response.chunk().await? {
                        if body.is_empty() {
                            begun.fetch_add(1, Ordering::Relaxed);
                        }
                        body.extend_from_slice(&chunk);
                    }
                    anyhow::Ok(String::from_utf8(body)?)
                });
                streams.push((path, request, end));
            }
        }
    }
    let half = streams.len() / 2;
    eventually("half of the streams have begun", async || {
        let begun = begun.load(Ordering::Relaxed);
        anyhow::ensure!(begun >= half, "{begun}");
        anyhow::Ok(())
    })
    .await;
    let killed = servers.busiest().await;
    servers.processes[killed].kill();
    let all = streams.len();
    let reference = ModelServer::start().unwrap();
    for (path, request, end) in streams {
        let seen = end.await.unwrap().unwrap();
        let output = StreamOutput::of(&seen);
        assert!(!output.text.is_empty() && !output.ends.is_empty(), "{seen}");
        if request["temperature"].is_u64() {
            let expected = undisturbed(&reference, path, &request).await;
            assert_eq!(output, StreamOutput::of(&expected), "{path}");
        }
    }
    servers.until_resumed(1).await;
    assert_eq!(count(&servers.stack, "resumable_streams").await, all as u64);
}
