//! A server that refuses requests before it works on them, and one whose work fails.

use endpoint_picker_e2e::fixture::{CHAT, forget_requests, fresh_chat, prefer, request_counts};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::Behaviour;
use reqwest::StatusCode;
use serde_json::json;

/// The server that is picked for each request.
const BAD: usize = 1;

const REQUESTS: usize = 20;

/// Attempts of a request in the shipped configurations.
const ATTEMPTS: usize = 4;

/// No server is avoided after a failure.
async fn stack() -> Stack {
    let stack = Stack::builder().agent_flags(&["--avoid-failing", "0s"]).start().await;
    prefer(&stack, BAD).await;
    stack
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_is_followed_by_the_next_and_no_request_is_lost() {
    let stack = stack().await;
    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS] {
        stack.servers()[BAD].behave(Behaviour::Status(status));
        forget_requests(&stack);
        for number in 0..REQUESTS {
            let mut chat = fresh_chat();
            chat["stream"] = json!(number % 2 == 0);
            assert_eq!(stack.post(CHAT, &chat).await.status(), StatusCode::OK, "{status}, request {number}");
        }
        let counts = request_counts(&stack);
        assert_eq!(counts[BAD], REQUESTS, "{status}: {counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), 2 * REQUESTS, "{status}: {counts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_work_is_not_repeated() {
    let stack = stack().await;
    for status in [500, 501, 502, 504, 400, 404].map(|status| StatusCode::from_u16(status).unwrap()) {
        stack.servers()[BAD].behave(Behaviour::Status(status));
        forget_requests(&stack);
        assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), status);
        assert_eq!(request_counts(&stack), [0, 1, 0], "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn when_all_servers_refuse_the_client_gets_the_last_refusal() {
    let stack = stack().await;
    for server in stack.servers() {
        server.behave(Behaviour::Status(StatusCode::TOO_MANY_REQUESTS));
    }
    forget_requests(&stack);
    let response = stack.post(CHAT, &fresh_chat()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(response.text().await.unwrap().contains("error"), "the server's own response");
    let counts = request_counts(&stack);
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), ATTEMPTS, "{counts:?}");
}
