//! The recommended configuration of the picker and its switches; flow control is tested with the native
//! module, which alone has queues.

use endpoint_picker_e2e::fixture::{CHAT, forget_requests, fresh_chat, request_counts};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::shipped::rules;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::Behaviour;
use reqwest::StatusCode;
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How often in a row: with three servers, a random choice would do the same once in 19 683 times.
const TIMES: usize = 10;

async fn start(switches: &[&str]) -> Stack {
    Stack::builder().manifests(&rules::recommended(switches).unwrap()).start().await
}

/// Sends a chat, and returns the server that answered.
async fn ask(stack: &Stack, body: &Value) -> usize {
    let response = client::http1().post(stack.url(CHAT)).json(body).send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    stack.served_by(&response)
}

#[test]
fn there_is_one_configuration_and_each_of_its_switches_is_tested() {
    let files = fs::read_dir(tools::root().join("examples/choosing")).unwrap();
    let names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["expected-latency.yaml"]);
    // The first in the folder `native`, the other below.
    assert_eq!(rules::switches().unwrap(), ["flow-control", "session-admission", "latency-limits"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn expected_latency_repeats_a_prompt_on_its_server_and_spares_the_one_with_most_tokens() {
    let stack = start(&[]).await;
    let known = client::chat(&"a long prompt that is known ".repeat(150));
    let first = ask(&stack, &known).await;
    for _ in 0..TIMES {
        assert_eq!(ask(&stack, &known).await, first);
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
        assert_ne!(ask(&stack, &fresh_chat()).await, busy);
    }
    held.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn latency_limits_refuses_what_no_server_would_keep() {
    let stack = start(&["latency-limits"]).await;
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
