//! An agent that requires a client certificate and a token, with the configuration of the shipped example.

use endpoint_picker_e2e::fixture::{CHAT, assert_no_endpoints, fresh_chat, prefer};
use endpoint_picker_e2e::secured_agent::SecuredAgent;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use reqwest::StatusCode;
use serde_json::Value;
use std::fs;

/// Where the shipped example looks for its files.
const SHIPPED_FOLDER: &str = "/etc/endpoint-picker";
const SHIPPED_PORT: &str = "9095";
const SHIPPED_TOKEN: &str = "replace-me";

/// A stack whose Envoy shows this token.
async fn stack(secured: &SecuredAgent, token: &str, failure_mode: &str) -> Stack {
    hand_out(secured, token);
    let differences = shipped("differences.yaml")
        .replace(SHIPPED_FOLDER, secured.path("").to_str().unwrap().trim_end_matches('/'))
        .replace(SHIPPED_PORT, &secured.address().port().to_string());
    let differences: Value = serde_saphyr::from_str(&differences).unwrap();
    let cluster = differences[0]["value"].clone();
    secured
        .start_stack(Stack::builder().agent_cluster(cluster).picker_field("failureMode", failure_mode))
        .await
}

/// Moves another token into the place where Envoy looks for it.
fn hand_out(secured: &SecuredAgent, token: &str) {
    let text = shipped("token.yaml");
    assert!(text.contains(SHIPPED_TOKEN));
    let new = secured.path("token.new");
    fs::write(&new, text.replace(SHIPPED_TOKEN, token)).unwrap();
    fs::rename(new, secured.path("token.yaml")).unwrap();
}

fn shipped(file: &str) -> String {
    fs::read_to_string(tools::root().join("examples/secured-agent").join(file)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picker_gets_readings_over_mutual_tls_with_a_token() {
    let secured = SecuredAgent::start().await;
    let stack = stack(&secured, "right", "FailOpen").await;
    stack.wait_until_picking().await;
    prefer(&stack, 1).await;

    // The agent's word continues counting while one token takes the place of another.
    secured.set_tokens("right\nnext\n");
    hand_out(&secured, "next");
    prefer(&stack, 2).await;
    secured.set_tokens("next\n");
    prefer(&stack, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_wrong_token_the_failure_mode_counts_and_the_log_says_why_until_it_is_right() {
    let secured = SecuredAgent::start().await;
    let stack = stack(&secured, "wrong", "FailClose").await;
    let reason = "the agent answered 401: \"{\\\"error\\\":\\\"a token of --bearer-token-file is required";
    eventually("the log has the reason", async || {
        let log = stack.envoy().log().unwrap();
        if log.contains(reason) { Ok(()) } else { Err(log) }
    })
    .await;
    assert_no_endpoints(stack.post(CHAT, &fresh_chat()).await, "without a snapshot").await;
    for log in [stack.envoy().log().unwrap(), secured.output()] {
        assert!(!log.contains("Bearer wrong"), "{log}");
    }

    hand_out(&secured, "right");
    stack.wait_until_picking().await;
    assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
}
