//! A closed loop: one client for each server, each of which sends its next request when its response has
//! come.

use endpoint_picker_e2e::fixture::{CHAT, LEAST_LOADED, forget_requests, fresh_chat};
use endpoint_picker_harness::client;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Behaviour, ModelServer};
use futures_util::future::join_all;
use reqwest::StatusCode;
use std::time::{Duration, Instant};

const SERVERS: usize = 4;
const REQUESTS: usize = 240;

/// A client whose response has come leaves a server idle, so hardly a request has a reason to meet a busy
/// one. Two workers that decide in the same microseconds are the reason that is left.
const MOST_MISTAKES: usize = 2;

#[tokio::test(flavor = "multi_thread")]
async fn hardly_a_request_meets_a_busy_server_while_another_is_idle_with_one_worker() {
    let mistakes = mistakes(1).await;
    assert!(mistakes <= MOST_MISTAKES, "{mistakes} of {REQUESTS} requests met a busy server");
}

#[tokio::test(flavor = "multi_thread")]
async fn hardly_a_request_meets_a_busy_server_while_another_is_idle_with_four_workers() {
    let mistakes = mistakes(4).await;
    assert!(mistakes <= MOST_MISTAKES, "{mistakes} of {REQUESTS} requests met a busy server");
}

/// How many requests of the closed loop met a busy server while another one was idle, by the servers' own
/// clocks.
async fn mistakes(workers: u32) -> usize {
    let stack = Stack::builder().workers(workers).servers(SERVERS).manifests(LEAST_LOADED).start().await;
    for (index, server) in stack.servers().iter().enumerate() {
        server.behave(Behaviour::SlowChunks(Duration::from_millis(7 + 2 * index as u64)));
    }
    forget_requests(&stack);
    // Each request has a connection of its own, so that any worker may get it.
    let client = client::http1();
    join_all((0..SERVERS).map(async |_| {
        for _ in 0..REQUESTS / SERVERS {
            let answer = client.post(stack.url(CHAT)).json(&fresh_chat()).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::OK);
            answer.bytes().await.unwrap();
        }
    }))
    .await;

    let busy_times: Vec<_> = stack.servers().iter().map(ModelServer::busy_times).collect();
    assert_eq!(busy_times.iter().map(Vec::len).sum::<usize>(), REQUESTS);
    let is_busy = |server: usize, now: Instant| {
        busy_times[server].iter().any(|busy| busy.start < now && now < busy.end)
    };
    let is_mistake = |&(server, now): &(usize, Instant)| {
        is_busy(server, now) && (0..SERVERS).any(|other| other != server && !is_busy(other, now))
    };
    let arrivals =
        (0..SERVERS).flat_map(|server| busy_times[server].iter().map(move |busy| (server, busy.start)));
    let mistakes = arrivals.filter(is_mistake).count();
    eprintln!(
        "{mistakes} of {REQUESTS} requests met a busy server while another was idle, with {workers} workers"
    );
    mistakes
}
