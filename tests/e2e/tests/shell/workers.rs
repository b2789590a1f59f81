//! Envoy's workers decide as one: each has the changes of all.

use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_e2e::fixture::{
    CHAT, LEAST_LOADED, forget_requests, fresh_chat, fresh_prompt, request_counts,
};
use endpoint_picker_e2e::statistics::{IN_FLIGHT, statistics, until_counted};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{BEHAVE, Behaviour};
use futures_util::stream::{self, StreamExt};
use reqwest::{Client, StatusCode};
use serde_json::json;
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;

async fn in_flight(stack: &Stack) -> u64 {
    statistics(stack).await.count(IN_FLIGHT)
}

/// Waits until this many requests count as in flight.
async fn until_in_flight(stack: &Stack, expected: u64) {
    until_counted(stack, "in_flight", expected).await;
}

/// Part of all prompts that the servers had cached, if each keeps all it has seen: several conversations at
/// once, each of whose turns repeats the turns before.
async fn cached_part(workers: u32) -> f64 {
    const CONVERSATIONS: usize = 40;
    const TURNS: usize = 6;
    let stack = Stack::builder().workers(workers).servers(4).start().await;
    let talk = async |number: usize| {
        let mut messages = Vec::new();
        // By server, how many bytes of this conversation it has seen.
        let (mut seen, mut cached, mut sent) = ([0; 4], 0, 0);
        for turn in 0..TURNS {
            messages.push(json!({"role": "user", "content": fresh_prompt().repeat(2)}));
            let mut body = client::chat("");
            body["messages"] = json!(messages);
            let response = stack.post(CHAT, &body).await;
            assert_eq!(response.status(), StatusCode::OK, "conversation {number}, turn {turn}");
            let server = stack.served_by(&response);
            let length = body["messages"].to_string().len();
            cached += seen[server];
            sent += length;
            seen[server] = length;
            messages.push(json!({"role": "assistant", "content": fresh_prompt()}));
        }
        (cached, sent)
    };
    let talks: Vec<_> = stream::iter(0..CONVERSATIONS).map(talk).buffer_unordered(8).collect().await;
    let (cached, sent) = talks.iter().fold((0, 0), |sum, talk| (sum.0 + talk.0, sum.1 + talk.1));
    cached as f64 / sent as f64
}

#[tokio::test(flavor = "multi_thread")]
async fn four_workers_find_cached_prompts_as_often_as_one() {
    let (one, four) = (cached_part(1).await, cached_part(4).await);
    eprintln!("cached part of all prompts: {one:.3} with one worker, {four:.3} with four");
    assert!(one > 0.5, "one worker alone finds only {one}");
    assert!(four >= 0.95 * one, "four workers find {four}, one finds {one}");
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_requests_spread_evenly_by_the_requests_in_flight_on_all_workers() {
    const REQUESTS: usize = 400;
    let stack = Stack::builder().workers(4).servers(4).manifests(LEAST_LOADED).start().await;
    until_in_flight(&stack, 0).await;
    for server in stack.servers() {
        server.behave(Behaviour::Hang);
    }
    let client = client::http1();
    let mut requests = JoinSet::new();
    for _ in 0..REQUESTS {
        requests.spawn(client.post(stack.url(CHAT)).json(&fresh_chat()).send());
    }
    let counts = eventually("all requests are at a server", async || {
        let counts = request_counts(&stack);
        if counts.iter().sum::<usize>() == REQUESTS { Ok(counts) } else { Err(format!("{counts:?}")) }
    })
    .await;
    eprintln!("{REQUESTS} parallel requests went to {counts:?}");
    assert!(counts.iter().all(|count| (90..=110).contains(count)), "{counts:?}");
    until_in_flight(&stack, REQUESTS as u64).await;

    requests.shutdown().await;
    until_in_flight(&stack, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_stays_in_flight_however_it_ends() {
    const ROUNDS: usize = 3;
    const REQUESTS_PER_ROUND: usize = 2_000;
    const AT_ONCE: usize = 64;
    let stack = Stack::builder().workers(4).servers(4).start().await;
    let seed = SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    eprintln!("seed {seed}");
    // One server comes and goes: refused connections, which are retried, and responses cut off.
    let flapping = async {
        loop {
            tokio::time::sleep(Duration::from_millis(300)).await;
            stack.servers()[3].refuse().await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
            stack.servers()[3].listen().unwrap();
        }
    };
    let clients = [client::http1(), client::http1_keep_alive(), client::h2c()];
    let ask = async |number: usize| {
        let mut rng = SplitMix64::new(u64::from(seed) ^ ((number as u64) << 32));
        let request = random_request(&stack, &clients[rng.below(3)], &mut rng).send();
        let patience = Duration::from_millis(rng.below(40) as u64);
        let is_patient = rng.below(3) != 0;
        let answered = async { request.await?.bytes().await };
        if is_patient {
            // A server that hangs is left in the end by everyone.
            let _ = tokio::time::timeout(Duration::from_millis(500), answered).await;
        } else {
            let _ = tokio::time::timeout(patience, answered).await;
        }
    };
    let asking = async {
        let mut most = 0;
        for round in 0..ROUNDS {
            let numbers = round * REQUESTS_PER_ROUND..(round + 1) * REQUESTS_PER_ROUND;
            let mut asking = std::pin::pin!(stream::iter(numbers).map(ask).buffer_unordered(AT_ONCE));
            let mut done = 0;
            while asking.next().await.is_some() {
                done += 1;
                if done % 1000 == 0 {
                    most = most.max(in_flight(&stack).await);
                    forget_requests(&stack);
                }
            }
            until_in_flight(&stack, 0).await;
        }
        most
    };
    let most = tokio::select! {
        result = asking => result,
        () = flapping => unreachable!("it never ends"),
    };
    assert!(most > 0, "nothing was ever in flight");
    let retries = stack.envoy().stat("cluster.model-servers.upstream_rq_retry").await.unwrap();
    let resets = stack.envoy().stat("cluster.model-servers.upstream_rq_rx_reset").await.unwrap()
        + stack
            .envoy()
            .stat("cluster.model-servers.upstream_cx_destroy_remote_with_active_rq")
            .await
            .unwrap();
    let aborts = stack.envoy().stat("http.inference.downstream_rq_rx_reset").await.unwrap()
        + stack.envoy().stat("http.inference.downstream_cx_destroy_remote_active_rq").await.unwrap();
    eprintln!("up to {most} seen in flight; {retries} retries, {resets} resets, {aborts} aborts");
    for (what, count) in [("retry", retries), ("upstream reset", resets), ("client abort", aborts)] {
        assert!(count > 50, "{count} is hardly any {what}");
    }
}

/// Plain, streamed or slow; answered, failed, reset or never answered.
fn random_request(stack: &Stack, client: &Client, rng: &mut SplitMix64) -> reqwest::RequestBuilder {
    if rng.below(20) == 0 {
        return client.get(stack.url("/v1/models"));
    }
    let mut body = fresh_chat();
    body["stream"] = json!(rng.below(2) == 0);
    let request = client.post(stack.url(CHAT)).json(&body);
    match rng.below(20) {
        0 => request.header(BEHAVE, "hang"),
        1 => request.header(BEHAVE, "reset"),
        2 | 3 => request.header(BEHAVE, "slow"),
        4 => request.header(BEHAVE, "503"),
        _ => request,
    }
}
