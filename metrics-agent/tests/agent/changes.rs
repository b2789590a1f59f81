//! Proxies that share changes through the agent.

use endpoint_picker_wire::changes::{Feed, Position, Sync};
use endpoint_picker_wire::{CHANGES_FORMAT, Message, OTHER_FORMAT_STATUS};
use metrics_agent::agent::Settings;
use metrics_agent::sharing::Share;
use metrics_agent_status::pool::{PoolStatus, SharingStatus};

use crate::harness::{Agent, eventually, scraping};
use crate::reports::post_for_bytes;
use crate::scripted::{Behaviour, ScriptedServer, load};

const PATH: &str = "/v1/pools/default/changes";
const PROTOBUF: &str = "application/x-protobuf";

async fn agent(share: Share) -> (Agent, ScriptedServer) {
    let server = ScriptedServer::start(Behaviour::Text(load(3, 1))).await;
    let agent = Agent::start(Settings { share, ..scraping(&[server.address()]) }).await;
    agent.snapshot_where("a snapshot", |_| true).await;
    (agent, server)
}

/// The number of requests with this outcome.
async fn syncs(agent: &Agent, outcome: &str) -> String {
    let name = format!("metrics_agent_exchanges_total{{outcome=\"{outcome}\"}}");
    agent.metric(&name).await.to_string()
}

pub(crate) fn sync(sender: u64, positions: &[Position], changes: Option<&'static str>) -> Sync {
    Sync {
        format: CHANGES_FORMAT,
        sender,
        proxy: format!("envoy-{sender}"),
        positions: positions.to_vec(),
        changes: changes.map(|text| text.as_bytes().into()),
        age_ms: 7,
    }
}

/// Sends a sync. Returns the position, and the messages with their ages.
pub(crate) async fn send(agent: &Agent, sync: &Sync) -> (Position, Vec<(String, u64)>) {
    send_to(agent, "default", sync).await
}

/// The same for another pool.
pub(crate) async fn send_to(agent: &Agent, pool: &str, sync: &Sync) -> (Position, Vec<(String, u64)>) {
    let path = format!("/v1/pools/{pool}/changes");
    let (status, body) = post_for_bytes(agent, &path, PROTOBUF, &sync.encode_to_vec()).await;
    assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
    let feed = Feed::decode(body.as_slice()).unwrap();
    assert_eq!(feed.format, CHANGES_FORMAT);
    let text = |changes: &[u8]| String::from_utf8(changes.to_vec()).unwrap();
    let deliveries = feed.deliveries.iter().map(|it| (text(&it.changes), it.age_ms)).collect();
    (feed.position.unwrap(), deliveries)
}

#[tokio::test]
async fn changes_of_one_proxy_reach_the_others_with_their_age() {
    let (agent, _server) = agent(Share::Agent).await;
    let (position, deliveries) = send(&agent, &sync(1, &[], Some("opaque to the agent"))).await;
    assert!(deliveries.is_empty(), "not back to their sender");
    let (_, deliveries) = send(&agent, &sync(2, &[], None)).await;
    let [(text, age_ms)] = deliveries.as_slice() else { panic!("{deliveries:?}") };
    assert!(text == "opaque to the agent" && *age_ms >= 7, "{deliveries:?}");
    send(&agent, &sync(2, &[], Some("answer"))).await;
    let other_feed = Position { feed: 1, next: 1000 };
    let (next, deliveries) = send(&agent, &sync(1, &[other_feed, position], None)).await;
    assert_eq!((deliveries.len(), next), (1, Position { next: 2, ..position }));
    assert_eq!(syncs(&agent, "accepted").await, "4");
}

#[tokio::test]
async fn an_agent_that_does_not_share_answers_404() {
    let (agent, _server) = agent(Share::Off).await;
    let (status, body) = post_for_bytes(&agent, PATH, PROTOBUF, &sync(1, &[], None).encode_to_vec()).await;
    let body = String::from_utf8(body).unwrap();
    assert!(status == 404 && body.contains("--share"), "{status} {body}");
}

#[tokio::test]
async fn an_invalid_sync_is_refused_with_the_reason() {
    let (agent, _server) = agent(Share::Agent).await;
    let good = sync(1, &[], Some("never read")).encode_to_vec();
    let other_format = Sync { format: 9, ..sync(1, &[], None) }.encode_to_vec();
    let long_name = Sync { proxy: "x".repeat(257), ..sync(1, &[], None) }.encode_to_vec();
    for (path, kind, body, status, reason) in [
        (PATH, PROTOBUF, &b"\xff\xff\xff"[..], 400, "malformed"),
        (PATH, PROTOBUF, &other_format, OTHER_FORMAT_STATUS, "format 9"),
        (PATH, PROTOBUF, &long_name, 400, "257 bytes"),
        (PATH, "text/plain", &good, 415, "application/x-protobuf"),
        ("/v1/pools/other/changes", PROTOBUF, &good, 404, "no such pool"),
        (PATH, PROTOBUF, &vec![0; (1 << 20) + 1], 413, "1048576 bytes"),
    ] {
        let (found, answer) = post_for_bytes(&agent, path, kind, body).await;
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(found, status, "{path} {kind}: {answer}");
        assert!(answer.contains(reason), "{answer}");
    }
    assert!(send(&agent, &sync(2, &[], None)).await.1.is_empty());
    assert_eq!(syncs(&agent, "refused").await, "6");
}

#[tokio::test]
async fn page_and_metrics_show_how_far_behind_a_proxy_is() {
    let (agent, _server) = agent(Share::Agent).await;
    send(&agent, &sync(2, &[], None)).await;
    for text in ["one", "two"] {
        send(&agent, &sync(1, &[], Some(text))).await;
    }
    let unread = "endpoint_picker_sharing_unread_messages{pool=\"default\",proxy=\"envoy-2\"}";
    assert_eq!(agent.metric(unread).await.to_string(), "2");
    let behind = "endpoint_picker_sharing_behind_seconds{pool=\"default\",proxy=\"envoy-2\"}";
    let before = agent.metric(behind).await;
    eventually("it grows", async || (agent.metric(behind).await > before + 0.05).then_some(())).await;
    let text = agent.get("/v1/pools/default").await.text();
    let status: PoolStatus = serde_json::from_str(&text).unwrap();
    let SharingStatus { proxies, store } = status.sharing.unwrap();
    let unread: Vec<_> = proxies.iter().map(|it| (it.proxy.as_str(), it.unread, it.missed)).collect();
    assert_eq!((unread, store), (vec![("envoy-1", 0, 0), ("envoy-2", 2, 0)], None));
    send(&agent, &sync(2, &[], None)).await;
    assert_eq!(agent.metric(behind).await.to_string(), "0");
}
