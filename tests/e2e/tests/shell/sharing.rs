//! Two Envoys that share their changes through one agent.

use endpoint_picker_e2e::fixture::{
    CHAT, LEAST_LOADED, forget_requests, fresh_chat, fresh_prompt, second_envoy,
};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::Behaviour;
use reqwest::StatusCode;
use serde_json::Value;

/// Requests in a row after which every endpoint was picked that may be: with three, the chance that an
/// endpoint got none is below 0.001 %.
const MANY: usize = 30;

/// An Envoy with agent and model servers, and a second Envoy with the same.
async fn two_envoys(manifests: Option<&str>) -> (Stack, Stack) {
    let one = Stack::builder().agent_flags(&["--share", "agent"]);
    let one = manifests.into_iter().fold(one, Builder::manifests).start().await;
    let two = second_envoy(&one).await;
    (one, two)
}

/// The server that has this body's prompt in its cache, by the Envoy's view.
async fn cached_at(servers: &Stack, envoy: &Stack, body: &Value) -> usize {
    eventually("the Envoy has the prompt in its view", async || {
        let request = client::http1().post(envoy.url(CHAT)).header("prefer", "if-available").json(body);
        let answer = request.send().await.unwrap();
        match answer.status() {
            StatusCode::OK => Ok(servers.served_by(&answer)),
            status => Err(status),
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_one_envoy_has_sent_is_found_by_the_other_and_by_one_that_starts() {
    let (one, two) = two_envoys(None).await;
    let bodies: Vec<Value> = (0..10).map(|_| client::chat(&fresh_prompt().repeat(4))).collect();
    let mut served = Vec::new();
    for (number, body) in bodies.iter().enumerate() {
        let (first, other) = if number % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let server = one.served_by(&first.post(CHAT, body).await);
        assert_eq!(cached_at(&one, other, body).await, server, "prompt {number}");
        served.push(server);
    }
    drop(two);
    let three = second_envoy(&one).await;
    for (body, server) in bodies.iter().zip(served) {
        assert_eq!(cached_at(&one, &three, body).await, server);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_in_flight_in_one_envoy_count_in_the_other_until_it_ends() {
    let (one, two) = two_envoys(Some(LEAST_LOADED)).await;
    forget_requests(&one);
    for server in one.servers() {
        server.behave(Behaviour::Hang);
    }
    let hanging = tokio::spawn(client::http1().post(two.url(CHAT)).json(&fresh_chat()).send());
    let busy = eventually("the request is at a server", async || {
        one.servers().iter().position(|server| !server.requests().is_empty()).ok_or("it is at none")
    })
    .await;
    for server in one.servers() {
        server.behave(Behaviour::default());
    }
    let goes_to_busy = async || {
        for _ in 0..MANY {
            if one.served_by(&one.post(CHAT, &fresh_chat()).await) == busy {
                return true;
            }
        }
        false
    };
    eventually("the other Envoy avoids that server", async || {
        if goes_to_busy().await { Err("it does not") } else { Ok(()) }
    })
    .await;
    drop(two);
    // The two seconds after which they are dropped are shown with a simulated clock in
    // `filter/engine/tests/sharing`.
    eventually("the loads of the Envoy that ended are dropped", async || {
        if goes_to_busy().await { Ok(()) } else { Err("the load is still counted") }
    })
    .await;
    hanging.abort();
}
