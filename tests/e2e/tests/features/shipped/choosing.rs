//! The configurations of `examples/choosing`; those with flow control are tested with the native module,
//! which alone has queues.

use endpoint_picker_e2e::fixture::{CHAT, forget_requests, fresh_chat, prefer, request_counts};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::{Behaviour, Lora};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often in a row: with three servers, a random choice would do the same once in 19 683 times.
const TIMES: usize = 10;

async fn start(name: &str) -> Stack {
    let file = tools::root().join("examples/choosing").join(format!("{name}.yaml"));
    let manifests = fs::read_to_string(file).unwrap();
    let builder = Stack::builder().manifests(&manifests).agent_flags(&["--allow-experimental-plugins"]);
    builder.start().await
}

/// Sends a chat in this session, if any, and returns the server that answered.
async fn ask(stack: &Stack, body: &Value, session: Option<&str>) -> usize {
    let mut request = client::http1().post(stack.url(CHAT)).json(body);
    if let Some(session) = session {
        request = request.header("x-session-id", session);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    stack.served_by(&response)
}

#[test]
fn every_configuration_is_tested() {
    let files = fs::read_dir(tools::root().join("examples/choosing")).unwrap();
    let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    let expected = [
        "default",
        "expected-latency-flow-control",
        "expected-latency",
        "flow-control",
        "latency-limits",
        "lmetric",
        "lora",
        "session",
        "token-aware",
    ];
    assert_eq!(names, expected.map(|name| format!("{name}.yaml")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_goes_to_the_idle_server() {
    let stack = start("default").await;
    for best in [2, 0] {
        prefer(&stack, best).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_aware_repeats_a_prompt_on_its_server_and_spares_the_one_with_most_tokens() {
    repeats_a_prompt_and_spares_the_server_with_most_tokens("token-aware").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lmetric_repeats_a_prompt_on_its_server_and_spares_the_one_with_most_tokens() {
    repeats_a_prompt_and_spares_the_server_with_most_tokens("lmetric").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn expected_latency_repeats_a_prompt_on_its_server_and_spares_the_one_with_most_tokens() {
    repeats_a_prompt_and_spares_the_server_with_most_tokens("expected-latency").await;
}

async fn repeats_a_prompt_and_spares_the_server_with_most_tokens(configuration: &str) {
    let stack = start(configuration).await;
    let known = client::chat(&"a long prompt that is known ".repeat(150));
    let first = ask(&stack, &known, None).await;
    for _ in 0..TIMES {
        assert_eq!(ask(&stack, &known, None).await, first);
    }

    for server in stack.servers() {
        server.behave(Behaviour::Hang);
    }
    forget_requests(&stack);
    let (url, long) = (stack.url(CHAT), client::chat(&"and another one ".repeat(500)));
    let held = tokio::spawn(async move { client::http1().post(url).json(&long).send().await });
    eventually("a server holds the long prompt", async || {
        let counts = request_counts(&stack);
        if counts.iter().sum::<usize>() == 1 { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    let busy = request_counts(&stack).iter().position(|count| *count == 1).unwrap();
    for server in stack.servers() {
        server.behave(Behaviour::default());
    }
    for _ in 0..TIMES {
        assert_ne!(ask(&stack, &fresh_chat(), None).await, busy);
    }
    held.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn latency_limits_refuses_what_no_server_would_keep() {
    let stack = start("latency-limits").await;
    for server in stack.servers() {
        server.update_metrics(|metrics| (metrics.running, metrics.kv_cache_usage) = (1, 0.5));
    }
    let sent = AtomicUsize::new(0);
    let limited = async |milliseconds: &str| {
        // No server has it cached.
        let prompt = format!("{} and a long prompt ", sent.fetch_add(1, Ordering::Relaxed)).repeat(500);
        let request = client::http1()
            .post(stack.url(CHAT))
            .header("x-llm-d-slo-ttft-ms", milliseconds)
            .header("x-llm-d-inference-objective", "sheddable");
        request.json(&client::chat(&prompt)).send().await.unwrap()
    };
    eventually("a request that no server would serve in time is refused", async || {
        let response = limited("1").await;
        anyhow::ensure!(response.status() == StatusCode::TOO_MANY_REQUESTS, "{}", response.status());
        anyhow::ensure!(response.headers().contains_key("retry-after"), "no time to retry after");
        anyhow::Ok(())
    })
    .await;
    assert_eq!(limited("60000").await.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn lora_goes_where_the_adapter_runs() {
    let stack = start("lora").await;
    for (index, server) in stack.servers().iter().enumerate() {
        let running = if index == 1 { ["sql", "support"] } else { ["legal", "support"] };
        let running = running.map(str::to_owned).into();
        server.update_metrics(|metrics| metrics.lora = Some(Lora { max: 2, running, waiting: vec![] }));
    }
    eventually("all requests for the adapter go to its server", async || {
        for _ in 0..TIMES {
            let mut body = fresh_chat();
            body["model"] = json!("sql");
            let served = ask(&stack, &body, None).await;
            anyhow::ensure!(served == 1, "server {served} got one");
        }
        anyhow::Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_stay_with_their_server() {
    let stack = start("session").await;
    for session in ["alice", "bob"] {
        let first = ask(&stack, &fresh_chat(), Some(session)).await;
        for _ in 0..TIMES {
            assert_eq!(ask(&stack, &fresh_chat(), Some(session)).await, first);
        }
    }
}
