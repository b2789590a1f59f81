//! Limits of connections and of clients.

use std::net::SocketAddr;
use std::time::Duration;

use endpoint_picker::pool::Endpoint;
use metrics_agent::agent::Settings;
use metrics_agent::api::connections::MAX_HEADER_BYTES;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::harness::{Agent, eventually, send, settings};

/// Maximum wait; generous, for slow machines.
const SOON: Duration = Duration::from_secs(20);

async fn agent(limit: impl Fn(&mut Settings)) -> Agent {
    let mut settings = settings();
    limit(&mut settings);
    Agent::start(settings).await
}

/// Waits until the agent closes the connection, and returns the bytes it sent before.
async fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut received = Vec::new();
    // The connection may also end with a reset.
    let _ = timeout(SOON, stream.read_to_end(&mut received)).await.expect("the agent closes the connection");
    received
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

#[tokio::test]
async fn silent_and_slow_clients_are_disconnected_and_others_are_served() {
    let agent = agent(|settings| settings.limits.idle_timeout = Duration::from_millis(300)).await;
    let silent = connect(agent.address).await;
    let mut slow = connect(agent.address).await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await.unwrap();
    let mut idle = connect(agent.address).await;
    assert_eq!(send(&mut idle, "/healthz", "").await.unwrap().status, 200);
    assert_eq!(agent.get("/healthz").await.status, 200);
    assert_eq!(until_closed(silent).await, b"");
    assert!(!until_closed(slow).await.starts_with(b"HTTP/1.1 200"));
    assert_eq!(until_closed(idle).await, b"");
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_refused() {
    let agent = agent(|settings| settings.limits.idle_timeout = Duration::from_millis(300)).await;
    let mut slow = connect(agent.address).await;
    let head = "POST /v1/pools/default/report HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-protobuf\r\n\
                content-length: 1000\r\n\r\nx";
    slow.write_all(head.as_bytes()).await.unwrap();
    let answer = until_closed(slow).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("--idle-timeout"), "{answer}");
}

#[tokio::test]
async fn an_unexpected_body_does_not_keep_the_connection_open() {
    let agent = agent(|settings| settings.limits.idle_timeout = Duration::from_millis(300)).await;
    let mut slow = connect(agent.address).await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\nx")
        .await
        .unwrap();
    assert!(until_closed(slow).await.starts_with(b"HTTP/1.1 200"));
}

#[tokio::test]
async fn a_head_that_is_too_long_is_answered_431() {
    let agent = agent(|_| {}).await;
    let head = |bytes: usize| format!("x-long: {}\r\n", "x".repeat(bytes));
    let fits = send(&mut connect(agent.address).await, "/healthz", &head(MAX_HEADER_BYTES / 2)).await;
    assert_eq!(fits.unwrap().status, 200);
    let too_long = send(&mut connect(agent.address).await, "/healthz", &head(MAX_HEADER_BYTES)).await;
    assert_eq!(too_long.unwrap().status, 431);
    let many = "x-one: 1\r\n".repeat(200);
    let too_many = send(&mut connect(agent.address).await, "/healthz", &many).await;
    assert_eq!(too_many.unwrap().status, 431);
}

#[tokio::test]
async fn a_connection_beyond_the_limit_takes_the_place_of_the_oldest_one_whose_client_may_not_write() {
    let agent = agent(|settings| settings.limits.max_connections = 2).await;
    // A client of this host may write.
    let mut writer = connect(agent.address).await;
    assert_eq!(send(&mut writer, "/v1/pools", "").await.unwrap().status, 200);
    let mut oldest = connect(agent.address).await;
    assert_eq!(send(&mut oldest, "/healthz", "").await.unwrap().status, 200);
    let mut third = connect(agent.address).await;
    assert_eq!(send(&mut third, "/v1/pools", "").await.unwrap().status, 200);
    assert_eq!(until_closed(oldest).await, b"");
    // Both places are kept, so the next connection is closed at once.
    assert_eq!(until_closed(connect(agent.address).await).await, b"");
    drop(writer);
    eventually("a place is free", async || {
        let answer = send(&mut connect(agent.address).await, "/healthz", "").await;
        answer.is_ok_and(|answer| answer.status == 200).then_some(())
    })
    .await;
    assert_eq!(send(&mut third, "/v1/pools", "").await.unwrap().status, 200);
}

