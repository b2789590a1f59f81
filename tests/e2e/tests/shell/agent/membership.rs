//! Endpoints come and go while clients are served.

use endpoint_picker_e2e::fixture::{CHAT, DESTINATION, fresh_chat};
use endpoint_picker_e2e::steady_load::SteadyLoad;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::{Behaviour, ModelServer};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

fn addresses(stack: &Stack) -> Vec<SocketAddr> {
    stack.servers().iter().map(ModelServer::address).collect()
}

/// Makes all servers of the stack busier than one that is new.
fn make_busy(stack: &Stack) {
    for server in stack.servers() {
        server.update_metrics(|metrics| metrics.waiting = 3);
    }
}

/// Waits until this many more requests were served and this server got none of them.
async fn until_left(stack: &Stack, server: &ModelServer) {
    let all = || stack.servers().iter().map(|server| server.requests().len()).sum::<usize>();
    eventually("the removed endpoint is left", async || {
        let before = server.requests().len();
        let served = all();
        while all() < served + 10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let more = server.requests().len() - before;
        if more == 0 { Ok(()) } else { Err(format!("{more} more requests went to it")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_added_endpoint_is_used_and_a_removed_one_left_and_no_request_fails() {
    let stack = Stack::builder().start().await;
    make_busy(&stack);
    let load = SteadyLoad::start(&stack);
    for round in 0..3 {
        let extra = ModelServer::start().unwrap();
        let with_extra = [addresses(&stack), vec![extra.address()]].concat();
        stack.set_endpoints(&with_extra);
        eventually(&format!("the added endpoint serves, round {round}"), async || {
            let requests = extra.requests();
            let picked =
                requests.iter().any(|request| request.header(DESTINATION) == Some(&extra.endpoint()));
            if picked { Ok(()) } else { Err(format!("it got {} requests", requests.len())) }
        })
        .await;

        stack.set_endpoints(&addresses(&stack));
        until_left(&stack, &extra).await;
        // It may go now.
        drop(extra);
    }
    load.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_has_begun_at_a_removed_endpoint_comes_to_its_end() {
    let stack = Stack::builder().start().await;
    make_busy(&stack);
    let extra = ModelServer::start().unwrap();
    extra.behave(Behaviour::SlowChunks(Duration::from_millis(50)));
    stack.set_endpoints(&[addresses(&stack), vec![extra.address()]].concat());
    let mut response = eventually("the added endpoint begins an answer", async || {
        let mut body = fresh_chat();
        body["stream"] = json!(true);
        body["max_tokens"] = json!(30);
        let response = stack.post(CHAT, &body).await;
        if response.headers()["x-served-by"] == extra.endpoint() {
            Ok(response)
        } else {
            Err("another one does")
        }
    })
    .await;
    let mut answer = response.chunk().await.unwrap().unwrap().to_vec();

    stack.set_endpoints(&addresses(&stack));
    let load = SteadyLoad::start(&stack);
    until_left(&stack, &extra).await;
    load.stop().await;
    while let Some(chunk) = response.chunk().await.unwrap() {
        answer.extend(chunk);
    }
    assert!(answer.ends_with(b"data: [DONE]\n\n"), "{}", String::from_utf8_lossy(&answer));
}

#[tokio::test(flavor = "multi_thread")]
async fn all_endpoints_can_be_replaced_at_once() {
    let stack = Stack::builder().servers(1).start().await;
    let next = [ModelServer::start().unwrap(), ModelServer::start().unwrap()];
    let load = SteadyLoad::start(&stack);
    stack.set_endpoints(&next.each_ref().map(ModelServer::address));
    eventually("the new endpoints serve", async || {
        let counts = next.each_ref().map(|server| server.requests().len());
        if counts.iter().all(|count| *count > 0) { Ok(()) } else { Err(format!("{counts:?}")) }
    })
    .await;
    load.stop().await;
}
