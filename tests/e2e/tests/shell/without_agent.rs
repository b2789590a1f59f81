//! No agent: the filter's own configuration lists the servers.

use endpoint_picker_e2e::fixture::{CHAT, forget_requests, fresh_prompt, request_counts};
use endpoint_picker_e2e::steady_load::SteadyLoad;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::ModelServer;
use reqwest::StatusCode;
use serde_json::Value;
use std::net::SocketAddr;

/// How often in a row: with three servers, a random choice would do the same once in 19 683 times.
const TIMES: usize = 10;

/// Long prompts, each with the server that it was sent to.
async fn send_prompts(stack: &Stack) -> Vec<(Value, usize)> {
    let mut sent = Vec::new();
    for _ in 0..6 {
        let body = client::chat(&fresh_prompt().repeat(40));
        let server = stack.served_by(&stack.post(CHAT, &body).await);
        sent.push((body, server));
    }
    sent
}

/// Checks that these prompts go to their servers again.
async fn assert_repeated(stack: &Stack, sent: &[(Value, usize)]) {
    for (body, server) in sent {
        for _ in 0..TIMES {
            assert_eq!(stack.served_by(&stack.post(CHAT, body).await), *server);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_repeat_through_changes_of_the_list_and_a_dead_server_is_avoided() {
    let mut stack = Stack::builder().endpoints_in_picker().listeners_in_file().start().await;
    let addresses: Vec<SocketAddr> = stack.servers().iter().map(ModelServer::address).collect();
    assert_repeated(&stack, &send_prompts(&stack).await).await;

    // Envoy's cluster keeps all three, so only the picker leaves one out.
    let load = SteadyLoad::start(&stack);
    for count in [2, 3, 2] {
        stack.change_listeners(|config| config.list_endpoints(&addresses[..count])).await;
    }
    load.stop().await;
    let sent = send_prompts(&stack).await;
    forget_requests(&stack);
    assert_repeated(&stack, &sent).await;
    assert_eq!(request_counts(&stack)[2], 0, "it is not on the list");
    stack.change_listeners(|config| config.list_endpoints(&addresses)).await;
    assert_repeated(&stack, &sent).await;

    let (body, dead) = &sent[0];
    let dead = &stack.servers()[*dead];
    dead.refuse().await.unwrap();
    let mut requests = 0;
    eventually("a prompt of the dead server goes elsewhere at the first attempt", async || {
        requests += 1;
        let path = format!("{CHAT}?{requests}");
        assert_eq!(stack.post(&path, body).await.status(), StatusCode::OK, "a retry finds another server");
        let entry = stack.logged(&path).await;
        anyhow::ensure!(entry["header"] != dead.endpoint() && entry["attempts"] == 1, "{entry}");
        anyhow::Ok(())
    })
    .await;
}
