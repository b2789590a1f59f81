//! The recommended configuration with flow control.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat};
use endpoint_picker_e2e::statistics::{statistics, until_counted};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::shipped::rules;
use endpoint_picker_harness::stack::Stack;
use reqwest::StatusCode;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn flow_control_holds_requests_while_the_servers_are_saturated_also_with_all_switches() {
    for switches in [&["flow-control"][..], &["flow-control", "latency-limits"]] {
        let stack = Stack::builder().manifests(&rules::recommended(switches).unwrap()).start().await;
        holds_requests_while_the_servers_are_saturated(&stack).await;
    }
}

async fn holds_requests_while_the_servers_are_saturated(stack: &Stack) {
    for server in stack.servers() {
        server.update_metrics(|metrics| metrics.waiting = 50);
    }
    let mut answers = JoinSet::new();
    eventually("a request waits", async || {
        // Requests continue until the filter has the readings.
        answers.spawn(client::http1().post(stack.url(CHAT)).json(&fresh_chat()).send());
        let queued = statistics(stack).await.sum("queued");
        anyhow::ensure!(queued > 0, "none waits");
        anyhow::Ok(())
    })
    .await;
    for server in stack.servers() {
        server.update_metrics(|metrics| metrics.waiting = 0);
    }
    for answer in answers.join_all().await {
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }
    until_counted(stack, "queued", 0).await;
}
