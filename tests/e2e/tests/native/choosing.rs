//! The configurations of `examples/choosing` with flow control.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat, prefer};
use endpoint_picker_e2e::statistics::{statistics, until_counted};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use reqwest::StatusCode;
use std::fs;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn flow_control_picks_as_the_default_and_holds_requests_while_the_servers_are_saturated() {
    let stack = start("flow-control").await;
    // Two servers of three with a queue at the threshold do not saturate the pool.
    prefer(&stack, 1).await;
    holds_requests_while_the_servers_are_saturated(&stack).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expected_latency_with_flow_control_holds_requests_while_the_servers_are_saturated() {
    let stack = start("expected-latency-flow-control").await;
    holds_requests_while_the_servers_are_saturated(&stack).await;
}

async fn start(name: &str) -> Stack {
    let file = tools::root().join("examples/choosing").join(format!("{name}.yaml"));
    Stack::builder().manifests(&fs::read_to_string(file).unwrap()).start().await
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
