//! KV-cache events over real sockets: recorded and hostile publishers, restarts, gaps and replays.

use std::net::SocketAddr;
use std::num::NonZeroU16;

use axum::Router;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endpoint_picker_model_server::kv_events::{Publisher, message, shake_hands};
use metrics_agent::agent::Settings;
use metrics_agent_kv_events::index::Limits;
use metrics_agent_kv_events::{self as kv_events, Ports};
use metrics_agent_status::pool::{KvEventsStatus, PoolStatus, StreamState};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::harness::{Agent, eventually, scraping};
use crate::scripted::load;

/// Waits until a publisher has a subscriber.
pub(crate) async fn has_subscriber(publisher: &Publisher) {
    eventually("a subscription", async || (publisher.subscriptions() > 0).then_some(())).await;
}

/// The ports of a publisher.
pub(crate) fn ports(publisher: &Publisher, has_replay: bool) -> Ports {
    let port = |address: SocketAddr| NonZeroU16::new(address.port()).unwrap();
    let replay = has_replay.then(|| port(publisher.replay()));
    Ports::Fixed { events: port(publisher.events()), replay }
}

/// The payloads of recorded messages.
fn recorded(text: &str) -> Vec<Vec<u8>> {
    let payload = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        STANDARD.decode(line["frames"][2].as_str().unwrap()).unwrap()
    };
    text.lines().map(payload).collect()
}

pub(crate) fn base() -> Vec<Vec<u8>> {
    recorded(include_str!("../captures/kv-events/base.events.jsonl"))
}

/// A model server whose response to `/kv_event_sources` has these endpoints.
async fn model_server(sources: String) -> (SocketAddr, AbortOnDropHandle<()>) {
    let router = Router::new()
        .route("/metrics", get(|| async { load(0, 0) }))
        .route("/kv_event_sources", get(move || async { sources }));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (address, AbortOnDropHandle::new(serving))
}

fn following(address: SocketAddr, ports: Ports, max_blocks: usize) -> Settings {
    let limits = Limits { blocks: max_blocks, prefix_tokens: 32 };
    let kv_events =
        kv_events::KvEventSettings { ports, limits, tokenizers: Vec::new(), by_token_ids: Vec::new() };
    Settings { kv_events: Some(kv_events), ..scraping(&[address]) }
}

/// Waits until what is known about the only endpoint's cache passes.
pub(crate) async fn events_where(
    agent: &Agent,
    what: &str,
    passes: impl Fn(&KvEventsStatus) -> bool,
) -> KvEventsStatus {
    eventually(what, async || {
        let answer = agent.get("/v1/pools/default").await;
        let status: PoolStatus = serde_json::from_slice(&answer.body).ok()?;
        status.endpoints.first()?.kv_events.clone().filter(&passes)
    })
    .await
}

/// A metric of the agent's own about events.
async fn value(agent: &Agent, metric: &str) -> String {
    agent.metric(&format!("metrics_agent_kv_event_{metric}")).await.to_string()
}

/// Blocks of the recorded messages 0 to 27, before the reset.
const BLOCKS: u64 = 47;

