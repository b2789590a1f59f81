//! The proof that responses give about their servers, and the first token of a stream.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat, prefer};
use endpoint_picker_e2e::statistics::{complete_statistics, statistics};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::subset_hint;
use endpoint_picker_model_server::{BEHAVE, Behaviour};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;

const BAD: usize = 1;

/// The pick goes to [`BAD`], and no agent sends the picker further readings.
async fn stack() -> Stack {
    // Long enough for a handful of requests on a busy machine.
    let mut stack = Stack::builder().workers(2).agent_flags(&["--avoid-failing", "2s"]).start().await;
    prefer(&stack, BAD).await;
    stack.kill_agent();
    stack
}

fn streamed() -> Value {
    let mut chat = fresh_chat();
    chat["stream"] = true.into();
    chat
}

/// The generations that [`BAD`] has received.
fn generations(stack: &Stack) -> usize {
    stack.servers()[BAD].requests().iter().filter(|request| request.method == Method::POST).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_under_status_200_is_counted_and_its_server_is_avoided() {
    let stack = stack().await;
    let bad = &stack.servers()[BAD];
    bad.behave(Behaviour::ErrorEvent);
    bad.take_requests();
    let response = stack.post(CHAT, &streamed()).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert!(response.text().await.unwrap().contains("scripted to fail"), "the client gets it");
    for _ in 0..4 {
        let text = stack.post(CHAT, &streamed()).await.text().await.unwrap();
        assert!(!text.contains("scripted to fail"), "{text}");
    }
    assert_eq!(generations(&stack), 1);
    eventually("the error is counted", async || {
        let statistics = statistics(&stack).await;
        match statistics.count(r#"response_errors{pool="default",side="server"}"#) {
            1 => Ok(()),
            found => Err(found),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_answers_all_but_generations_stays_avoided() {
    let stack = Stack::builder()
        .workers(2)
        .agent_flags(&["--avoid-failing", "60s"])
        .filter_before_picker(subset_hint::filter());
    let mut stack = stack.start().await;
    prefer(&stack, BAD).await;
    stack.kill_agent();
    let client = client::http1();
    let bad = &stack.servers()[BAD];
    bad.behave(Behaviour::Status(StatusCode::INTERNAL_SERVER_ERROR));
    assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::INTERNAL_SERVER_ERROR);
    // Requests that no other server may serve get past the avoidance: a list of models, and a chat that is
    // refused.
    let only_bad = subset_hint::list(&[bad.endpoint()]);
    for (request, behaviour, status) in [
        (client.get(stack.url("/v1/models")), "slow", StatusCode::OK),
        (client.post(stack.url(CHAT)).json(&fresh_chat()), "400", StatusCode::BAD_REQUEST),
    ] {
        bad.take_requests();
        for _ in 0..6 {
            let request = request.try_clone().unwrap().header(subset_hint::HEADER, &only_bad);
            assert_eq!(request.header(BEHAVE, behaviour).send().await.unwrap().status(), status);
        }
        assert_eq!(bad.take_requests().len(), 6);
        for _ in 0..8 {
            let response = stack.post(CHAT, &fresh_chat()).await;
            assert_eq!(
                response.status(),
                StatusCode::OK,
                "after a response of {status}, another server serves"
            );
        }
    }
    // A generation that it serves ends the avoidance.
    let chat = client.post(stack.url(CHAT)).json(&fresh_chat()).header(subset_hint::HEADER, &only_bad);
    assert_eq!(chat.header(BEHAVE, "slow").send().await.unwrap().status(), StatusCode::OK);
    bad.behave(Behaviour::Answer);
    eventually("the server is picked again", async || {
        let response = stack.post(CHAT, &fresh_chat()).await;
        if stack.served_by(&response) == BAD { Ok(()) } else { Err("it is not") }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_to_the_first_token_of_the_responses_api_ends_with_its_first_text() {
    let stack = Stack::builder().servers(1).start().await;
    let sum = async || {
        let statistics = complete_statistics(&stack).await;
        statistics.value::<f64>(r#"first_byte_ms_sum{pool="default"}"#).unwrap_or(0.0)
    };
    let before = sum().await;
    stack.servers()[0].behave(Behaviour::SlowChunks(Duration::from_millis(500)));
    let body = json!({"model": "m", "input": "hi", "stream": true});
    let text = stack.post("/v1/responses", &body).await.text().await.unwrap();
    assert!(text.contains("response.in_progress") && text.contains("response.completed"), "{text}");
    eventually("the time is a statistic", async || {
        let took = sum().await - before;
        // Envoy keeps two digits of each value in a histogram.
        if took >= 450.0 { Ok(()) } else { Err(format!("it is {took} ms")) }
    })
    .await;
}
