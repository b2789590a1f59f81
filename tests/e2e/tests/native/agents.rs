//! The module polls agents itself: over TLS, and more than one.

use endpoint_picker_e2e::fixture::{CHAT, assert_no_endpoints, fresh_chat, prefer};
use endpoint_picker_e2e::secured_agent::SecuredAgent;
use endpoint_picker_e2e::statistics::{ROUTED_STALE, complete_statistics};
use endpoint_picker_harness::client;
use endpoint_picker_harness::endpoint_files::write_discovery;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Agent;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_model_server::ModelServer;
use reqwest::StatusCode;
use serde_json::json;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use tempfile::TempDir;

/// A stack whose module presents a certificate and the token in this file to the agent.
fn builder(agent: &SecuredAgent, token: &str) -> Builder {
    fs::write(agent.path("token"), token).unwrap();
    let access = json!({
        "addresses": [format!("https://{}", agent.address())],
        "tls": {
            "caFile": agent.path("ca.pem"),
            "certFile": agent.path("envoy.pem"),
            "keyFile": agent.path("envoy.key"),
        },
        "tokenFile": agent.path("token"),
    });
    Stack::builder().picker_field("agent", access)
}

#[tokio::test(flavor = "multi_thread")]
async fn readings_come_over_mutual_tls_with_a_token_that_may_change() {
    let agent = SecuredAgent::start().await;
    let stack = agent.start_stack(builder(&agent, "right")).await;
    stack.wait_until_picking().await;
    prefer(&stack, 1).await;

    agent.set_tokens("right\nnext\n");
    fs::write(agent.path("token"), "next\n").unwrap();
    prefer(&stack, 2).await;
    agent.set_tokens("next\n");
    prefer(&stack, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_wrong_token_the_log_says_why_until_it_is_right() {
    let agent = SecuredAgent::start().await;
    let stack = agent.start_stack(builder(&agent, "wrong").picker_field("failureMode", "FailClose")).await;
    eventually("the log has the reason", async || {
        let log = stack.envoy().log().unwrap();
        if log.contains("the agent answered 401") { Ok(()) } else { Err(log) }
    })
    .await;
    assert_no_endpoints(stack.post(CHAT, &fresh_chat()).await, "without a snapshot").await;
    for log in [stack.envoy().log().unwrap(), agent.output()] {
        assert!(!log.contains("Bearer wrong"), "{log}");
    }

    fs::write(agent.path("token"), "right").unwrap();
    stack.wait_until_picking().await;
    assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
}

async fn start_agent(folder: &TempDir, listen: SocketAddr, number: usize) -> Agent {
    let endpoints = folder.path().join("endpoints.yaml");
    let flags = ["--endpoints-file".as_ref(), endpoints.as_os_str()];
    Agent::start(listen, flags, &folder.path().join(format!("agent-{number}.log"))).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn either_of_two_agents_can_be_killed() {
    let folder = tempfile::tempdir().unwrap();
    write_discovery(&folder.path().join("endpoints.yaml"), &[]).unwrap();
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut agents = [start_agent(&folder, any_port, 0).await, start_agent(&folder, any_port, 1).await];
    let addresses = agents.each_ref().map(|agent| format!("http://{}", agent.address()));
    let builder = Stack::builder().own_agent(agents[0].address());
    let stack = builder.picker_field("agent", json!({"addresses": addresses})).start().await;
    let servers: Vec<_> = stack.servers().iter().map(ModelServer::address).collect();
    write_discovery(&folder.path().join("endpoints.yaml"), &servers).unwrap();
    stack.wait_until_picking().await;
    for killed in [0, 1] {
        prefer(&stack, 0).await;
        agents[killed].kill();
        for _ in 0..50 {
            let answer = client::http1().post(stack.url(CHAT)).json(&fresh_chat()).send().await;
            assert_eq!(answer.unwrap().status(), StatusCode::OK);
        }
        prefer(&stack, 1).await;
        prefer(&stack, 2).await;
        let address = agents[killed].address();
        agents[killed] = start_agent(&folder, address, killed).await;
    }
    assert_eq!(complete_statistics(&stack).await.count(ROUTED_STALE), 0);
}
