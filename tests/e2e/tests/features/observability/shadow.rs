//! A shadow configuration: it decides on live requests and does not act.

use anyhow::Context;
use endpoint_picker_e2e::fixture::{CHAT, fresh_chat, fresh_prompt, proxy_name, until_all_go_to};
use endpoint_picker_e2e::policy_fixture::PolicyFixture;
use endpoint_picker_e2e::statistics::complete_statistics;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_wire::v1;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// An `EndpointPickerConfig` of these plugins.
fn config(metadata: &str, plugins: &str) -> String {
    format!(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n{metadata}plugins: [{plugins}]\n---\n"
    )
}

/// A configuration that acts, and one that is tried.
fn trial(acting: &str, shadow: &str) -> String {
    let metadata = "metadata: {name: default, annotations: {endpoint-picker/shadow: \"true\"}}\n";
    config("", acting) + &config(metadata, shadow)
}

const QUEUE: &str = "{type: queue-scorer}";
const CACHE: &str = "{type: kv-cache-utilization-scorer}";
const PREFIX: &str = "{type: prefix-cache-scorer}";

/// The numbers of shadow decisions that agreed and that did not, of all requests so far.
async fn shadow_counts(stack: &Stack) -> (u64, u64) {
    let statistics = complete_statistics(stack).await;
    let count = |name: &str| statistics.count(&format!("shadow_{name}{{pool=\"default\"}}"));
    (count("agreed"), count("disagreed"))
}

/// Sends these requests one after another; returns the server of each, and how often the shadow agreed and
/// disagreed.
async fn send(stack: &Stack, bodies: &[&Value]) -> (Vec<usize>, (u64, u64)) {
    let before = shadow_counts(stack).await;
    let mut servers = Vec::new();
    for body in bodies {
        let response = stack.post(CHAT, body).await;
        assert_eq!(response.status(), StatusCode::OK);
        servers.push(stack.served_by(&response));
    }
    let after = shadow_counts(stack).await;
    (servers, (after.0 - before.0, after.1 - before.1))
}

/// Waits until the agent's metrics have exactly these counts of shadow decisions.
async fn until_agent_counts(stack: &Stack, counts: &[(&str, u64)]) {
    let series = "endpoint_picker_shadow_decisions_total{";
    let proxy = proxy_name(stack);
    let expected = counts.iter().map(|(agrees, count)| {
        format!("{series}pool=\"default\",proxy=\"{proxy}\",agrees=\"{agrees}\"}} {count}")
    });
    let expected: BTreeSet<String> = expected.collect();
    eventually("the agent has the counts of the filter", async || {
        let metrics = stack.agent().context("an agent")?.metrics().await?;
        let found = metrics.lines().filter(|line| line.starts_with(series)).map(str::to_owned).collect();
        anyhow::ensure!(expected == found, "expected {expected:?}, found {found:?}");
        Ok(())
    })
    .await;
}

/// Gives every server a queue but one, and every server a full cache but one, and waits until requests follow
/// the queues.
async fn load(stack: &Stack, no_queue: usize, empty_cache: usize) {
    for (index, server) in stack.servers().iter().enumerate() {
        server.update_metrics(|metrics| {
            metrics.waiting = if index == no_queue { 0 } else { 5 };
            metrics.kv_cache_usage = if index == empty_cache { 0.1 } else { 0.6 };
        });
    }
    until_all_go_to(stack, no_queue).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_of_the_same_rules_always_agrees() {
    let rules = [QUEUE, CACHE, PREFIX, "{type: no-hit-lru-scorer}"].join(", ");
    let stack = Stack::builder().workers(4).manifests(&trial(&rules, &rules)).start().await;
    let prompts = [(); 5].map(|()| client::chat(&fresh_prompt().repeat(4)));
    let prompts: Vec<_> = prompts.iter().cycle().take(40).collect();
    assert_eq!(send(&stack, &prompts).await.1, (40, 0));
    assert_eq!(shadow_counts(&stack).await.1, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_with_other_weights_disagrees_and_requests_follow_the_acting_rules() {
    let stack = Stack::builder()
        .picker_field("explain", json!({"accessLog": true}))
        .manifests(&trial(QUEUE, CACHE))
        .start()
        .await;
    load(&stack, 0, 2).await;
    let prompts = [(); 20].map(|()| fresh_chat());
    let prompts = prompts.each_ref();
    assert_eq!(send(&stack, &prompts).await, (vec![0; 20], (0, 20)));
    let path = format!("{CHAT}?why");
    stack.post(&path, &fresh_chat()).await;
    let entry = stack.logged(&path).await;
    let objection = format!("; the shadow picks {}", stack.servers()[2].endpoint());
    let text = entry["explanation"].as_str().unwrap_or_default();
    assert!(text.starts_with("routed; ") && text.ends_with(&objection), "{entry}");

    load(&stack, 1, 1).await;
    eventually("every worker has a shadow that sees the same server as the best", async || {
        let result = send(&stack, &prompts).await;
        if result == (vec![1; 20], (20, 0)) { Ok(()) } else { Err(format!("{result:?}")) }
    })
    .await;

    let (agreed, disagreed) = shadow_counts(&stack).await;
    until_agent_counts(&stack, &[("true", agreed), ("false", disagreed)]).await;
    // Without the shadow nothing is compared, and the counters stay as they are.
    stack.set_manifests(&config("", QUEUE));
    eventually("no worker compares", async || match send(&stack, &prompts).await.1 {
        (0, 0) => Ok(()),
        counts => Err(format!("{counts:?}")),
    })
    .await;
    let (agreed, disagreed) = shadow_counts(&stack).await;
    until_agent_counts(&stack, &[("true", agreed), ("false", disagreed)]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_records_the_endpoints_that_served() {
    let stack = Stack::builder().workers(4).manifests(&trial(QUEUE, PREFIX)).start().await;
    let body = client::chat(&fresh_prompt().repeat(4));
    load(&stack, 1, 1).await;
    assert_eq!(send(&stack, &[&body]).await, (vec![1], (1, 0)), "no server has the prompt, all are equal");
    assert_eq!(send(&stack, &[&body; 10]).await, (vec![1; 10], (10, 0)), "whichever worker, it knows");
    load(&stack, 2, 2).await;
    assert_eq!(send(&stack, &[&body]).await, (vec![2], (0, 1)), "the prompt is where it went");
    assert_eq!(send(&stack, &[&body; 10]).await, (vec![2; 10], (10, 0)), "there, too, now");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_with_an_unknown_plugin_is_left_out_and_the_rest_works() {
    let plugin =
        v1::Plugin { name: "new".to_owned(), r#type: "of-tomorrow".to_owned(), parameters: "{}".to_owned() };
    let config = v1::PickerConfig { plugins: vec![plugin], ..v1::PickerConfig::default() };
    let fixture =
        PolicyFixture::start(v1::Policy { shadow_config: Some(config), ..v1::Policy::default() }).await;
    assert_eq!(fixture.ask("llama", &[]).await.status(), StatusCode::OK);
    fixture.received();
    assert_eq!(shadow_counts(&fixture.stack).await, (0, 0));
    let log = fixture.stack.envoy().log().unwrap();
    assert!(log.contains("the shadow configuration is left out: ") && log.contains("of-tomorrow"), "{log}");
}
