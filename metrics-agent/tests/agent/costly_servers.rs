//! Servers with endless or very slow responses do not affect the scrapes of others.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use crate::harness::{Agent, eventually, scraping, send};
use crate::process::{command, started};
use crate::scripted::{Behaviour, ScriptedServer, load};

/// The age of a reading next to a costly server, as a multiple of its age without one: a busy machine makes
/// both longer.
const MOST: f64 = 1.5;

#[tokio::test]
async fn a_head_without_end_is_given_up_and_the_next_one_is_read() {
    let server = ScriptedServer::start(Behaviour::Continues).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    eventually("a long head", async || {
        let failed = agent.metric("metrics_agent_scrape_errors_total{reason=\"too_large\"}").await;
        (failed >= 2.0).then_some(())
    })
    .await;
    server.set_behaviour(Behaviour::Text(load(2, 1)));
    agent.reading_where("the value", |reading| reading.waiting == Some(2)).await;
    let connections = server.connections();
    eventually("further scrapes", async || (server.requests() > 10).then_some(())).await;
    assert_eq!(server.connections(), connections, "a good connection is kept");
}

#[tokio::test]
async fn a_server_that_keeps_timing_out_is_scraped_less_often_until_it_answers() {
    let server = ScriptedServer::start(Behaviour::Hang).await;
    let mut settings = scraping(&[server.address()]);
    settings.scrape.timeout = Duration::from_millis(10);
    let interval = settings.scrape.interval;
    let agent = Agent::start(settings).await;
    eventually("the first scrape", async || (server.requests() >= 1).then_some(())).await;
    let first = Instant::now();
    eventually("five more", async || (server.requests() >= 6).then_some(())).await;
    // The pauses are at least 1, 2, 4, 8 and 16 intervals.
    assert!(first.elapsed() >= interval * 31, "{:?}", first.elapsed());
    server.set_behaviour(Behaviour::Text(load(2, 1)));
    agent.reading_where("the value", |reading| reading.waiting == Some(2)).await;
    let (recovered, requests) = (Instant::now(), server.requests());
    eventually("ten more", async || (server.requests() >= requests + 10).then_some(())).await;
    println!("ten scrapes after the recovery took {:?}", recovered.elapsed());
}

/// Starts a thread that sends `100 Continue` to every request without end, as fast as it is read.
fn flood() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let many = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(1000);
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 2048]);
            while stream.write_all(&many).is_ok() {}
        }
    });
    address
}

/// The 95th percentile of the ages of these servers' readings while the agent also scrapes `others`.
async fn ages(servers: &[ScriptedServer], others: &[SocketAddr]) -> Duration {
    let addresses = servers.iter().map(ScriptedServer::address).chain(others.iter().copied());
    let endpoints = addresses.flat_map(|address| ["--endpoint".to_owned(), address.to_string()]);
    let mut agent = command(&["--listen", "127.0.0.1:0"]);
    agent.args(endpoints);
    let (_agent, address) = started(agent).await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut ages = Vec::new();
    let all_are_read = eventually("readings", async || {
        let status = send(&mut stream, "/v1/pools/default", "").await.ok()?.text();
        let status: serde_json::Value = serde_json::from_str(&status).ok()?;
        let endpoints = status["endpoints"].as_array()?.iter().take(servers.len());
        let now: Option<Vec<u64>> = endpoints.map(|endpoint| endpoint["age_ms"].as_u64()).collect();
        ages.extend(now.filter(|now| now.len() == servers.len())?);
        (ages.len() >= 1000).then_some(())
    });
    all_are_read.await;
    ages.sort_unstable();
    Duration::from_millis(ages[ages.len() * 95 / 100])
}

#[tokio::test]
async fn a_server_that_floods_the_agent_does_not_age_the_readings_of_others() {
    let mut servers = Vec::new();
    for _ in 0..4 {
        servers.push(ScriptedServer::start(Behaviour::Text(load(1, 1))).await);
    }
    let hostile = [flood()];
    // Other work on the machine also ages readings; it does not do so every time.
    for _ in 0..5 {
        let (alone, beside) = (ages(&servers, &[]).await, ages(&servers, &hostile).await);
        println!("95 % of ages are at most {alone:?}, beside the hostile server {beside:?}");
        if beside <= alone.mul_f64(MOST) {
            return;
        }
    }
    panic!("each time the hostile server makes ages more than {MOST} times as long");
}