#[tokio::test]
async fn a_server_is_asked_where_it_publishes_and_a_replay_has_what_was_before() {
    let publisher = Publisher::start().unwrap();
    publisher.publish(&base()[..20]);
    let (events, replay) = (publisher.events().port(), publisher.replay().port());
    let source = format!(
        r#"{{"publisher": "zmq", "endpoint": "tcp://*:{events}", "replay_endpoint": "tcp://*:{replay}"}}"#
    );
    let (address, _serving) = model_server(format!(r#"{{"0": {source}}}"#)).await;
    let agent = Agent::start(following(address, Ports::Discovered, 1000)).await;
    let known = |status: &KvEventsStatus| status.state == StreamState::Complete && status.age_ms.is_some();
    let status = events_where(&agent, "the replay", known).await;
    assert_eq!((status.caches, status.orphans, status.problem), (1, 0, None));
    has_subscriber(&publisher).await;
    publisher.publish(&base()[20..28]);
    let status = events_where(&agent, "new events", |status| status.blocks == BLOCKS).await;
    assert_eq!(status.tokens, [("gpu".to_owned(), 32 * BLOCKS)].into());
    // The recorded reset, with three blocks after it.
    publisher.publish(&base()[28..]);
    events_where(&agent, "the reset", |status| status.blocks == 3 && status.state == StreamState::Complete)
        .await;
    assert_eq!(value(&agent, "messages_total").await, "30", "29 and the end of the replay");
    assert_eq!(value(&agent, "replays_total{result=\"ok\"}").await, "1");
    let labels = format!("pool=\"default\",endpoint=\"default/{address}\"");
    assert_eq!(value(&agent, &format!("tokens{{{labels},tier=\"gpu\"}}")).await, "96");
    let age = format!("metrics_agent_kv_event_age_seconds{{{labels}}} ");
    assert!(agent.get("/metrics").await.text().contains(&age));
    assert_eq!(value(&agent, "states{pool=\"default\",state=\"complete\"}").await, "1");
}

#[tokio::test]
async fn a_server_that_does_not_publish_is_named_with_the_reason() {
    let (address, _serving) = model_server("{}".to_owned()).await;
    let agent = Agent::start(following(address, Ports::Discovered, 1000)).await;
    let status = events_where(&agent, "the reason", |status| status.problem.is_some()).await;
    assert_eq!(status.state, StreamState::Disconnected);
    assert!(
        status.problem.as_ref().is_some_and(|problem| problem.contains("--kv-events-config")),
        "{status:?}"
    );
}

#[tokio::test]
async fn a_gap_is_closed_by_a_replay() {
    let publisher = Publisher::start().unwrap();
    publisher.lose([3, 4, 5]);
    let (address, _serving) = model_server(String::new()).await;
    let agent = Agent::start(following(address, ports(&publisher, true), 1000)).await;
    has_subscriber(&publisher).await;
    publisher.publish(&base()[..1]);
    events_where(&agent, "the first message", |status| status.blocks == 3).await;
    publisher.publish(&base()[1..28]);
    events_where(&agent, "all blocks", |status| status.blocks == BLOCKS).await;
    assert_eq!(value(&agent, "gaps_total").await, "1");
    assert_eq!(value(&agent, "restarts_total").await, "0");
}

#[tokio::test]
async fn a_failed_replay_is_tried_again() {
    let publisher = Publisher::start().unwrap();
    publisher.fail_replays(1);
    publisher.publish(&base()[..20]);
    let (address, _serving) = model_server(String::new()).await;
    let agent = Agent::start(following(address, ports(&publisher, true), 1000)).await;
    events_where(&agent, "the failure", |status| status.problem.is_some()).await;
    has_subscriber(&publisher).await;
    publisher.publish(&base()[20..28]);
    events_where(&agent, "the messages since", |status| {
        status.state == StreamState::Partial && status.blocks > 0
    })
    .await;
    events_where(&agent, "the replay", |status| {
        status.state == StreamState::Complete && status.blocks == BLOCKS
    })
    .await;
    assert_eq!(value(&agent, "restarts_total").await, "0");
}

#[tokio::test]
async fn without_a_replay_a_gap_and_a_lost_connection_empty_the_cache() {
    let publisher = Publisher::start().unwrap();
    publisher.lose([1]);
    let (address, _serving) = model_server(String::new()).await;
    let agent = Agent::start(following(address, ports(&publisher, false), 1000)).await;
    has_subscriber(&publisher).await;
    publisher.publish(&base()[..1]);
    events_where(&agent, "the first message", |status| status.state == StreamState::Complete).await;
    publisher.publish(&base()[1..3]);
    let status = events_where(&agent, "the message after the gap", |status| status.blocks == 1).await;
    assert_eq!((status.state, status.orphans), (StreamState::Partial, 1));
    drop(publisher);
    events_where(&agent, "the end", |status| status.state == StreamState::Disconnected && status.blocks == 0)
        .await;
}

#[tokio::test]
async fn a_restarted_server_has_only_what_it_published_since() {
    let mut publisher = Publisher::start().unwrap();
    publisher.publish(&base()[..20]);
    let (address, _serving) = model_server(String::new()).await;
    let agent = Agent::start(following(address, ports(&publisher, true), 1000)).await;
    events_where(&agent, "the first process", |status| status.state == StreamState::Complete).await;
    publisher.restart().await.unwrap();
    // More messages than before, so that their numbers show nothing.
    let evict = recorded(include_str!("../captures/kv-events/evict.events.jsonl"));
    publisher.publish(&evict);
    events_where(&agent, "the other process", |status| {
        status.state == StreamState::Complete && (1..=39).contains(&status.blocks)
    })
    .await;
    assert_eq!(value(&agent, "restarts_total").await, "1");
    assert_eq!(value(&agent, "blocks").await, "38");
}

#[tokio::test]
async fn hostile_publishers_cost_nothing_but_their_own_cache() {
    let good = Publisher::start().unwrap();
    good.publish(&base()[..28]);
    let (address, _serving) = model_server(String::new()).await;
    // Announces a frame of 64 TiB, another protocol, and garbage in frames.
    let huge = [&[2][..], &(1_u64 << 46).to_be_bytes()].concat();
    for bytes in
        [huge, b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(9), message(&[b"", &[0; 8], &[0xdd; 9999]])]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = NonZeroU16::new(listener.local_addr().unwrap().port()).unwrap();
        let _hostile = AbortOnDropHandle::new(tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                if shake_hands(&mut stream, "PUB").await.is_ok() {
                    let _ = stream.write_all(&bytes).await;
                    let _ = stream.read_to_end(&mut Vec::new()).await;
                }
            }
        }));
        let agent = Agent::start(following(address, Ports::Fixed { events: port, replay: None }, 1000)).await;
        let unreadable =
            async || agent.metric("metrics_agent_kv_event_unreadable_messages_total").await > 0.0;
        eventually("a refusal", async || {
            let answer = agent.get("/v1/pools/default").await;
            let status: PoolStatus = serde_json::from_slice(&answer.body).ok()?;
            let is_refused = status.endpoints.first()?.kv_events.as_ref()?.problem.is_some();
            (is_refused || unreadable().await).then_some(())
        })
        .await;
        agent.reading_where("scrapes go on", |reading| reading.waiting == Some(0)).await;
    }
    // More blocks than the limit allows.
    let agent = Agent::start(following(address, ports(&good, true), 16)).await;
    events_where(&agent, "some blocks", |status| (1..=16).contains(&status.blocks)).await;
    let evicted = async || agent.metric("metrics_agent_kv_event_evicted_blocks_total").await > 0.0;
    eventually("evicted blocks", async || evicted().await.then_some(())).await;
}
