//! What one client, or many, may take of the agent.

use std::net::SocketAddr;
use std::time::Duration;

use endpoint_picker::pool::Endpoint;
use metrics_agent::agent::Settings;
use metrics_agent::api::connections::listen::MIN_HEADER_BYTES;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::harness::{Agent, ask, settings};

/// However slow the machine, this is enough.
const SOON: Duration = Duration::from_secs(20);

async fn agent(limit: impl Fn(&mut Settings)) -> Agent {
    let mut settings = settings();
    limit(&mut settings);
    Agent::start(settings).await
}

/// Waits until the agent closes the connection, and tells what it said before.
async fn until_closed(mut stream: TcpStream) -> Vec<u8> {
    let mut said = Vec::new();
    // A reset is an end as well.
    let _ = timeout(SOON, stream.read_to_end(&mut said)).await.expect("the agent closes the connection");
    said
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

#[tokio::test]
async fn who_says_nothing_or_says_it_too_slowly_is_disconnected_and_others_are_served() {
    let agent = agent(|settings| settings.limits.idle_timeout = Duration::from_millis(300)).await;
    let silent = connect(agent.address).await;
    let mut slow = connect(agent.address).await;
    slow.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-slow: ").await.unwrap();
    let mut idle = connect(agent.address).await;
    assert_eq!(ask(&mut idle, "/healthz", "").await.unwrap().status, 200);
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
    let said = until_closed(slow).await;
    let said = String::from_utf8_lossy(&said);
    assert!(said.starts_with("HTTP/1.1 408") && said.contains("--idle-timeout"), "{said}");
}

#[tokio::test]
async fn a_body_that_nobody_asked_for_does_not_keep_the_connection_open() {
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
    let fits = ask(&mut connect(agent.address).await, "/healthz", &head(MIN_HEADER_BYTES / 2)).await;
    assert_eq!(fits.unwrap().status, 200);
    let too_long = ask(&mut connect(agent.address).await, "/healthz", &head(MIN_HEADER_BYTES)).await;
    assert_eq!(too_long.unwrap().status, 431);
    let many = "x-one: 1\r\n".repeat(200);
    let too_many = ask(&mut connect(agent.address).await, "/healthz", &many).await;
    assert_eq!(too_many.unwrap().status, 431);
}

#[tokio::test]
async fn connections_beyond_the_limit_wait_for_one_to_end() {
    let agent = agent(|settings| settings.limits.max_connections = 2).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(agent.address).await;
        assert_eq!(ask(&mut stream, "/healthz", "").await.unwrap().status, 200);
        open.push(stream);
    }
    let mut third = connect(agent.address).await;
    let asked = ask(&mut third, "/healthz", "");
    tokio::pin!(asked);
    assert!(timeout(Duration::from_millis(300), &mut asked).await.is_err(), "it waits");
    drop(open.pop());
    assert_eq!(timeout(SOON, asked).await.unwrap().unwrap().status, 200);
}

#[tokio::test]
async fn who_takes_nothing_of_its_answers_is_disconnected() {
    for path in ["/metrics", "/v1/pools"] {
        let agent = agent(|settings| {
            settings.limits.max_connections = 1;
            settings.limits.write_timeout = Duration::from_millis(300);
        })
        .await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stuck = socket.connect(agent.address).await.unwrap();
        // Asks until nothing more is taken: the agent then waits for this client to read.
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").repeat(1000);
        while timeout(Duration::from_secs(1), stuck.write_all(request.as_bytes()))
            .await
            .is_ok_and(|sent| sent.is_ok())
        {}
        // The one connection there may be is free again.
        let mut other = connect(agent.address).await;
        let answer = timeout(SOON, ask(&mut other, "/healthz", "")).await.expect("the stuck client is gone");
        assert_eq!(answer.unwrap().status, 200, "{path}");
        until_closed(stuck).await;
    }
}

#[tokio::test]
async fn who_takes_an_answer_little_by_little_is_disconnected_too() {
    let label = |n: u8| (format!("label-{n}"), "x".repeat(1 << 20));
    let endpoint = |n: u8| Endpoint::new(format!("default/{n}"), ([127, 0, 0, n], 1).into(), vec![label(n)]);
    let agent = agent(|settings| {
        settings.sources.fixed = (1..=16).map(endpoint).collect();
        settings.limits.max_connections = 1;
        settings.limits.answer_timeout = Duration::from_millis(300);
        settings.limits.write_timeout = Duration::from_secs(60);
    })
    .await;
    agent.snapshot_where("all there", |snapshot| snapshot.readings.len() == 16).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut slow = socket.connect(agent.address).await.unwrap();
    slow.write_all(b"GET /v1/pools/default HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    // At most 400 KB a second: all 16 MiB would take twice as long as the other client waits.
    let steadily = async {
        let mut every = tokio::time::interval(Duration::from_millis(5));
        let mut some = [0; 2048];
        while slow.read(&mut some).await.is_ok_and(|taken| taken > 0) {
            every.tick().await;
        }
    };
    let mut other = connect(agent.address).await;
    let other = async {
        let answer = timeout(SOON, ask(&mut other, "/healthz", "")).await.expect("the slow client is gone");
        assert_eq!(answer.unwrap().status, 200);
    };
    tokio::select! {
        () = other => {}
        () = async { steadily.await; std::future::pending().await } => {}
    }
}
