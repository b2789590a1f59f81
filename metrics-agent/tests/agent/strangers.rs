//! Clients without credentials that take all places: proxies with a token are served all the same.

use std::net::SocketAddr;
use std::time::Duration;

use endpoint_picker_wire::{Message, decode, v1};
use metrics_agent::agent::Settings;
use metrics_agent::api::access::credentials::{Files, Unauthenticated};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::changes::sync;
use crate::harness::{Agent, Answer, DEADLINE, eventually, scraping, send};
use crate::reports::report;
use crate::rights::files;
use crate::scripted::{Behaviour, ScriptedServer, load};

/// A sixteenth of the defaults: a test may not open thousands of files everywhere.
const CONNECTIONS: usize = 128;
const PER_PEER: usize = 16;
const WAITERS: u16 = 64;

const TOKEN: &str = "authorization: Bearer full\r\n";

/// An agent that all may read and clients with a token may write to. Its server has been scraped once and
/// then fails, so that there is no newer snapshot.
async fn agent() -> (Agent, ScriptedServer, v1::Snapshot, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let server = ScriptedServer::start(Behaviour::Text(load(1, 1))).await;
    let unauthenticated = Unauthenticated { reads: true, ..Unauthenticated::default() };
    let credentials = Files { read_tokens: None, unauthenticated, ..files(folder.path()) };
    let mut settings = Settings { credentials, max_waiters: WAITERS.into(), ..scraping(&[server.address()]) };
    settings.limits.max_connections = CONNECTIONS;
    settings.limits.max_connections_per_peer = PER_PEER;
    let agent = Agent::start(settings).await;
    agent.reading_where("a reading", |reading| reading.waiting == Some(1)).await;
    server.set_behaviour(Behaviour::Status(500));
    let failed = "metrics_agent_scrape_errors_total{reason=\"status\"}";
    eventually("a failed scrape", async || (agent.metric(failed).await > 0.5).then_some(())).await;
    let has = agent.snapshot("").await.unwrap();
    (agent, server, has, folder)
}

fn poll(has: &v1::Snapshot) -> String {
    let (topology, readings) = (has.topology_version, has.readings_version);
    format!("/v1/pools/default/snapshot?topology={topology}&readings={readings}&wait_ms=30000")
}

/// A connection of the stranger with this number; each address has only a part of its places.
async fn stranger(agent: SocketAddr, number: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    let host = u8::try_from(2 + number / (PER_PEER - 2)).unwrap();
    socket.bind(SocketAddr::from(([127, 0, 1, host], 0))).unwrap();
    socket.connect(agent).await.unwrap()
}

/// Half of a request of each of these strangers.
async fn half_requests(agent: SocketAddr, strangers: core::ops::Range<usize>) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for number in strangers {
        let mut stream = stranger(agent, number).await;
        // A connection that has made room for another one is closed.
        let _ = stream.write_all(b"GET /v1/pools HTTP/1.1\r\nhost: ").await;
        open.push(stream);
    }
    open
}

/// A request of a proxy over its own connection.
async fn of_proxy(stream: &mut TcpStream, path: &str) -> Answer {
    timeout(DEADLINE, send(stream, path, TOKEN)).await.expect("a response").expect("an open connection")
}

