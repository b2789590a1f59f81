//! Conversations stay with the server that has their prompts cached, whatever API they use.

use endpoint_picker_e2e::fixture::CHAT;
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::{ModelServer, SERVED_BY};
use metrics_agent_server_model::ServiceTimes;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

const CONVERSATIONS: usize = 12;
const TURNS: usize = 10;
/// Text of the first turn, in bytes: 6 000 tokens of the servers.
const FIRST_TURN: usize = 24_000;
/// Text that each further turn adds, in bytes: 400 tokens.
const LATER_TURN: usize = 1_600;
/// The rounds in which the picker learns how fast the servers read.
const LEARNING_ROUNDS: usize = 2;
/// Turns of 108, all but the first of each conversation, that stay with the server of the turn before, at
/// least.
const STAY: usize = 95;

fn times() -> ServiceTimes {
    ServiceTimes {
        max_running: 16,
        step: Duration::from_millis(2),
        step_per_sequence: Duration::ZERO,
        prefill_per_token: Duration::from_micros(100),
        kv_blocks: 32_768,
        ..ServiceTimes::default()
    }
}

fn body(path: &str, text: &str) -> Value {
    match path {
        CHAT => {
            json!({"model": "m", "stream": true, "max_tokens": 3, "messages": [{"role": "user", "content": text}]})
        }
        _ => json!({"model": "m", "stream": true, "input": text}),
    }
}

/// The server that served a request to the end, by name.
async fn ask(stack: &Stack, client: &Client, path: &str, text: &str) -> String {
    let response = client.post(stack.url(path)).json(&body(path, text)).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let server = response.headers()[SERVED_BY].to_str().unwrap().to_owned();
    response.bytes().await.unwrap();
    server
}

/// The turns of new conversations that stay with the server of the turn before, one request after another.
async fn round(stack: &Stack, path: &str, round: usize) -> usize {
    let client = client::http1();
    let mut texts: Vec<String> =
        (0..CONVERSATIONS).map(|number| format!("{path} {round} {number} ")).collect();
    let mut servers = vec![None; CONVERSATIONS];
    let mut stayed = 0;
    for turn in 0..TURNS {
        for (text, server) in texts.iter_mut().zip(&mut servers) {
            let length = text.len() + if turn == 0 { FIRST_TURN } else { LATER_TURN };
            while text.len() < length {
                *text += &(text.len() * TURNS + turn).to_string();
                text.push(' ');
            }
            let served = Some(ask(stack, &client, path, text).await);
            stayed += usize::from(turn > 0 && *server == served);
            *server = served;
        }
    }
    stayed
}

/// Checks that new conversations of this API stay, after the picker has learnt from others of the API.
async fn assert_stay(path: &str) {
    let manifests =
        fs::read_to_string(tools::root().join("examples/choosing/expected-latency.yaml")).unwrap();
    let servers = ["a", "b"].map(|name| ModelServer::start_with_service_times(name, times()).unwrap());
    let addresses = servers.each_ref().map(|server| server.endpoint().parse().unwrap());
    let stack = Stack::builder().servers(0).other_servers(&addresses).manifests(&manifests).start().await;
    let mut stayed = Vec::new();
    for number in 0..=LEARNING_ROUNDS {
        stayed.push(round(&stack, path, number).await);
    }
    println!("{path}: of 108 turns stayed, round by round, {stayed:?}");
    assert!(stayed[LEARNING_ROUNDS] >= STAY, "{stayed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_by_chats_stay_with_their_servers() {
    assert_stay(CHAT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_by_the_responses_api_stay_with_their_servers() {
    assert_stay("/v1/responses").await;
}