/// Half requests on this many connections of one address.
async fn half_requests(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::new();
    for _ in 0..count {
        let mut stream = connect(address).await;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await.unwrap();
        open.push(stream);
    }
    open
}

#[tokio::test]
async fn clients_of_the_api_do_not_keep_health_checks_from_being_answered() {
    let agent = agent(|settings| settings.limits.max_connections = 2).await;
    let mut kept = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(agent.address).await;
        assert_eq!(send(&mut stream, "/v1/pools", "").await.unwrap().status, 200);
        kept.push(stream);
    }
    assert_eq!(until_closed(connect(agent.address).await).await, b"", "the API is full");
    let _half = half_requests(agent.health, 10).await;
    for (path, status) in [("/healthz", 200), ("/readyz", 200), ("/metrics", 404), ("/v1/pools", 404)] {
        let mut stream = connect(agent.health).await;
        let answer = timeout(SOON, send(&mut stream, path, "host: any.example\r\n")).await;
        assert_eq!(answer.expect("an answer").unwrap().status, status, "{path}");
    }
}

#[tokio::test]
async fn one_address_cannot_take_the_connections_of_others() {
    let agent = agent(|settings| settings.limits.max_connections_per_peer = 2).await;
    let half = half_requests(agent.address, 5).await;
    for closed in half.into_iter().take(3) {
        assert_eq!(until_closed(closed).await, b"", "beyond the limit");
    }
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(agent.address).await.unwrap();
    assert_eq!(send(&mut other, "/healthz", "").await.unwrap().status, 200, "of another address");
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answers_is_disconnected() {
    for path in ["/metrics", "/v1/pools"] {
        let agent = agent(|settings| {
            settings.limits.max_connections = 1;
            settings.limits.write_timeout = Duration::from_millis(300);
        })
        .await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stuck = socket.connect(agent.address).await.unwrap();
        // Sends requests until no more bytes are accepted: then the agent waits for this client to read.
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").repeat(1000);
        while timeout(Duration::from_secs(1), stuck.write_all(request.as_bytes()))
            .await
            .is_ok_and(|sent| sent.is_ok())
        {}
        // The only place is free again.
        eventually(&format!("the client that is stuck on {path} is gone"), async || {
            let answer = send(&mut connect(agent.address).await, "/healthz", "").await;
            answer.is_ok_and(|answer| answer.status == 200).then_some(())
        })
        .await;
        until_closed(stuck).await;
    }
}

#[tokio::test]
async fn a_client_that_reads_an_answer_slowly_is_disconnected_too() {
    let label = |n: u8| (format!("label-{n}"), "x".repeat(1 << 20));
    let endpoint = |n: u8| Endpoint::new(format!("default/{n}"), ([127, 0, 0, n], 1).into(), vec![label(n)]);
    let agent = agent(|settings| {
        settings.sources.fixed.endpoints = (1..=16).map(endpoint).collect();
        settings.limits.max_connections = 1;
        settings.limits.answer_timeout = Duration::from_secs(2);
        settings.limits.write_timeout = Duration::from_secs(60);
    })
    .await;
    agent.snapshot_where("all there", |snapshot| snapshot.readings.len() == 16).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut slow = socket.connect(agent.address).await.unwrap();
    slow.write_all(b"GET /v1/pools/default HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    // Reads at most 400 KB a second: all 16 MiB would take twice as long as the other client waits.
    let steadily = async {
        let mut every = tokio::time::interval(Duration::from_millis(5));
        let mut buffer = [0; 2048];
        while slow.read(&mut buffer).await.is_ok_and(|bytes| bytes > 0) {
            every.tick().await;
        }
    };
    let other = eventually("the slow client is gone", async || {
        let answer = send(&mut connect(agent.address).await, "/healthz", "").await;
        answer.is_ok_and(|answer| answer.status == 200).then_some(())
    });
    tokio::select! {
        () = other => {}
        () = async { steadily.await; std::future::pending().await } => {}
    }
}
