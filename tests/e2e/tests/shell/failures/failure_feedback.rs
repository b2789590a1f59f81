//! After a failed request, every worker avoids the endpoint for a short time.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat, prefer};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::Behaviour;
use reqwest::StatusCode;

const BAD: usize = 1;

/// The pick goes to [`BAD`], and no agent sends the picker further readings.
async fn stack() -> Stack {
    // Long enough for a handful of requests on a busy machine.
    let mut stack = Stack::builder().workers(4).agent_flags(&["--avoid-failing", "2s"]).start().await;
    prefer(&stack, BAD).await;
    stack.kill_agent();
    stack
}

async fn status(stack: &Stack) -> StatusCode {
    stack.post(CHAT, &fresh_chat()).await.status()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_refused_connection_the_next_requests_of_all_workers_go_elsewhere() {
    let stack = stack().await;
    stack.servers()[BAD].refuse().await.unwrap();
    assert_eq!(status(&stack).await, StatusCode::OK, "Envoy found another");
    let paths: Vec<String> = (0..8).map(|n| format!("{CHAT}?after={n}")).collect();
    for path in &paths {
        assert_eq!(stack.post(path, &fresh_chat()).await.status(), StatusCode::OK);
    }
    for path in &paths {
        let entry = stack.logged(path).await;
        assert_ne!(entry["header"], stack.servers()[BAD].endpoint(), "{entry}");
        assert_eq!(entry["attempts"], 1, "{entry}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_5xx_or_resets_is_avoided_and_used_again_later() {
    let stack = stack().await;
    let bad = &stack.servers()[BAD];
    // What was refused, or reset before its response began, Envoy sends to another server.
    for (behaviour, answer) in [
        (Behaviour::Status(StatusCode::INTERNAL_SERVER_ERROR), StatusCode::INTERNAL_SERVER_ERROR),
        (Behaviour::Status(StatusCode::SERVICE_UNAVAILABLE), StatusCode::OK),
        (Behaviour::Reset, StatusCode::OK),
    ] {
        eventually("the preferred server is picked", async || {
            bad.take_requests();
            status(&stack).await;
            if bad.requests().is_empty() { Err("it was not") } else { Ok(()) }
        })
        .await;
        bad.behave(behaviour);
        assert_eq!(status(&stack).await, answer);
        // A reset on a connection that has rested for 4 s is forgiven, once by each worker.
        eventually("the server is avoided", async || {
            bad.take_requests();
            status(&stack).await;
            if bad.requests().is_empty() { Ok(()) } else { Err("it was picked") }
        })
        .await;
        for _ in 0..8 {
            assert_eq!(status(&stack).await, StatusCode::OK, "{behaviour:?}: the others serve");
        }
        assert_eq!(bad.requests().len(), 0, "{behaviour:?}");
        bad.behave(Behaviour::Answer);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_own_errors_and_failures_of_all_change_nothing() {
    let stack = stack().await;
    stack.servers()[BAD].behave(Behaviour::Status(StatusCode::BAD_REQUEST));
    for _ in 0..8 {
        assert_eq!(status(&stack).await, StatusCode::BAD_REQUEST, "it is picked as before");
    }
    for server in stack.servers() {
        server.behave(Behaviour::Status(StatusCode::INTERNAL_SERVER_ERROR));
    }
    for _ in 0..16 {
        assert_eq!(status(&stack).await, StatusCode::INTERNAL_SERVER_ERROR, "one of the servers answers");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_server_is_picked_when_no_other_is_left() {
    let stack = Stack::builder().servers(1).start().await;
    stack.servers()[0].behave(Behaviour::Status(StatusCode::INTERNAL_SERVER_ERROR));
    for _ in 0..8 {
        assert_eq!(status(&stack).await, StatusCode::INTERNAL_SERVER_ERROR);
    }
    stack.servers()[0].behave(Behaviour::Answer);
    assert_eq!(status(&stack).await, StatusCode::OK);
}
