//! Pools that share through a store, and others that do not.

use std::time::Instant;

use endpoint_picker_wire::changes::Stored;
use endpoint_picker_wire::{CHANGES_FORMAT, Message};
use metrics_agent::agent::Settings;
use metrics_agent::sharing::Share;
use metrics_agent::store::StoreAddress;
use metrics_agent_catalogue::watch;
use tempfile::TempDir;

use super::server::Store;
use super::{agent, model_server, until_read};
use crate::changes::{send, send_to, sync};
use crate::harness::{Agent, eventually, options_for, scraping};

/// The stream of the pool `default`.
const STREAM: &str = "endpoint-picker/changes/{default}";

#[tokio::test]
async fn proxies_of_two_agents_share_through_the_store_and_other_pools_do_not() {
    let store = Store::start(&[]).await;
    let url = store.url();
    let server = model_server().await;
    let (one, two) = (agent("default", &url, &server).await, agent("default", &url, &server).await);
    let other = agent("other", &url, &server).await;
    send_to(&other, "other", &sync(3, &[], None)).await;
    send(&two, &sync(2, &[], None)).await;
    let sent = Instant::now();
    send(&one, &sync(1, &[], Some("from one"))).await;
    let age_ms = until_read(&two, 2, "from one").await;
    assert!((7..=sent.elapsed().as_millis() + 10).contains(&age_ms.into()), "{age_ms} ms");
    send(&two, &sync(2, &[], Some("from two"))).await;
    until_read(&one, 1, "from two").await;
    // An agent that starts reads what was sent before.
    let late = agent("default", &url, &server).await;
    until_read(&late, 4, "from one").await;
    assert!(send_to(&other, "other", &sync(3, &[], None)).await.1.is_empty());
    assert!(store.command("TTL endpoint-picker/changes/{default}").await.starts_with(":1"), "it expires");
    assert_eq!(one.metric("metrics_agent_store_unreadable_total").await.to_string(), "0");
}

/// An agent that reads a pool `llama` of this namespace from a file.
async fn agent_of_file(namespace: &str, url: &str, folder: &TempDir) -> Agent {
    let path = folder.path().join(format!("{namespace}.yaml"));
    let pool = format!(
        "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {{name: llama, namespace: {namespace}}}\n\
         spec: {{selector: {{matchLabels: {{app: a}}}}, targetPorts: [{{number: 8000}}]}}\n"
    );
    std::fs::write(&path, pool).unwrap();
    let share = Share::Store(StoreAddress::parse(url).unwrap());
    let manifests = Some(watch::ManifestSettings { path, options: options_for("default") });
    let agent =
        Agent::start(Settings { share, manifests, ..scraping(&["127.0.0.1:1".parse().unwrap()]) }).await;
    eventually("the pool is there", async || {
        (agent.get("/v1/pools/llama/snapshot").await.status == 200).then_some(())
    })
    .await;
    agent
}

#[tokio::test]
async fn pools_of_one_name_in_the_files_of_two_namespaces_do_not_share() {
    let store = Store::start(&[]).await;
    let url = store.url();
    let folder = tempfile::tempdir().unwrap();
    let (one, same) = (agent_of_file("a", &url, &folder).await, agent_of_file("a", &url, &folder).await);
    let other = agent_of_file("b", &url, &folder).await;
    for (agent, sender, text) in [(&other, 3, "from b"), (&one, 1, "from a")] {
        send_to(agent, "llama", &sync(sender, &[], Some(text))).await;
    }
    eventually("the message of its own pool", async || {
        let (_, deliveries) = send_to(&same, "llama", &sync(2, &[], None)).await;
        assert!(deliveries.iter().all(|(text, _)| text == "from a"), "{deliveries:?}");
        (!deliveries.is_empty()).then_some(())
    })
    .await;
    let (_, deliveries) = send_to(&other, "llama", &sync(4, &[], None)).await;
    let texts: Vec<_> = deliveries.iter().map(|(text, _)| text.as_str()).collect();
    assert_eq!(texts, ["from b"]);
}

