//! The filter's reports to the agent.

use anyhow::ensure;
use endpoint_picker_e2e::fixture::{CHAT, fresh_chat, prefer, proxy_name};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Behaviour, ModelServer};
use reqwest::StatusCode;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

async fn pool(stack: &Stack) -> anyhow::Result<Value> {
    let url = format!("http://{}/v1/pools/default", stack.agent_address());
    Ok(client::http1().get(url).send().await?.error_for_status()?.json().await?)
}

/// The sum of a number over all endpoints.
fn sum(pool: &Value, field: &str) -> u64 {
    let endpoints = pool["endpoints"].as_array().unwrap();
    endpoints.iter().filter_map(|endpoint| endpoint["sent"][field].as_u64()).sum()
}

async fn reported(stack: &Stack, what: &str, passes: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let pool = pool(stack).await?;
        if passes(&pool) { Ok(pool) } else { Err(anyhow::anyhow!("{pool}")) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_has_the_picks_and_the_requests_in_flight_of_all_workers() {
    let folder = tempfile::tempdir().unwrap();
    let record = ["--record", folder.path().to_str().unwrap()];
    let stack = Stack::builder().workers(2).agent_flags(&record).start().await;
    let quiet = reported(&stack, "a first report", |pool| pool["proxies"][0]["routed"].is_u64()).await;
    assert_eq!(quiet["proxies"][0]["proxy"], proxy_name(&stack));
    // Picks from the start of the stack may not have been reported yet.
    let (picks, routed) = eventually("the reports rest", async || {
        let before = pool(&stack).await?;
        tokio::time::sleep(Duration::from_millis(2500)).await;
        let after = pool(&stack).await?;
        let counts = |pool: &Value| (sum(pool, "picks"), pool["proxies"][0]["routed"].as_u64().unwrap());
        if counts(&before) == counts(&after) { Ok(counts(&after)) } else { Err(anyhow::anyhow!("{after}")) }
    })
    .await;

    for _ in 0..12 {
        let response = stack.post(CHAT, &fresh_chat()).await;
        assert_eq!(response.status(), StatusCode::OK);
    }
    let counts = stack.servers().iter().map(|server| server.take_requests().len()).collect::<Vec<_>>();
    let reported_pool = reported(&stack, "12 more picks", |pool| {
        sum(pool, "picks") == picks + 12 && pool["proxies"][0]["routed"] == routed + 12
    })
    .await;
    for (server, count) in stack.servers().iter().zip(counts) {
        let endpoints = reported_pool["endpoints"].as_array().unwrap();
        let endpoint = endpoints.iter().find(|endpoint| endpoint["address"] == server.endpoint()).unwrap();
        let before = quiet["endpoints"].as_array().unwrap();
        let before = before.iter().find(|endpoint| endpoint["address"] == server.endpoint()).unwrap();
        let before = before["sent"]["picks"].as_u64().unwrap();
        assert!(endpoint["sent"]["picks"].as_u64().unwrap() >= before + count as u64, "{endpoint}");
    }

    for server in stack.servers() {
        server.behave(Behaviour::Hang);
    }
    let hanging: Vec<_> = (0..3)
        .map(|_| {
            let (client, url) = (client::http1(), stack.url(CHAT));
            tokio::spawn(async move { client.post(url).json(&fresh_chat()).send().await })
        })
        .collect();
    reported(&stack, "3 requests in flight", |pool| sum(pool, "requests") == 3 && sum(pool, "tokens") > 0)
        .await;
    for request in &hanging {
        request.abort();
    }
    reported(&stack, "nothing in flight", |pool| sum(pool, "requests") == 0).await;
    // All workers have recorded their requests.
    let lines = recorded(folder.path(), 12 + 3).await;
    let of = |outcome: &str| lines.iter().filter(|line| line["outcome"] == outcome).collect::<Vec<_>>();
    let served = of("served");
    assert_eq!((served.len(), of("neutral").len()), (12, 3), "the clients of three have left");
    for line in &lines {
        assert!(line["input_length"].as_u64() > Some(0) && line["hash_ids"][0].is_u64(), "{line}");
        let has_it = |server: &ModelServer| line["endpoint"] == server.endpoint();
        assert!(stack.servers().iter().any(has_it), "{line}");
    }
    let took = |line: &Value| line["end_ms"].as_f64().is_some_and(|took| took < 60_000.0);
    assert!(lines.iter().all(took) && served.iter().all(|line| line["output_length"].is_u64()), "{lines:?}");
    let counts = reported(&stack, "the record is counted", |pool| {
        pool["proxies"][0]["record"]["recorded"].as_u64() >= Some(lines.len() as u64)
    });
    assert_eq!(counts.await["proxies"][0]["record"]["dropped"], 0);
}

/// The lines of a record, once it has this many.
async fn recorded(folder: &Path, requests: usize) -> Vec<Value> {
    eventually("all requests are recorded", async || {
        let mut lines = Vec::new();
        for file in std::fs::read_dir(folder)? {
            let text = std::fs::read_to_string(file?.path())?;
            // The header is first.
            let read = text.lines().skip(1).map(serde_json::from_str);
            lines.extend(read.collect::<Result<Vec<Value>, _>>()?);
        }
        ensure!(lines.len() >= requests, "{} lines of {requests}", lines.len());
        anyhow::Ok(lines)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_fails_requests_is_reported_until_it_is_no_longer_avoided() {
    let stack = Stack::builder().servers(1).start().await;
    let server = &stack.servers()[0];
    server.behave(Behaviour::Status(StatusCode::INTERNAL_SERVER_ERROR));
    // Reports are sent once a second, and the first failures are avoided for less than that.
    eventually("a failing endpoint", async || {
        stack.post(CHAT, &fresh_chat()).await;
        let pool = pool(&stack).await?;
        ensure!(pool["endpoints"][0]["state"] == "failing", "{pool}");
        anyhow::Ok(())
    })
    .await;
    // No further request is sent.
    reported(&stack, "a ready endpoint", |pool| pool["endpoints"][0]["state"] == "ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_another_server_takes_over_is_in_flight_there() {
    let stack = Stack::builder().start().await;
    prefer(&stack, 1).await;
    for (index, server) in stack.servers().iter().enumerate() {
        let long = Behaviour::SlowChunks(Duration::from_millis(200));
        server.behave(if index == 1 { Behaviour::Reset } else { long });
    }
    let mut body = fresh_chat();
    body["stream"] = true.into();
    body["max_tokens"] = 1_000.into();
    let answer = stack.post(CHAT, &body).await;
    let served = stack.served_by(&answer);
    assert_ne!(served, 1);
    let at = |pool: &Value, server: usize| {
        let address = stack.servers()[server].endpoint();
        let endpoints = pool["endpoints"].as_array().unwrap();
        let endpoint = endpoints.iter().find(|endpoint| endpoint["address"] == address).unwrap();
        endpoint["sent"]["requests"].as_u64().unwrap_or(0)
    };
    // A report from before the response began has it at the first server.
    reported(&stack, "the request is in flight at the server that answers, and only there", |pool| {
        (at(pool, served), at(pool, 1), sum(pool, "requests")) == (1, 0, 1)
    })
    .await;
    drop(answer);
    reported(&stack, "nothing in flight", |pool| sum(pool, "requests") == 0).await;
}
