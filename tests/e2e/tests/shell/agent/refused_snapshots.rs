//! A snapshot that the filter cannot use.

use anyhow::ensure;
use endpoint_picker_e2e::fixture::{CHAT, LEAST_LOADED, fresh_chat, until_every_worker};
use endpoint_picker_harness::Filter;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::scripted_agent::{Pool, ScriptedAgent};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_model_server::ModelServer;
use endpoint_picker_wire::v1;
use reqwest::StatusCode;
use serde_json::Value;
use std::net::SocketAddr;

const POOL: &str = "default";

/// A policy of a later version of the agent, as far as this filter can see.
fn unknown_plugin() -> v1::Policy {
    let plugin = v1::Plugin {
        name: "scorer".to_owned(),
        r#type: "magic-scorer".to_owned(),
        parameters: String::new(),
    };
    let picker_config = v1::PickerConfig { plugins: vec![plugin], ..v1::PickerConfig::default() };
    v1::Policy { picker_config: Some(picker_config), ..v1::Policy::default() }
}

fn set(agent: &ScriptedAgent, endpoints: &[SocketAddr], policy: v1::Policy) {
    agent.set(POOL, Pool { endpoints: endpoints.to_vec(), waiting: 0, policy });
}

async fn until_all_go_to(stack: &Stack, server: usize) {
    until_every_worker(&format!("sends to server {server}"), async || {
        let answer = stack.post(CHAT, &fresh_chat()).await;
        ensure!(answer.status() == StatusCode::OK, "{}", answer.status());
        let served = stack.served_by(&answer);
        ensure!(served == server, "it went to {served}");
        Ok(())
    })
    .await;
}

/// Waits until the agent has sent this many further snapshots.
async fn until_polled(agent: &ScriptedAgent, more: usize) {
    let before = agent.snapshots();
    eventually(&format!("{more} more polls"), async || match agent.snapshots() - before {
        polls if polls >= more => Ok(()),
        polls => Err(format!("{polls}")),
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_snapshot_is_ignored_and_a_rollback_is_used() {
    let agent = ScriptedAgent::start().await.unwrap();
    let stack = Stack::builder().own_agent(agent.address()).start().await;
    let endpoints: Vec<_> = stack.servers().iter().map(ModelServer::address).collect();
    set(&agent, &endpoints[..1], v1::Policy::default());
    until_all_go_to(&stack, 0).await;

    let topologies = agent.topologies();
    set(&agent, &endpoints[1..2], unknown_plugin());
    until_polled(&agent, 8).await;
    let sent = agent.topologies() - topologies;
    assert!((1..=3).contains(&sent), "the refused topology was sent {sent} times");
    until_all_go_to(&stack, 0).await;

    set(&agent, &endpoints[2..], v1::Policy::default());
    until_all_go_to(&stack, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envoy_that_starts_with_such_a_snapshot_picks_after_the_rollback() {
    let agent = ScriptedAgent::start().await.unwrap();
    set(&agent, &[SocketAddr::from(([127, 0, 0, 1], 1))], unknown_plugin());
    let stack = Stack::builder().own_agent(agent.address()).start().await;
    until_polled(&agent, 4).await;
    set(&agent, &[stack.servers()[1].address()], v1::Policy::default());
    until_all_go_to(&stack, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_only_in_the_form_of_the_filter_that_has_a_queue() {
    let stack = Stack::builder().manifests(LEAST_LOADED).start().await;
    stack.wait_until_picking().await;
    stack.set_manifests(&format!("{LEAST_LOADED}featureGates: [flowControl]\n"));
    let status = format!("http://{}/v1/pools/default", stack.agent_address());
    eventually("the configuration is in use or refused", async || {
        let log = stack.envoy().log()?;
        let reason = "the feature gate flowControl is on, and only the native module has a queue";
        let status: Value = client::http1().get(&status).send().await?.json().await?;
        let expected = match stack.filter() {
            Filter::Wasm => (true, false),
            Filter::Native => (false, true),
        };
        let found = (log.contains(reason), status["queue"].is_object());
        ensure!(found == expected, "{found:?}: {status}");
        anyhow::Ok(())
    })
    .await;
    assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
}
