//! A model server that refuses connections, or hangs, and what it costs.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat, prefer, request_counts, until_every_worker};
use endpoint_picker_e2e::statistics::complete_statistics;
use endpoint_picker_e2e::steady_load::SteadyLoad;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::Behaviour;
use reqwest::StatusCode;
use std::time::Duration;
use tokio::time::timeout;

#[tokio::test(flavor = "multi_thread")]
async fn when_the_picked_server_refuses_the_connection_another_one_serves() {
    let mut stack = Stack::builder().start().await;
    prefer(&stack, 1).await;
    // Without an agent the picker does not learn that the server has gone: it stays the best.
    stack.kill_agent();
    stack.servers()[1].refuse().await.unwrap();
    for (round, client) in [client::http1(), client::h2c()].into_iter().enumerate() {
        let mut sent = 0;
        // After a failure it is left alone for up to two seconds.
        let (served, entry) = eventually("the server that has gone is picked", async || {
            sent += 1;
            let path = format!("{CHAT}?refused={round}-{sent}");
            let response = client.post(stack.url(&path)).json(&fresh_chat()).send().await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let served = stack.served_by(&response);
            let entry = stack.logged(&path).await;
            if entry["header"] == stack.servers()[1].endpoint() { Ok((served, entry)) } else { Err(entry) }
        })
        .await;
        assert_ne!(served, 1);
        assert_eq!(entry["upstream"], stack.servers()[served].endpoint(), "{entry}");
        assert_eq!(entry["attempts"], 2, "{entry}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_refuses_is_left_and_used_again_when_it_is_back_and_no_request_fails() {
    let stack = Stack::builder().start().await;
    prefer(&stack, 1).await;
    // Before the load begins: a request that is at the server when it goes could not be saved.
    stack.servers()[1].refuse().await.unwrap();
    let load = SteadyLoad::start(&stack);
    let mut requests = 0;
    eventually("the server that has gone is not picked any more", async || {
        requests += 1;
        let path = format!("{CHAT}?gone={requests}");
        assert_eq!(stack.post(&path, &fresh_chat()).await.status(), StatusCode::OK);
        let entry = stack.logged(&path).await;
        if entry["header"] == stack.servers()[1].endpoint() { Err(entry) } else { Ok(()) }
    })
    .await;

    stack.servers()[1].listen().unwrap();
    eventually("the server is used again", async || {
        let counts = request_counts(&stack);
        if counts[1] > 10 { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    load.stop().await;
    let statistics = complete_statistics(&stack).await;
    assert_eq!(statistics.count(r#"served_elsewhere{pool="default"}"#), 0, "a retry does not count");
}

#[tokio::test(flavor = "multi_thread")]
async fn when_every_server_refuses_the_answer_is_503_until_one_is_back() {
    let stack = Stack::builder().start().await;
    for server in stack.servers() {
        server.refuse().await.unwrap();
    }
    let response = stack.post(CHAT, &fresh_chat()).await;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    stack.servers()[2].listen().unwrap();
    eventually("the server that is back serves", async || {
        let status = stack.post(CHAT, &fresh_chat()).await.status();
        if status == StatusCode::OK { Ok(()) } else { Err(status) }
    })
    .await;
    assert_ne!(request_counts(&stack)[2], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_gets_no_more_requests_when_failed_scrapes_take_it_out() {
    let stack = Stack::builder().agent_flags(&["--unready-after-failed-scrapes", "2"]).start().await;
    prefer(&stack, 1).await;
    stack.servers()[1].behave(Behaviour::Hang);
    stack.servers()[1].behave_when_scraped(Behaviour::Hang);
    until_every_worker("leaves the server that hangs", async || {
        let request = client::http1().post(stack.url(CHAT)).json(&fresh_chat());
        let answer = timeout(Duration::from_millis(500), request.send()).await;
        let is_served = answer.is_ok_and(|answer| answer.unwrap().status() == StatusCode::OK);
        if is_served { Ok(()) } else { Err("a request was not served") }
    })
    .await;
    stack.servers()[1].take_requests();
    for _ in 0..30 {
        assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
    }
    assert_eq!(request_counts(&stack)[1], 0, "it is the best by its last values, and out");
    stack.servers()[1].behave(Behaviour::Answer);
    stack.servers()[1].behave_when_scraped(Behaviour::Answer);
    eventually("the server is used again", async || {
        stack.post(CHAT, &fresh_chat()).await;
        if request_counts(&stack)[1] > 0 { Ok(()) } else { Err(format!("{:?}", request_counts(&stack))) }
    })
    .await;
}
