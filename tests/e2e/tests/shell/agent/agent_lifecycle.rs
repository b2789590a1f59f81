//! The agent may come late, go, and come back.

use endpoint_picker_e2e::fixture::{
    CHAT, DESTINATION, assert_no_endpoints, forget_requests, fresh_chat, fresh_prompt, prefer,
    request_counts, until_all_go_to,
};
use endpoint_picker_e2e::steady_load::SteadyLoad;
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Metrics, ModelServer};
use reqwest::StatusCode;

#[tokio::test(flavor = "multi_thread")]
async fn without_an_agent_envoy_balances_and_picking_starts_by_itself_when_one_comes() {
    let mut stack = Stack::builder().without_agent().start().await;
    for _ in 0..4 {
        for client in [client::http1(), client::h2c()] {
            let chat = client.post(stack.url(CHAT)).json(&fresh_chat()).send().await.unwrap();
            assert_eq!(chat.status(), StatusCode::OK);
            let bodiless = client.get(stack.url("/v1/models")).send().await.unwrap();
            assert_eq!(bodiless.status(), StatusCode::OK);
        }
    }
    let counts = request_counts(&stack);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    for request in stack.servers().iter().flat_map(ModelServer::take_requests) {
        assert_eq!(request.header(DESTINATION), None);
    }

    let load = SteadyLoad::start(&stack);
    stack.start_agent().await;
    stack.wait_until_picking().await;
    prefer(&stack, 2).await;
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_agent_fail_close_answers_503_and_serves_when_one_comes() {
    let mut stack = Stack::builder().without_agent().picker_field("failureMode", "FailClose").start().await;
    for client in [client::http1(), client::h2c()] {
        let chat = client.post(stack.url(CHAT)).json(&fresh_chat()).send().await.unwrap();
        assert_no_endpoints(chat, "a chat").await;
        let bodiless = client.get(stack.url("/v1/models")).send().await.unwrap();
        assert_no_endpoints(bodiless, "a request without a body").await;
    }
    assert_eq!(request_counts(&stack), [0, 0, 0]);

    stack.start_agent().await;
    stack.wait_until_picking().await;
    prefer(&stack, 0).await;

    // The last snapshot is enough from here on.
    stack.kill_agent();
    assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_agent_the_picker_uses_the_last_readings() {
    let mut stack = Stack::builder().start().await;
    prefer(&stack, 1).await;
    let load = SteadyLoad::start(&stack);
    stack.kill_agent();
    forget_requests(&stack);
    // Without an agent this reading does not reach the picker.
    stack.servers()[1].update_metrics(|metrics| metrics.waiting = 50);
    for _ in 0..20 {
        assert_eq!(stack.served_by(&stack.post(CHAT, &fresh_chat()).await), 1);
    }
    load.stop().await;

    // The readings of the next agent count at once.
    let load = SteadyLoad::start(&stack);
    stack.start_agent().await;
    prefer(&stack, 2).await;
    prefer(&stack, 0).await;
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_agent_the_picker_still_finds_cached_prompts() {
    let mut stack = Stack::builder().workers(1).start().await;
    let ask =
        async |stack: &Stack, prompt: &str| stack.served_by(&stack.post(CHAT, &client::chat(prompt)).await);
    let mut served = Vec::new();
    for _ in 0..6 {
        let prompt = fresh_prompt();
        served.push((ask(&stack, &prompt).await, prompt));
    }
    stack.kill_agent();
    for (first, prompt) in &served {
        assert_eq!(ask(&stack, prompt).await, *first);
    }
    for _ in 0..6 {
        let prompt = fresh_prompt();
        let first = ask(&stack, &prompt).await;
        assert_eq!(ask(&stack, &prompt).await, first);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_agent_with_other_servers_is_followed() {
    let mut stack = Stack::builder().start().await;
    prefer(&stack, 0).await;
    stack.kill_agent();
    for server in stack.servers() {
        server.update_metrics(|metrics| *metrics = Metrics::default());
    }
    stack.set_endpoints(&[stack.servers()[2].address()]);
    stack.start_agent().await;
    until_all_go_to(&stack, 2).await;
}