#[tokio::test]
async fn an_entry_that_is_too_large_is_passed_over_and_keeps_nothing_back() {
    let store = Store::start(&[]).await;
    let url = store.url();
    let server = model_server().await;
    let (one, two) = (agent("default", &url, &server).await, agent("default", &url, &server).await);
    for agent in [&one, &two] {
        send(agent, &sync(9, &[], None)).await;
    }
    let changes = vec![b'x'; 24 << 20].into();
    let large = Stored { format: CHANGES_FORMAT, agent: 7, sender: 7, age_ms: 0, changes };
    store.add(STREAM, "*", "m", &large.encode_to_vec()).await;
    send(&one, &sync(1, &[], Some("from one"))).await;
    until_read(&two, 2, "from one").await;
    for agent in [&one, &two] {
        eventually("it is counted", async || {
            (agent.metric("metrics_agent_store_unreadable_total").await.to_string() == "1").then_some(())
        })
        .await;
        let (_, deliveries) = send(agent, &sync(9, &[], None)).await;
        assert!(deliveries.iter().all(|(text, _)| text == "from one"), "{} messages", deliveries.len());
    }
}

#[tokio::test]
async fn a_stream_that_has_had_the_last_number_is_removed_and_used_again() {
    let store = Store::start(&[]).await;
    let url = store.url();
    let server = model_server().await;
    let (one, two) = (agent("default", &url, &server).await, agent("default", &url, &server).await);
    send(&one, &sync(1, &[], Some("before"))).await;
    until_read(&two, 2, "before").await;
    let last = format!("{0}-{0}", u64::MAX);
    store.add(STREAM, &last, "m", b"any").await;
    for agent in [&one, &two] {
        eventually("it is read", async || {
            (agent.metric("metrics_agent_store_unreadable_total").await > 0.5).then_some(())
        })
        .await;
    }
    send(&one, &sync(1, &[], Some("from one"))).await;
    until_read(&two, 2, "from one").await;
    send(&two, &sync(2, &[], Some("from two"))).await;
    until_read(&one, 1, "from two").await;
}

#[tokio::test]
async fn a_store_that_is_killed_and_comes_back_empty_is_used_again_and_no_proxy_waits_for_it() {
    let mut store = Store::start(&[]).await;
    let url = store.url();
    let server = model_server().await;
    let (one, two) = (agent("default", &url, &server).await, agent("default", &url, &server).await);
    send(&one, &sync(1, &[], Some("before"))).await;
    until_read(&two, 2, "before").await;
    store.kill();
    eventually("the agent has it", async || {
        send(&one, &sync(1, &[], None)).await;
        (one.metric("metrics_agent_store_connected_pools").await < 0.5).then_some(())
    })
    .await;
    eventually("the agent shows how far behind it is", async || {
        let behind = one.metric("metrics_agent_store_read_behind_seconds{pool=\"default\"}").await;
        (behind > 0.1).then_some(())
    })
    .await;
    send(&one, &sync(1, &[], Some("meanwhile"))).await;
    let unwritten = "metrics_agent_store_unwritten_messages{pool=\"default\"}";
    assert!(one.metric(unwritten).await > 0.5);
    let (_, deliveries) = send(&one, &sync(5, &[], None)).await;
    assert!(deliveries.iter().any(|(text, _)| text == "meanwhile"), "proxies of one agent go on");
    store.restart().await;
    until_read(&two, 2, "meanwhile").await;
    send(&two, &sync(2, &[], Some("after"))).await;
    until_read(&one, 1, "after").await;
    assert_eq!(one.metric(unwritten).await.to_string(), "0");
    assert_eq!(one.metric("metrics_agent_store_dropped_total").await.to_string(), "0");
    assert!(one.metric("metrics_agent_store_failures_total").await > 0.5);
}
