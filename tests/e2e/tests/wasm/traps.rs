//! A trap ends one VM.

use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, RELOADS, fresh_chat, fresh_prompt};
use endpoint_picker_e2e::statistics::{IN_FLIGHT, statistics, until_counted};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::BEHAVE;
use reqwest::StatusCode;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn after_a_trap_a_new_vm_has_the_state_of_the_others() {
    let stack = Stack::builder().workers(1).can_trap().start().await;
    let mut served = Vec::new();
    for _ in 0..6 {
        let body = client::chat(&fresh_prompt().repeat(4));
        served.push((stack.served_by(&stack.post(CHAT, &body).await), body));
    }
    let trap = client::http1().post(stack.url(CHAT)).header("x-test-trap", "1").json(&fresh_chat());
    assert_eq!(trap.send().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    for (server, body) in &served {
        let response = stack.post(CHAT, body).await;
        assert!(stack.servers()[*server].take_requests().iter().all(|it| it.header(DESTINATION).is_some()));
        assert_eq!(stack.served_by(&response), *server);
    }
    assert_eq!(stack.envoy().stat(RELOADS).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trap_costs_the_requests_in_flight_of_its_worker_and_no_later_ones() {
    const HELD: u64 = 40;
    const STREAMED: usize = 20;
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
    until_counted(&stack, "in_flight", HELD + STREAMED as u64).await;

    let before = stack.envoy().stat(RELOADS).await.unwrap();
    let trap = client.post(stack.url(CHAT)).header("x-test-trap", "1").json(&fresh_chat());
    assert_eq!(trap.send().await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    for request in 0..100 {
        let status = stack.post(CHAT, &fresh_chat()).await.status();
        assert_eq!(status, StatusCode::OK, "request {request} after the trap");
    }
    assert_eq!(stack.envoy().stat(RELOADS).await.unwrap(), before + 1);

    let answers = streamed.join_all().await;
    let whole = answers.iter().flatten().filter(|answer| answer.ends_with("data: [DONE]\n\n")).count();
    eprintln!("{whole} of {STREAMED} streams were not on the worker that trapped");
    assert!(whole > 0, "{answers:?}");
    let left = eventually("the counts of the VM that is gone have vanished", async || {
        match statistics(&stack).await.count(IN_FLIGHT) {
            found @ 1..HELD => Ok(found),
            found => Err(found),
        }
    })
    .await;
    eprintln!("{left} of {HELD} requests are still counted");
    held.shutdown().await;
    until_counted(&stack, "in_flight", 0).await;
}

#[test]
fn only_the_module_for_tests_can_trap_on_request() {
    const TRIGGER: &[u8] = b"the VM ends here, as asked";
    let has_trigger = |module: PathBuf| {
        let module = fs::read(module).unwrap();
        module.windows(TRIGGER.len()).any(|bytes| bytes == TRIGGER)
    };
    assert!(has_trigger(Filter::Wasm.trapping_module().unwrap()));
    assert!(!has_trigger(Filter::Wasm.module().unwrap()));
}