/// The status of a write of a proxy over a new connection.
async fn write(agent: &Agent, path: &str, body: &[u8]) -> u16 {
    let mut stream = TcpStream::connect(agent.address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{TOKEN}content-type: application/x-protobuf\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut response = Vec::new();
    let reading = stream.read_to_end(&mut response);
    timeout(DEADLINE, reading).await.expect("a response").expect("an open connection");
    String::from_utf8_lossy(&response).split(' ').nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn readers_without_credentials_do_not_take_the_places_of_proxies() {
    let (agent, server, has, _folder) = agent().await;
    let mut strangers = JoinSet::new();
    for number in 0..WAITERS {
        let (address, path) = (agent.address, poll(&has));
        strangers.spawn(async move { send(&mut stranger(address, number.into()).await, &path, "").await });
    }
    let waiters = async |count: f64| {
        let gauge = async || agent.metric("metrics_agent_snapshot_waiters").await;
        eventually("waiters", async || (gauge().await > count - 0.5).then_some(())).await;
    };
    waiters(f64::from(WAITERS)).await;
    // A stranger beyond them has no place to wait, and its response comes at once.
    let mut beyond = stranger(agent.address, WAITERS.into()).await;
    let response = timeout(DEADLINE, send(&mut beyond, &poll(&has), "")).await.expect("it does not wait");
    assert_eq!(response.unwrap().status, 204);
    let counted = "metrics_agent_snapshots_total{outcome=\"too_many_waiters\"}";
    assert!(agent.metric(counted).await > 0.5);
    // Proxies wait, and get the next snapshot.
    let mut proxies = JoinSet::new();
    for _ in 0..3 {
        let (address, path) = (agent.address, poll(&has));
        proxies.spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            of_proxy(&mut stream, &path).await
        });
    }
    waiters(f64::from(WAITERS + 3)).await;
    server.set_behaviour(Behaviour::Text(load(2, 2)));
    for response in proxies.join_all().await {
        assert_eq!(response.status, 200);
        assert_eq!(decode(&response.body).unwrap().readings[0].waiting, Some(2));
    }
    for response in strangers.join_all().await {
        assert_eq!(response.unwrap().status, 200, "strangers are served too");
    }
}

#[tokio::test]
async fn half_requests_keep_neither_proxies_nor_their_reports_and_changes_out() {
    let (agent, server, has, _folder) = agent().await;
    let mut early = TcpStream::connect(agent.address).await.unwrap();
    assert_eq!(of_proxy(&mut early, "/v1/pools/default/snapshot").await.status, 200);
    let _half = half_requests(agent.address, 0..2 * CONNECTIONS).await;
    let mut late = TcpStream::connect(agent.address).await.unwrap();
    assert_eq!(of_proxy(&mut late, "/v1/pools/default/snapshot").await.status, 200);
    let changes = sync(7, &[], None).encode_to_vec();
    assert_eq!(write(&agent, "/v1/pools/default/changes", &changes).await, 200);
    assert_eq!(write(&agent, "/v1/pools/default/report", &report(1, 1)).await, 204);
    // Connections of proxies stay, a poll in flight too, whatever comes after them.
    let path = poll(&has);
    let polled = tokio::spawn(async move { of_proxy(&mut early, &path).await.status });
    let waiters = "metrics_agent_snapshot_waiters";
    let is_waiting = async || (agent.metric(waiters).await > 0.5).then_some(());
    eventually("the proxy waits", is_waiting).await;
    let _more = half_requests(agent.address, 0..2 * CONNECTIONS).await;
    server.set_behaviour(Behaviour::Text(load(2, 2)));
    assert_eq!(polled.await.unwrap(), 200);
    assert_eq!(of_proxy(&mut late, "/v1/pools/default").await.status, 200);
}

#[tokio::test]
async fn a_proxy_is_served_beside_half_requests_of_its_own_address() {
    let (agent, _server, _, _folder) = agent().await;
    let mut half = Vec::new();
    for _ in 0..2 * PER_PEER {
        let mut stream = TcpStream::connect(agent.address).await.unwrap();
        let _ = stream.write_all(b"GET /v1/pools HTTP/1.1\r\nhost: ").await;
        half.push(stream);
    }
    let mut proxy = TcpStream::connect(agent.address).await.unwrap();
    assert_eq!(of_proxy(&mut proxy, "/v1/pools/default/snapshot").await.status, 200);
    // The oldest have made room, without a response.
    let mut closed = Vec::new();
    let ended = timeout(Duration::from_secs(20), half[0].read_to_end(&mut closed)).await;
    assert!(ended.is_ok() && closed.is_empty(), "{closed:?}");
}
