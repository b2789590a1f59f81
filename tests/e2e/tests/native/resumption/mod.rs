//! Streams continue at another server when theirs fails.

mod agents;
mod kills;

use anyhow::Context;
use endpoint_picker_e2e::fixture::{
    CHAT, TEXT, forget_requests, fresh_chat, fresh_prompt, prefer, request_counts, until_all_go_to,
};
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::client;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::{Behaviour, Failure, ModelServer};
use reqwest::{Response, StatusCode};
use serde_json::{Value, json};

/// Tokens of a response.
const TOKENS: usize = 100;

/// The server that fails.
const FAILING: usize = 0;

/// The server that is picked when the first has failed.
const SECOND: usize = 1;

/// Streams while all servers are avoided.
const STREAMS_PAST_A_DEAD_SERVER: usize = 30;

/// Bytes of a response before the place where it is cut.
const BEGINNING: usize = 1000;

fn builder() -> Builder {
    Stack::builder().config("examples/resume-streams")
}

/// Limits the pauses of servers to a second.
fn limit_pauses(config: &mut Config) -> anyhow::Result<()> {
    config.set_picker_field("resumeStreams", json!({"cluster": "picked-server", "maxPauseSeconds": 1}))
}

fn streamed(mut request: Value) -> Value {
    request["stream"] = true.into();
    request["max_tokens"] = TOKENS.into();
    request
}

async fn post(url: String, request: &Value) -> anyhow::Result<Response> {
    let response = client::http1().post(url).json(request).send().await?;
    anyhow::ensure!(response.status() == StatusCode::OK, "{}", response.status());
    Ok(response)
}

/// A response as its client has read it.
#[derive(Debug)]
struct Received {
    body: String,
    events: Vec<Value>,
    is_done: bool,
    text: String,
}

impl Received {
    fn of(body: String) -> anyhow::Result<Self> {
        let data: Vec<&str> =
            body.split_terminator("\n\n").filter_map(|event| event.strip_prefix("data: ")).collect();
        let (done, events): (Vec<&str>, Vec<&str>) = data.into_iter().partition(|data| *data == "[DONE]");
        let events: Vec<Value> = events.into_iter().map(str::parse).collect::<Result<_, _>>()?;
        let word = |event: &Value| {
            let choice = &event["choices"][0];
            choice["delta"]["content"].as_str().or(choice["text"].as_str()).map(str::to_owned)
        };
        let text = events.iter().filter_map(word).collect();
        let is_done = done.len() == 1 && body.ends_with("data: [DONE]\n\n");
        Ok(Self { body, events, is_done, text })
    }

    fn reasons(&self) -> Vec<&Value> {
        let reasons = self.events.iter().map(|event| &event["choices"][0]["finish_reason"]);
        reasons.filter(|reason| !reason.is_null()).collect()
    }
}

/// Sends a request and reads its events; an error if the stream is cut.
async fn receive(url: String, request: &Value) -> anyhow::Result<Received> {
    Received::of(post(url, request).await?.text().await?)
}

/// The response that a server gives without Envoy.
async fn undisturbed(server: &ModelServer, path: &str, request: &Value) -> Received {
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
    assert_eq!(received.reasons(), expected.reasons());
}

