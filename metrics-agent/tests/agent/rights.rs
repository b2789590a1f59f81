//! Rights to write, that is to report and to share changes: a client that writes steers all proxies.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use endpoint_picker_wire::Message;
use metrics_agent::agent::Settings;
use metrics_agent::api::access::AllowedHosts;
use metrics_agent::api::access::credentials::{Files, Unauthenticated};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::changes::sync;
use crate::harness::{Agent, eventually, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

/// Requests that read, and requests that write.
const READS: [&str; 4] = ["/", "/metrics", "/v1/pools/default", "/v1/pools/default/snapshot"];
const WRITES: [&str; 2] = ["/v1/pools/default/changes", "/v1/pools/default/report"];

/// An agent that listens on all addresses of the host and has scraped its one server.
pub(crate) async fn start(credentials: Files) -> (Agent, ScriptedServer) {
    let server = ScriptedServer::start(Behaviour::Text(load(1, 1))).await;
    let allowed_hosts = AllowedHosts(vec!["localhost".to_owned()]);
    let settings = Settings { credentials, allowed_hosts, ..scraping(&[server.address()]) };
    let agent = Agent::start_at("0.0.0.0:0", settings).await;
    eventually("ready", async || (agent.get("/readyz").await.status == 200).then_some(())).await;
    (agent, server)
}

/// The status and the response of a request to this address of the agent.
async fn response(agent: &Agent, address: IpAddr, path: &str, token: Option<&str>) -> (u16, String) {
    let mut stream = TcpStream::connect(SocketAddr::new(address, agent.address.port())).await.unwrap();
    let body = if WRITES.contains(&path) { sync(7, &[], None).encode_to_vec() } else { Vec::new() };
    let method = if WRITES.contains(&path) { "POST" } else { "GET" };
    let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{token}content-type: application/x-protobuf\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.into_bytes(), body].concat()).await.unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    let response = String::from_utf8_lossy(&response).into_owned();
    (response.split(' ').nth(1).unwrap().parse().unwrap(), response)
}

const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// An address of this host that is not a loopback address. Nothing is sent.
pub(crate) fn outer_address() -> IpAddr {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect("198.51.100.1:9").expect("the host has a route to other hosts");
    socket.local_addr().unwrap().ip()
}

/// Whether each of the paths is refused, by its status.
async fn refusals(agent: &Agent, address: IpAddr, paths: &[&str], token: Option<&str>) -> Vec<Option<u16>> {
    let mut refusals = Vec::new();
    for path in paths {
        let (status, _) = response(agent, address, path, token).await;
        refusals.push(Some(status).filter(|status| [401, 403].contains(status)));
    }
    refusals
}

#[tokio::test]
async fn without_credentials_another_host_may_read_and_not_write() {
    let (agent, _server) = start(Files::default()).await;
    assert_eq!(refusals(&agent, LOOPBACK, &WRITES, None).await, [None; 2], "on its own host");
    let outer = outer_address();
    assert_eq!(refusals(&agent, outer, &READS, None).await, [None; 4]);
    assert_eq!(refusals(&agent, outer, &WRITES, None).await, [Some(403); 2]);
    let (_, text) = response(&agent, outer, WRITES[0], None).await;
    for part in ["steers all proxies", "--bearer-token-file", "--allow-unauthenticated-writes"] {
        assert!(text.contains(part), "{text}");
    }
    let refused =
        agent.metric("metrics_agent_refused_requests_total{reason=\"unauthenticated_write\"}").await;
    assert!((refused - 3.0).abs() < 0.5, "{refused}");

    let unauthenticated = Unauthenticated { writes: true, ..Unauthenticated::default() };
    let (agent, _server) = start(Files { unauthenticated, ..Files::default() }).await;
    assert_eq!(refusals(&agent, outer, &WRITES, None).await, [None; 2], "with the flag");
}

/// Files with the token `full`, and with the token `reading` for reads only.
pub(crate) fn files(folder: &Path) -> Files {
    let file = |name: &str| {
        let path = folder.join(name);
        std::fs::write(&path, name).unwrap();
        Some(path)
    };
    Files { tokens: file("full"), read_tokens: file("reading"), ..Files::default() }
}

#[tokio::test]
async fn a_token_for_reading_does_not_write() {
    let folder = tempfile::tempdir().unwrap();
    let (agent, _server) = start(files(folder.path())).await;
    for (token, reads, writes) in [
        (Some("full"), None, None),
        (Some("reading"), None, Some(403)),
        (Some("wrong"), Some(401), Some(401)),
        (None, Some(401), Some(401)),
    ] {
        assert_eq!(refusals(&agent, LOOPBACK, &READS, token).await, [reads; 4], "{token:?}");
        assert_eq!(refusals(&agent, LOOPBACK, &WRITES, token).await, [writes; 2], "{token:?}");
    }
    let (_, text) = response(&agent, LOOPBACK, WRITES[0], Some("reading")).await;
    assert!(text.contains("a token of --read-token-file may not write"), "{text}");
}

#[tokio::test]
async fn reading_can_be_left_open_where_writing_takes_a_token() {
    let folder = tempfile::tempdir().unwrap();
    let unauthenticated = Unauthenticated { reads: true, ..Unauthenticated::default() };
    let (agent, _server) = start(Files { read_tokens: None, unauthenticated, ..files(folder.path()) }).await;
    assert_eq!(refusals(&agent, outer_address(), &READS, None).await, [None; 4]);
    for address in [LOOPBACK, outer_address()] {
        assert_eq!(refusals(&agent, address, &WRITES, None).await, [Some(401); 2], "{address}");
        assert_eq!(refusals(&agent, address, &WRITES, Some("full")).await, [None; 2], "{address}");
    }
}
