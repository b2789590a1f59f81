//! A request goes to the server that has its prompt's beginning in its cache.

use endpoint_picker_e2e::fixture::{
    CHAT, fresh_chat, fresh_prompt, openai_error, until_all_go_to, until_every_worker,
};
use endpoint_picker_e2e::statistics::complete_statistics;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::Metrics;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Several blocks of 256 bytes.
fn long_prompt() -> String {
    fresh_prompt().repeat(4)
}

/// Several workers: each request is a new connection, and so may meet another one.
async fn stack() -> Stack {
    Stack::builder().workers(4).start().await
}

async fn chat(stack: &Stack, body: &Value) -> usize {
    stack.served_by(&stack.post("/v1/chat/completions", body).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_long_prompt_goes_to_the_same_server_and_others_are_free_to_go_elsewhere() {
    let stack = stack().await;
    let mut used = BTreeSet::new();
    for _ in 0..20 {
        let prompt = long_prompt();
        let first = chat(&stack, &client::chat(&prompt)).await;
        for again in 0..4 {
            assert_eq!(chat(&stack, &client::chat(&prompt)).await, first, "time {again}");
        }
        used.insert(first);
    }
    assert!(used.len() > 1, "all prompts went to {used:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_can_ask_for_an_answer_only_where_its_prompt_is_cached() {
    let stack = stack().await;
    let (cached, cold) = (client::chat(&long_prompt()), client::chat(&long_prompt()));
    let first = chat(&stack, &cached).await;
    let ask = async |body: &Value| {
        let request = client::http1().post(stack.url(CHAT)).header("prefer", "if-available").json(body);
        request.send().await.unwrap()
    };
    for _ in 0..5 {
        let answer = ask(&cached).await;
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(stack.served_by(&answer), first);
        // A refusal leaves nothing behind that would make the prompt count as cached.
        let refused = ask(&cold).await;
        assert_eq!(refused.status(), StatusCode::PRECONDITION_FAILED);
        let message = openai_error(refused.status(), &refused.text().await.unwrap());
        assert_eq!(message, "no decode worker has the requested KV cache");
    }
    let statistics = complete_statistics(&stack).await;
    assert_eq!(statistics.count(r#"rejected{pool="default",status="412"}"#), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn text_completions_have_prefixes_too() {
    let stack = stack().await;
    for _ in 0..10 {
        let body = client::completion(&long_prompt());
        let first = stack.served_by(&stack.post("/v1/completions", &body).await);
        for again in 0..3 {
            let served = stack.served_by(&stack.post("/v1/completions", &body).await);
            assert_eq!(served, first, "time {again}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_stays_where_it_began() {
    let stack = stack().await;
    for _ in 0..5 {
        let mut messages = vec![json!({"role": "user", "content": long_prompt()})];
        let mut body = client::chat("");
        body["messages"] = json!(messages);
        let first = chat(&stack, &body).await;
        for turn in 0..5 {
            messages.push(json!({"role": "assistant", "content": fresh_prompt()}));
            messages.push(json!({"role": "user", "content": fresh_prompt()}));
            body["messages"] = json!(messages);
            assert_eq!(chat(&stack, &body).await, first, "turn {turn}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_prompt_outweighs_a_queue_but_not_a_queue_and_a_full_cache() {
    let stack = stack().await;
    let body = client::chat(&long_prompt());
    let first = chat(&stack, &body).await;
    let other = (first + 1) % 3;
    let busy = |kv_cache_usage| {
        for (index, server) in stack.servers().iter().enumerate().filter(|(index, _)| *index != other) {
            let waiting = 5 + index as u64;
            server.update_metrics(|metrics| {
                *metrics = Metrics { waiting, kv_cache_usage, ..Metrics::default() }
            });
        }
    };
    busy(0.0);
    until_all_go_to(&stack, other).await;
    assert_eq!(chat(&stack, &body).await, first);
    busy(0.95);
    eventually("the prompt leaves for an idle server", async || {
        let served = chat(&stack, &body).await;
        if served == other { Ok(()) } else { Err(format!("it went to server {served}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_restarted_is_not_taken_for_one_that_has_the_prompt() {
    let stack = stack().await;
    let body = client::chat(&long_prompt());
    let first = chat(&stack, &body).await;
    let server = &stack.servers()[first];
    server.update_metrics(|metrics| metrics.waiting = 1);
    until_every_worker("avoids the queue", async || {
        let served = chat(&stack, &fresh_chat()).await;
        if served == first { Err("a fresh prompt went to the queue") } else { Ok(()) }
    })
    .await;
    for again in 0..20 {
        assert_eq!(chat(&stack, &body).await, first, "time {again}");
    }
    server.update_metrics(|metrics| metrics.start_time = metrics.start_time.map(|time| time + 600.0));
    let second = eventually("the prompt leaves the server without its cache", async || {
        let served = chat(&stack, &body).await;
        if served == first { Err("it stayed") } else { Ok(served) }
    })
    .await;
    // What is remembered from then on stays, also of the server that restarted.
    for again in 0..20 {
        assert_eq!(chat(&stack, &body).await, second, "time {again}");
    }
    server.update_metrics(|metrics| metrics.waiting = 0);
    for (index, server) in stack.servers().iter().enumerate().filter(|(index, _)| *index != first) {
        server.update_metrics(|metrics| metrics.waiting = 5 + index as u64);
    }
    until_all_go_to(&stack, first).await;
    let body = client::chat(&long_prompt());
    assert_eq!(chat(&stack, &body).await, first);
    stack.servers()[first].update_metrics(|metrics| metrics.waiting = 6);
    for server in stack.servers().iter().filter(|other| other.address() != stack.servers()[first].address()) {
        server.update_metrics(|metrics| metrics.waiting = 5);
    }
    for again in 0..20 {
        assert_eq!(chat(&stack, &body).await, first, "time {again}");
    }
}
