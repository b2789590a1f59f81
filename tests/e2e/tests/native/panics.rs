//! A panic concerns one request.

use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, assert_no_endpoints, fresh_chat};
use endpoint_picker_e2e::statistics::{statistics, until_counted};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::{Filter, client};
use endpoint_picker_model_server::{BEHAVE, ModelServer};
use reqwest::{Response, StatusCode};
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use tokio::task::JoinSet;

async fn panic(stack: &Stack) -> Response {
    let request = client::http1().post(stack.url(CHAT)).header("x-test-trap", "1").json(&fresh_chat());
    request.send().await.unwrap()
}

/// Waits until this many panics are counted; then no other happened.
async fn until_panics(stack: &Stack, expected: u64) {
    eventually("the panics are counted", async || match statistics(stack).await.sum("panics") {
        found if found == expected => Ok(()),
        found => Err(found),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_failure_mode_decides_a_request_that_panics() {
    let stack = Stack::builder().can_trap().start().await;
    assert_eq!(panic(&stack).await.status(), StatusCode::OK, "FailOpen");
    let received: Vec<_> = stack.servers().iter().flat_map(ModelServer::take_requests).collect();
    assert_eq!((received.len(), received[0].header(DESTINATION)), (1, None));
    until_panics(&stack, 1).await;
    drop(stack);

    let stack = Stack::builder().can_trap().picker_field("failureMode", "FailClose").start().await;
    assert_no_endpoints(panic(&stack).await, "FailClose").await;
    until_panics(&stack, 1).await;
    assert!(stack.servers().iter().all(|server| server.requests().is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_costs_no_other_request_and_no_state() {
    const HELD: u64 = 40;
    const STREAMED: usize = 20;
    const PANICS: u64 = 10;
    let stack = Stack::builder().workers(4).can_trap().start().await;
    let client = client::http1();
    let mut held = JoinSet::new();
    for _ in 0..HELD {
        held.spawn(client.post(stack.url(CHAT)).header(BEHAVE, "hang").json(&fresh_chat()).send());
    }
    let mut streamed = JoinSet::new();
    let mut long = fresh_chat();
    long["stream"] = json!(true);
    long["max_tokens"] = json!(100);
    for _ in 0..STREAMED {
        let request = client.post(stack.url(CHAT)).header(BEHAVE, "slow").json(&long).send();
        streamed.spawn(async { request.await?.error_for_status()?.text().await });
    }
    for _ in 0..PANICS {
        assert_eq!(panic(&stack).await.status(), StatusCode::OK);
        let status = stack.post(CHAT, &fresh_chat()).await.status();
        assert_eq!(status, StatusCode::OK, "after a panic");
    }
    for answer in streamed.join_all().await {
        let answer = answer.unwrap();
        assert!(answer.ends_with("data: [DONE]\n\n"), "{answer}");
    }
    until_counted(&stack, "in_flight", HELD).await;
    held.shutdown().await;
    until_counted(&stack, "in_flight", 0).await;
    until_panics(&stack, PANICS).await;
}

#[test]
fn only_the_module_for_tests_can_panic_on_request() {
    const TRIGGER: &[u8] = b"the hook panics here, as asked";
    let has_trigger = |module: PathBuf| {
        let module = fs::read(module).unwrap();
        module.windows(TRIGGER.len()).any(|bytes| bytes == TRIGGER)
    };
    assert!(has_trigger(Filter::Native.trapping_module().unwrap()));
    assert!(!has_trigger(Filter::Native.module().unwrap()));
}
