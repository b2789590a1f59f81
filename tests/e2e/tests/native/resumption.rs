//! Streams continue at another server when theirs dies.

use std::time::Duration;

use endpoint_picker_e2e::fixture::{
    CHAT, TEXT, forget_requests, fresh_chat, fresh_prompt, prefer, until_all_go_to,
};
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::{Behaviour, Failure};
use futures_util::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};

const STREAMS: usize = 200;
const WORDS: usize = 40;

/// The server that fails, and the byte of its responses after which it does: in the middle of their text.
const FAILING: usize = 0;
const FAILS_AFTER: usize = 5000;

fn builder() -> Builder {
    Stack::builder().config("examples/resume-streams")
}

fn streamed(mut request: Value) -> Value {
    request["stream"] = true.into();
    request["max_tokens"] = WORDS.into();
    request
}

/// A response as its client has read it.
#[derive(Debug)]
struct Received {
    events: Vec<Value>,
    is_done: bool,
    text: String,
}

/// Sends a request and reads its events; an error if the stream is cut.
async fn receive(url: String, request: &Value) -> anyhow::Result<Received> {
    let response = client::http1().post(url).json(request).send().await?;
    anyhow::ensure!(response.status() == StatusCode::OK, "{}", response.status());
    let body = response.text().await?;
    let data: Vec<&str> =
        body.split_terminator("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
    let (done, events): (Vec<&str>, Vec<&str>) = data.into_iter().partition(|data| *data == "[DONE]");
    let events: Vec<Value> = events.into_iter().map(str::parse).collect::<Result<_, _>>()?;
    let word = |event: &Value| {
        let choice = &event["choices"][0];
        choice["delta"]["content"].as_str().or(choice["text"].as_str()).map(str::to_owned)
    };
    let text = events.iter().filter_map(word).collect();
    Ok(Received { events, is_done: done.len() == 1 && body.ends_with("data: [DONE]\n\n"), text })
}

/// The response that a server gives without Envoy.
async fn undisturbed(stack: &Stack, path: &str, request: &Value) -> Received {
    let server = &stack.servers()[0];
    server.behave(Behaviour::Answer);
    receive(format!("http://{}{path}", server.endpoint()), request).await.unwrap()
}

/// Checks that a resumed response is one response, with the text of an undisturbed one.
fn assert_whole(received: &Received, expected: &Received) {
    assert_eq!(received.text, expected.text);
    assert!(received.is_done);
    for member in ["id", "created", "model"] {
        let first = &received.events[0][member];
        assert!(received.events.iter().all(|event| event[member] == *first), "{member}: {received:?}");
    }
    let reasons = |received: &Received| -> Vec<Value> {
        let reasons = received.events.iter().map(|event| event["choices"][0]["finish_reason"].clone());
        reasons.filter(|reason| !reason.is_null()).collect()
    };
    assert_eq!(reasons(received), reasons(expected));
}

async fn count(stack: &Stack, metric: &str) -> u64 {
    statistics(stack).await.count(&format!("{metric}{{pool=\"default\"}}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_stream_is_truncated_when_a_server_dies() {
    let stack = builder().start().await;
    let chat = streamed(fresh_chat());
    let expected = undisturbed(&stack, CHAT, &chat).await;
    for server in stack.servers() {
        server.behave(Behaviour::SlowChunks(Duration::from_millis(100)));
        server.take_requests();
    }
    let url = stack.url(CHAT);
    let streams = (0..STREAMS).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { receive(url, &streamed(fresh_chat())).await })
    });
    let streams: Vec<_> = streams.collect();
    let dying = &stack.servers()[1];
    eventually("the server that dies has a share of the streams", async || {
        let all: usize = stack.servers().iter().map(|server| server.requests().len()).sum();
        anyhow::ensure!(all == STREAMS, "{all}");
        anyhow::Ok(())
    })
    .await;
    let share = dying.requests().len() as u64;
    assert!(share > 0);
    dying.refuse().await.unwrap();
    for received in join_all(streams).await {
        let received = received.unwrap().unwrap();
        assert_whole(&received, &expected);
    }
    eventually("resumptions are counted", async || {
        let resumed = count(&stack, "resumed_streams").await;
        anyhow::ensure!(resumed == share, "{resumed} of {share}");
        anyhow::Ok(())
    })
    .await;
    assert_eq!(count(&stack, "resumable_streams").await, STREAMS as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_continues_after_every_kind_of_failure() {
    const RETRIES: &str = "/static_resources/listeners/1/filter_chains/0/filters/0/typed_config/route_config\
                           /virtual_hosts/0/routes/0/route/retry_policy";
    let retries =
        json!({"retry_on": "connect-failure,reset", "num_retries": 2, "per_try_idle_timeout": "0.5s"});
    let stack = builder().value_at(RETRIES, retries).start().await;
    prefer(&stack, FAILING).await;
    for path in [CHAT, TEXT] {
        for failure in [Failure::Close, Failure::End, Failure::Stall] {
            let request = if path == CHAT { fresh_chat() } else { client::completion(&fresh_prompt()) };
            let mut request = streamed(request);
            request["stream_options"] = json!({"include_usage": true});
            let expected = undisturbed(&stack, path, &request).await;
            // Its last failure is over.
            until_all_go_to(&stack, FAILING).await;
            forget_requests(&stack);
            stack.servers()[FAILING].behave(Behaviour::Fails(failure, FAILS_AFTER));
            let received = receive(stack.url(path), &request).await.unwrap();
            stack.servers()[FAILING].behave(Behaviour::Answer);
            assert_whole(&received, &expected);
            let usage = &received.events.last().unwrap()["usage"];
            assert_eq!(usage["completion_tokens"], WORDS, "{failure:?}");
            let prompt = usage["prompt_tokens"].as_u64().unwrap();
            assert_eq!(usage["total_tokens"].as_u64(), Some(prompt + WORDS as u64));
            let parts: Vec<usize> = stack.servers().iter().map(|server| server.requests().len()).collect();
            assert_eq!(parts.iter().sum::<usize>(), 2, "{failure:?}: {parts:?}");
            if failure != Failure::End {
                assert_eq!(parts[FAILING], 1, "{failure:?}: the server is avoided");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_continuations_die_too_is_cut_and_other_requests_pass() {
    let stack = builder().start().await;
    for server in stack.servers() {
        server.behave(Behaviour::Fails(Failure::Close, 500));
    }
    receive(stack.url(CHAT), &streamed(fresh_chat())).await.unwrap_err();
    eventually("the cut is counted", async || {
        let cuts =
            statistics(&stack).await.count("cut_streams{pool=\"default\",reason=\"too_many_resumptions\"}");
        anyhow::ensure!(cuts == 1, "{cuts}");
        anyhow::Ok(())
    })
    .await;
    for server in stack.servers() {
        server.behave(Behaviour::Answer);
    }
    let response = stack.post(CHAT, &fresh_chat()).await;
    assert_eq!(response.status(), StatusCode::OK);
    let several = {
        let mut chat = streamed(fresh_chat());
        chat["n"] = 2.into();
        chat
    };
    assert!(receive(stack.url(CHAT), &several).await.unwrap().is_done);
    assert_eq!(count(&stack, "resumable_streams").await, 1);
}
