//! All listeners have one state, also those that come later.

use endpoint_picker_e2e::fixture::{CHAT, fresh_prompt};
use endpoint_picker_e2e::statistics::until_counted;
use endpoint_picker_e2e::steady_load::SteadyLoad;
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::BEHAVE;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Prompts, each with the server that it was sent to.
async fn send_prompts(stack: &Stack, count: usize) -> Vec<(Value, usize)> {
    let mut sent = Vec::new();
    for _ in 0..count {
        let body = client::chat(&fresh_prompt().repeat(4));
        let server = stack.served_by(&stack.post(CHAT, &body).await);
        sent.push((body, server));
    }
    sent
}

/// Requests to which no server responds.
fn hold(url: &str, count: usize) -> JoinSet<reqwest::Result<reqwest::Response>> {
    let mut held = JoinSet::new();
    for _ in 0..count {
        let request = client::http1().post(url).header(BEHAVE, "hang");
        held.spawn(request.json(&client::chat("hold")).send());
    }
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_of_the_listener_loses_no_request_and_no_state() {
    const HELD: u32 = 10;
    let mut stack = Stack::builder().workers(4).listeners_in_file().start().await;
    let sent = send_prompts(&stack, 6).await;
    let mut held = hold(&stack.url(CHAT), HELD as usize);
    let load = SteadyLoad::start(&stack);
    for explains in [true, false, true] {
        let explain = json!({"accessLog": explains});
        stack.change_listeners(|config| config.set_picker_field("explain", explain)).await;
        let path = format!("{CHAT}?{explains}");
        for (body, server) in &sent {
            assert_eq!(stack.served_by(&stack.post(&path, body).await), *server);
        }
    }
    load.stop().await;
    until_counted(&stack, "in_flight", u64::from(HELD)).await;
    held.shutdown().await;
    until_counted(&stack, "in_flight", 0).await;
    let path = format!("{CHAT}?last");
    stack.post(&path, &sent[0].0).await;
    assert!(stack.logged(&path).await["explanation"].is_string(), "the new configuration is in force");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_listeners_share_prompts_and_requests_in_flight() {
    const SECOND: &str = "second";
    let stack = Stack::builder().workers(2).change(|config| config.repeat_listener(SECOND)).start().await;
    let second = stack.envoy().listener_named(SECOND).await.unwrap();
    assert_ne!(second, stack.envoy().listener());
    let url = format!("http://{second}{CHAT}");
    for (body, server) in send_prompts(&stack, 8).await {
        let response = client::http1().post(&url).json(&body).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(stack.served_by(&response), server);
    }
    let (mut one, mut other) = (hold(&stack.url(CHAT), 3), hold(&url, 4));
    until_counted(&stack, "in_flight", 7).await;
    one.shutdown().await;
    other.shutdown().await;
    until_counted(&stack, "in_flight", 0).await;
}