async fn count(stack: &Stack, metric: &str) -> u64 {
    statistics(stack).await.count(&format!("{metric}{{pool=\"default\"}}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_continues_after_every_kind_of_failure() {
    let stack = builder().change(limit_pauses).start().await;
    prefer(&stack, FAILING).await;
    let failing = &stack.servers()[FAILING];
    for path in [CHAT, TEXT] {
        for failure in [Failure::Close, Failure::Reset, Failure::End, Failure::Stall] {
            let request = if path == CHAT { fresh_chat() } else { client::completion(&fresh_prompt()) };
            let mut request = streamed(request);
            request["stream_options"] = json!({"include_usage": true});
            let expected = undisturbed(failing, path, &request).await;
            // Its last failure is over.
            until_all_go_to(&stack, FAILING).await;
            forget_requests(&stack);
            let letter = expected.body[BEGINNING..].find('ü').expect("a text of many words has all of them");
            // In the middle of an event, and of a letter.
            failing.behave(Behaviour::Fails(failure, BEGINNING + letter + 1));
            let received = receive(stack.url(path), &request).await.unwrap();
            failing.behave(Behaviour::Answer);
            assert_whole(&received, &expected);
            let usage = &received.events.last().unwrap()["usage"];
            assert_eq!(usage["completion_tokens"], TOKENS, "{failure:?}");
            let prompt = usage["prompt_tokens"].as_u64().unwrap();
            assert_eq!(usage["total_tokens"].as_u64(), Some(prompt + TOKENS as u64));
            let parts = request_counts(&stack);
            assert_eq!(parts.iter().sum::<usize>(), 2, "{failure:?}: {parts:?}");
            assert_eq!(parts[FAILING], 1, "{failure:?}: the server is avoided");
        }
    }
}

/// Servers of which the failing one is picked first, then [`SECOND`], as far as they have not failed a
/// request: no server is avoided.
async fn in_order() -> Stack {
    let stack = builder().agent_flags(&["--avoid-failing", "0s"]).start().await;
    prefer(&stack, FAILING).await;
    stack.servers()[SECOND].update_metrics(|metrics| metrics.waiting = 1);
    stack.servers()[FAILING].update_metrics(|metrics| metrics.waiting = 9);
    until_all_go_to(&stack, SECOND).await;
    stack.servers()[FAILING].update_metrics(|metrics| metrics.waiting = 0);
    until_all_go_to(&stack, FAILING).await;
    forget_requests(&stack);
    stack
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_a_continuation_is_followed_by_the_next_one() {
    let stack = in_order().await;
    let failing = &stack.servers()[FAILING];
    for status in [503, 429, 500, 502].map(|status| StatusCode::from_u16(status).unwrap()) {
        let request = streamed(fresh_chat());
        let expected = undisturbed(failing, CHAT, &request).await;
        forget_requests(&stack);
        failing.behave(Behaviour::Fails(Failure::Close, BEGINNING));
        stack.servers()[SECOND].behave(Behaviour::Status(status));
        let received = receive(stack.url(CHAT), &request).await.unwrap();
        assert_whole(&received, &expected);
        assert_eq!(request_counts(&stack), [1, 1, 1], "{status}: each server once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_before_the_first_response_goes_to_the_next_server_and_an_error_of_the_work_does_not() {
    let stack = in_order().await;
    let failing = &stack.servers()[FAILING];
    for status in [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS] {
        forget_requests(&stack);
        failing.behave(Behaviour::Status(status));
        assert!(receive(stack.url(CHAT), &streamed(fresh_chat())).await.unwrap().is_done, "{status}");
        assert_eq!(request_counts(&stack), [1, 1, 0], "{status}");
    }
    forget_requests(&stack);
    failing.behave(Behaviour::Status(StatusCode::INTERNAL_SERVER_ERROR));
    let response = stack.post(CHAT, &streamed(fresh_chat())).await;
    assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
    assert!(response.text().await.unwrap().contains("error"), "the server's own response");
    assert_eq!(request_counts(&stack), [1, 0, 0]);
}

/// A server that is dead, while all servers are avoided, costs no stream.
#[tokio::test(flavor = "multi_thread")]
async fn new_streams_go_past_a_dead_server_while_all_are_avoided() {
    let stack = builder().agent_flags(&["--avoid-failing", "60s"]).start().await;
    prefer(&stack, FAILING).await;
    let [dead, healthy @ ..] = stack.servers() else { panic!("there are servers") };
    dead.refuse().await.unwrap();
    assert!(receive(stack.url(CHAT), &streamed(fresh_chat())).await.unwrap().is_done);
    for _ in 0..STREAMS_PAST_A_DEAD_SERVER {
        for server in healthy {
            server.behave(Behaviour::Status(StatusCode::INTERNAL_SERVER_ERROR));
        }
        for _ in healthy {
            let response = stack.post(CHAT, &fresh_chat()).await;
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
        for server in healthy {
            server.behave(Behaviour::Answer);
        }
        assert!(receive(stack.url(CHAT), &streamed(fresh_chat())).await.unwrap().is_done);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_at_which_two_servers_died_is_not_sent_to_a_third() {
    let stack = builder().start().await;
    for server in stack.servers() {
        server.behave(Behaviour::Fails(Failure::Close, 10));
    }
    receive(stack.url(CHAT), &streamed(fresh_chat())).await.unwrap_err();
    assert_eq!(request_counts(&stack).iter().sum::<usize>(), 2);
    eventually("the cut is counted", async || {
        let cuts =
            statistics(&stack).await.count("cut_streams{pool=\"default\",reason=\"two_servers_died\"}");
        anyhow::ensure!(cuts == 1, "{cuts}");
        anyhow::Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_access_log_shows_the_seam_and_the_agent_counts_it() {
    let stack = builder().with_shipped_access_log().start().await;
    prefer(&stack, FAILING).await;
    let failing = &stack.servers()[FAILING];
    failing.behave(Behaviour::Fails(Failure::Close, BEGINNING));
    receive(stack.url(CHAT), &streamed(fresh_chat())).await.unwrap();
    let line = eventually("the line is in the access log", async || {
        let log = stack.envoy().log()?;
        let mut lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| line["resumptions"] == "1").context("no resumption")
    })
    .await;
    let server = line["header"].as_str().and_then(|list| list.split(',').next());
    let others = stack.servers().iter().skip(FAILING + 1);
    assert!(
        others.map(ModelServer::endpoint).any(|other| server == Some(&*other)),
        "the server that has continued it: {line}"
    );
    eventually("the agent has the counts", async || {
        let url = format!("http://{}/v1/pools/default", stack.agent_address());
        let status: Value = client::http1().get(url).send().await?.json().await?;
        let expected = json!({"resumable": 1, "resumed": 1, "cut": {}, "unresumable": {}});
        anyhow::ensure!(status["proxies"][0]["resumptions"] == expected, "{status}");
        anyhow::Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_whose_continuations_die_too_is_cut_and_other_requests_pass() {
    let stack = builder().start().await;
    // Each server gives five words before it dies. Two could both be blanks, which the next server writes
    // again: then no word would be new, and two servers would have died at the same text.
    for server in stack.servers() {
        server.behave(Behaviour::Fails(Failure::Close, BEGINNING));
    }
    let mut response = post(stack.url(CHAT), &streamed(fresh_chat())).await.unwrap();
    let mut body = Vec::new();
    let end = loop {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            end => break end,
        }
    };
    end.unwrap_err();
    let body = String::from_utf8(body).unwrap();
    let last = body.trim_end().rsplit_once("data: ").unwrap().1.parse::<Value>().unwrap();
    assert!(last["error"]["message"].as_str().unwrap().ends_with("too_many_resumptions"), "{last}");
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
