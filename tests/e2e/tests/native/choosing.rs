//! The recommended configuration with flow control, and with sessions that wait.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat};
use endpoint_picker_e2e::statistics::{statistics, until_counted};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::shipped::rules;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::CacheConfig;
use reqwest::StatusCode;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread")]
async fn flow_control_holds_requests_while_the_servers_are_saturated_also_with_all_switches() {
    for switches in [&["flow-control"][..], &["flow-control", "latency-limits"]] {
        let stack = Stack::builder().manifests(&rules::recommended(switches).unwrap()).start().await;
        holds_requests_while_the_servers_are_saturated(&stack).await;
    }
}

async fn holds_requests_while_the_servers_are_saturated(stack: &Stack) {
    for server in stack.servers() {
        server.update_metrics(|metrics| metrics.waiting = 50);
    }
    let mut answers = JoinSet::new();
    eventually("a request waits", async || {
        // Requests continue until the filter has the readings.
        answers.spawn(client::http1().post(stack.url(CHAT)).json(&fresh_chat()).send());
        let queued = statistics(stack).await.sum("queued");
        anyhow::ensure!(queued > 0, "none waits");
        anyhow::Ok(())
    })
    .await;
    for server in stack.servers() {
        server.update_metrics(|metrics| metrics.waiting = 0);
    }
    for answer in answers.join_all().await {
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }
    until_counted(stack, "queued", 0).await;
}

/// A turn of a session, whose prompt has some 8 000 tokens and begins as no other session's.
async fn turn(url: String, session: String) -> StatusCode {
    let body = client::chat(&format!("{session} ").repeat(32_000 / (session.len() + 1)));
    let request = client::http1().post(url).header("x-session-id", session).json(&body);
    request.send().await.unwrap().status()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_waits_while_those_in_work_fill_the_caches_and_their_turns_do_not() {
    let rules = rules::recommended(&["flow-control", "session-admission"]).unwrap();
    let stack = Stack::builder().servers(1).manifests(&rules).start().await;
    let has_cache = |num_gpu_blocks| {
        let cache = Some(CacheConfig { block_size: 16, num_gpu_blocks });
        stack.servers()[0].update_metrics(|metrics| metrics.cache = cache);
    };
    // Twelve thousand of these tokens are for sessions.
    has_cache(20_000 / 16);
    let url = stack.url(CHAT);
    assert_eq!(turn(url.clone(), "first".to_owned()).await, StatusCode::OK);

    let mut answers = JoinSet::new();
    eventually("a session waits", async || {
        // Sessions begin until the filter has the readings.
        answers.spawn(turn(url.clone(), format!("session {}", answers.len())));
        anyhow::ensure!(statistics(&stack).await.sum("queued") > 0, "none waits");
        anyhow::Ok(())
    })
    .await;
    assert_eq!(turn(url.clone(), "first".to_owned()).await, StatusCode::OK);
    assert!(statistics(&stack).await.sum("queued") > 0);

    has_cache(20_000_000 / 16);
    for status in answers.join_all().await {
        assert_eq!(status, StatusCode::OK);
    }
    until_counted(&stack, "queued", 0).await;
}
