//! A configuration without `allow_on_headers_stop_iteration`, with which Envoy keeps bodies from the filter.

use endpoint_picker_e2e::fixture::{CHAT, fresh_chat};
use endpoint_picker_e2e::statistics::statistics;
use endpoint_picker_harness::config::Config;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Agent;
use endpoint_picker_harness::stack::Stack;
use reqwest::StatusCode;
use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr};

fn without_flag(config: &mut Config) -> anyhow::Result<()> {
    let picker = config.picker()?["typed_config"]["config"].as_object_mut();
    let flag = picker.and_then(|picker| picker.remove("allow_on_headers_stop_iteration"));
    anyhow::ensure!(flag.is_some(), "the configuration has no such flag");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_withheld_body_is_noticed_and_logged_once_and_the_failure_mode_decides() {
    let folder = tempfile::tempdir().unwrap();
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let flags = ["--endpoint", "127.0.0.1:9"];
    let agent = Agent::start(any_port, flags, &folder.path().join("agent.log")).await.unwrap();
    let stack = Stack::builder().workers(1).own_agent(agent.address()).change(without_flag).start().await;
    eventually("a snapshot", async || {
        let statistics = statistics(&stack).await;
        if statistics.count(r#"snapshots{pool="default"}"#) > 0 { Ok(()) } else { Err(statistics) }
    })
    .await;
    let held = stack.post(CHAT, &fresh_chat()).await;
    assert_eq!(held.status(), StatusCode::SERVICE_UNAVAILABLE);
    let error: Value = held.json().await.unwrap();
    assert_eq!(
        error["error"]["message"],
        "the proxy does not pass the request's body on to the endpoint picker"
    );
    // Envoy balances the next ones.
    for _ in 0..3 {
        assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
    }
    let log = stack.envoy().log().unwrap();
    assert_eq!(log.matches("needs allow_on_headers_stop_iteration: true").count(), 1, "{log}");
}
