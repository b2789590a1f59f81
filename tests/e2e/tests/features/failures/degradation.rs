//! The degradation from full rules down: each step is reached, counted and explained.

use endpoint_picker_e2e::fixture::{
    CHAT, DROPPED_REASON, assert_no_endpoints, fresh_chat, fresh_prompt, prefer, until_every_worker,
};
use endpoint_picker_e2e::statistics::{ROUTED, ROUTED_STALE, complete_statistics, statistics};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::objectives;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Behaviour, ModelServer};
use reqwest::{Response, StatusCode};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Older readings are ignored.
const STALE_AFTER: Duration = Duration::from_secs(10);

const UNAVAILABLE: &str = r#"rejected{pool="default",status="503"}"#;

/// Sends a request and checks that it counts once in this series.
async fn ask_counted(stack: &Stack, series: &str) -> Response {
    let before = complete_statistics(stack).await;
    let answer = ask_sheddable(stack).await;
    let after = complete_statistics(stack).await;
    assert_eq!(after.count(series), before.count(series) + 1, "{series} after {answer:?}");
    assert_eq!(after.decided(), before.decided() + 1, "one request, one decision");
    answer
}

async fn ask_sheddable(stack: &Stack) -> Response {
    let request = client::http1().post(stack.url(CHAT)).header(objectives::HEADER, objectives::SHEDDABLE);
    request.json(&fresh_chat()).send().await.unwrap()
}

async fn until_agent_says(stack: &Stack, series: &str, good: impl Fn(f64) -> bool) {
    eventually(&format!("the agent reports {series}"), async || {
        let value = stack.agent().unwrap().metric(series).await.unwrap();
        if good(value) { Ok(()) } else { Err(value) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_fresh_readings_the_full_rules_apply() {
    let stack = Stack::builder().start().await;
    let stale = complete_statistics(&stack).await.count(ROUTED_STALE);
    assert_eq!(ask_counted(&stack, ROUTED).await.status(), StatusCode::OK);
    assert_eq!(complete_statistics(&stack).await.count(ROUTED_STALE), stale);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_whose_scrapes_fail_keeps_its_last_readings() {
    const TIMEOUTS: &str = r#"metrics_agent_scrape_errors_total{reason="timeout"}"#;
    let stack = Stack::builder().start().await;
    prefer(&stack, 1).await;
    stack.servers()[1].behave_when_scraped(Behaviour::Hang);
    until_agent_says(&stack, TIMEOUTS, |errors| errors >= 2.0).await;
    for _ in 0..5 {
        let answer = ask_counted(&stack, ROUTED).await;
        assert_eq!(stack.served_by(&answer), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_whose_scrapes_fail_counts_as_saturated_and_sheds_what_is_sheddable() {
    let stack = Stack::builder().manifests(objectives::MANIFEST).start().await;
    eventually("a pool that is read well takes everything", async || {
        let status = ask_sheddable(&stack).await.status();
        if status == StatusCode::OK { Ok(()) } else { Err(status) }
    })
    .await;
    for server in stack.servers() {
        server.behave_when_scraped(Behaviour::Hang);
    }
    until_every_worker("sheds what is sheddable", async || {
        let status = ask_sheddable(&stack).await.status();
        if status == StatusCode::TOO_MANY_REQUESTS { Ok(()) } else { Err(status) }
    })
    .await;
    let answer = ask_counted(&stack, r#"rejected{pool="default",status="429"}"#).await;
    let error: Value = answer.json().await.unwrap();
    assert_eq!(error["error"]["message"], "system saturated, sheddable request dropped");
    assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK, "others are served");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_connections_is_no_candidate_and_without_candidates_the_answer_is_503() {
    let stack = Stack::builder().start().await;
    stack.servers()[0].refuse().await.unwrap();
    until_agent_says(&stack, "metrics_agent_endpoints_ready", |ready| ready < 2.5).await;
    for server in &stack.servers()[1..] {
        server.refuse().await.unwrap();
    }
    until_agent_says(&stack, "metrics_agent_endpoints_ready", |ready| ready < 0.5).await;
    until_every_worker("refuses every request", async || {
        let answer = stack.post(CHAT, &fresh_chat()).await;
        if answer.headers().contains_key(DROPPED_REASON) { Ok(()) } else { Err(answer.status()) }
    })
    .await;
    assert_no_endpoints(ask_counted(&stack, UNAVAILABLE).await, "nothing is ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_agent_is_gone_for_ten_seconds_only_prefixes_and_loads_count() {
    let mut stack = Stack::builder().start().await;
    prefer(&stack, 1).await;
    let prompt = fresh_prompt().repeat(4);
    assert_eq!(stack.served_by(&stack.post(CHAT, &client::chat(&prompt)).await), 1);
    stack.kill_agent();
    let gone = Instant::now();
    eventually("readings are ignored", async || {
        let answer = stack.post(CHAT, &fresh_chat()).await;
        assert_eq!(answer.status(), StatusCode::OK);
        if statistics(&stack).await.count(ROUTED_STALE) > 0 { Ok(()) } else { Err("they are read") }
    })
    .await;
    let took = gone.elapsed();
    assert!(took + Duration::from_secs(1) > STALE_AFTER, "readings were dropped after {took:?}");
    let mut served = [false; 3];
    let before = complete_statistics(&stack).await.count(ROUTED_STALE);
    for _ in 0..40 {
        served[stack.served_by(&ask_sheddable(&stack).await)] = true;
    }
    assert_eq!(complete_statistics(&stack).await.count(ROUTED_STALE), before + 40);
    assert_eq!(served, [true; 3], "without readings all servers are equal");
    assert_eq!(stack.served_by(&stack.post(CHAT, &client::chat(&prompt)).await), 1, "its prefix is served");

    let back = Instant::now();
    stack.start_agent().await;
    prefer(&stack, 2).await;
    let stale = complete_statistics(&stack).await.count(ROUTED_STALE);
    assert_eq!(stack.served_by(&ask_counted(&stack, ROUTED).await), 2);
    let stale_now = complete_statistics(&stack).await.count(ROUTED_STALE);
    assert_eq!(stale_now, stale, "{:?} after the start", back.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn before_the_first_snapshot_the_failure_mode_decides() {
    let stack = Stack::builder().without_agent().start().await;
    let answer = ask_counted(&stack, r#"abstained{pool="default",reason="no_snapshot"}"#).await;
    assert_eq!(answer.status(), StatusCode::OK);
    drop(stack);
    let stack = Stack::builder().without_agent().picker_field("failureMode", "FailClose").start().await;
    assert_no_endpoints(ask_counted(&stack, UNAVAILABLE).await, "FailClose").await;
    assert!(stack.servers().iter().all(|server: &ModelServer| server.requests().is_empty()));
}
