//! Scraping over real sockets.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use endpoint_picker::pool::Endpoint;
use endpoint_picker_wire::v1;
use metrics_agent::agent::Settings;
use metrics_agent_sources::endpoints::{Declared, Sources};
use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::harness::{Agent, eventually, scraping, settings};
use crate::scripted::{Behaviour, ScriptedServer, load};

fn text(waiting: u64) -> Behaviour {
    Behaviour::Text(load(waiting, 1))
}

#[tokio::test]
async fn readings_are_scraped_over_one_kept_connection() {
    let server = ScriptedServer::start(text(1)).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let reading = agent.reading_where("the first value", |r| r.waiting == Some(1)).await;
    assert!(reading.ready && reading.age_ms.is_some());
    server.set_behaviour(text(2));
    let changed = Instant::now();
    agent.reading_where("the next value", |r| r.waiting == Some(2)).await;
    println!("the new value was published {:?} after the change", changed.elapsed());
    eventually("several scrapes", async || (server.requests() > 5).then_some(())).await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn each_endpoint_is_read_in_its_engines_dialect() {
    let sglang = "# TYPE sglang:num_queue_reqs gauge\nsglang:num_queue_reqs 7\n".to_owned();
    let server = ScriptedServer::start(Behaviour::Text(load(3, 1) + &sglang)).await;
    let other = ScriptedServer::start(Behaviour::Text(load(3, 1) + &sglang)).await;
    let labels = vec![("llm-d.ai/engine-type".to_owned(), "sglang".to_owned())];
    let endpoints = vec![
        Endpoint::new("default/a".to_owned(), server.address(), vec![]),
        Endpoint::new("default/b".to_owned(), other.address(), labels),
    ];
    let fixed = Declared { endpoints, ..Declared::default() };
    let agent =
        Agent::start(Settings { sources: Sources { fixed, ..Sources::default() }, ..settings() }).await;
    agent
        .snapshot_where("both dialects", |snapshot| {
            snapshot.readings.iter().map(|r| r.waiting).eq([Some(3), Some(7)])
        })
        .await;
}

#[tokio::test]
async fn chunked_bodies_are_read_however_small_the_chunks() {
    let busy = include_str!("../captures/vllm-0.32.0-lora-busy.prom").to_owned();
    let server = ScriptedServer::start(Behaviour::Chunked(busy, 997)).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let reading = agent.reading_where("the chunked text", |r| r.waiting == Some(8)).await;
    assert_eq!(reading.lora.unwrap().running, ["a3", "a1"]);
    eventually("several scrapes", async || (server.requests() > 3).then_some(())).await;
    assert_eq!(server.connections(), 1);
}

/// Each kind of failure leaves the values as they are while their age grows; the endpoint stays ready and
/// recovers.
async fn fails_and_recovers(behaviour: Behaviour, reason: &str, settings: impl Fn(Settings) -> Settings) {
    let server = ScriptedServer::start(text(1)).await;
    let agent = Agent::start(settings(scraping(&[server.address()]))).await;
    agent.reading_where("the first value", |r| r.waiting == Some(1)).await;
    server.set_behaviour(behaviour);
    let metric = format!("metrics_agent_scrape_errors_total{{reason=\"{reason}\"}}");
    eventually(&metric, async || (agent.metric(&metric).await >= 2.0).then_some(())).await;
    let old = agent.reading_where("an old reading", |r| r.age_ms > Some(100)).await;
    assert_eq!((old.waiting, old.running, old.ready), (Some(1), Some(1), true));
    server.set_behaviour(text(2));
    agent.reading_where("the next value", |r| r.waiting == Some(2)).await;
}

#[tokio::test]
async fn a_server_error_keeps_the_values() {
    fails_and_recovers(Behaviour::Status(500), "status", |settings| settings).await;
}

#[tokio::test]
async fn a_redirect_without_a_location_keeps_the_values() {
    fails_and_recovers(Behaviour::Status(302), "status", |settings| settings).await;
}

#[tokio::test]
async fn a_hanging_server_keeps_the_values() {
    fails_and_recovers(Behaviour::Hang, "timeout", short_timeout).await;
}

#[tokio::test]
async fn a_truncated_text_keeps_the_values() {
    fails_and_recovers(Behaviour::CutOff(load(9, 9)), "http", |settings| settings).await;
}

#[tokio::test]
async fn bytes_that_are_not_http_keep_the_values() {
    fails_and_recovers(Behaviour::Raw(b"\x16\x03\x01 hello\r\n\r\n"), "http", |settings| settings).await;
}

#[tokio::test]
async fn a_text_of_another_engine_keeps_the_values() {
    fails_and_recovers(Behaviour::Text("up 1\n".to_owned()), "no_metrics", |settings| settings).await;
}

#[tokio::test]
async fn an_announced_text_that_is_too_large_keeps_the_values() {
    let large = load(9, 9) + &"# filler\n".repeat(500_000);
    fails_and_recovers(Behaviour::Text(large), "too_large", |settings| settings).await;
}

#[tokio::test]
async fn a_text_of_too_many_series_keeps_the_values() {
    let many = load(9, 9) + &"a 1\n".repeat(50_000);
    fails_and_recovers(Behaviour::Text(many), "too_many_series", |settings| settings).await;
}

#[tokio::test]
async fn an_endless_text_is_cut_off_at_the_limit() {
    fails_and_recovers(Behaviour::Endless, "too_large", |settings| settings).await;
}

fn short_timeout(mut settings: Settings) -> Settings {
    settings.scrape.timeout = Duration::from_millis(60);
    settings
}

#[tokio::test]
async fn a_server_that_closes_after_each_answer_is_not_failing() {
    let server = ScriptedServer::start(Behaviour::TextThenClose(load(1, 1))).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    eventually("several connections", async || (server.connections() > 5).then_some(())).await;
    let text = agent.get("/metrics").await.text();
    let mut errors = text.lines().filter(|line| line.starts_with("metrics_agent_scrape_errors_total{"));
    assert!(errors.all(|line| line.ends_with(" 0")), "{text}");
}

#[tokio::test]
async fn three_refused_connections_make_an_endpoint_unready_and_one_accepted_ready_again() {
    let mut server = ScriptedServer::start(text(1)).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    agent.reading_where("the first value", |r| r.waiting == Some(1)).await;
    server.stop().await;
    let reading = agent.reading_where("not ready", |r| !r.ready).await;
    assert_eq!(reading.waiting, Some(1), "the values stay");
    assert!(agent.metric("metrics_agent_scrape_errors_total{reason=\"refused\"}").await >= 3.0);
    assert!(agent.metric("metrics_agent_endpoints_ready").await.abs() < 0.5);
    server.set_behaviour(Behaviour::Status(503));
    server.resume().await;
    agent.reading_where("ready again, though it has no values", |r| r.ready).await;
}

#[tokio::test]
async fn an_endpoint_that_was_never_reached_is_not_ready_after_three_refusals() {
    let mut server = ScriptedServer::start(text(1)).await;
    server.stop().await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let reading = agent.reading_where("not ready", |r| !r.ready).await;
    assert_eq!((reading.age_ms, reading.waiting), (None, None));
}

fn unready_after_two(servers: &[&ScriptedServer]) -> Settings {
    let addresses: Vec<_> = servers.iter().map(|server| server.address()).collect();
    let mut settings = short_timeout(scraping(&addresses));
    settings.scrape.unready_after = NonZeroU32::new(2);
    settings
}

#[tokio::test]
async fn with_the_flag_an_endpoint_whose_scrapes_fail_is_not_ready_until_one_succeeds() {
    let (good, bad) = (ScriptedServer::start(text(1)).await, ScriptedServer::start(text(2)).await);
    let agent = Agent::start(unready_after_two(&[&good, &bad])).await;
    for behaviour in [Behaviour::Hang, Behaviour::Status(500)] {
        let is_good = |r: &v1::Reading| r.ready && r.waiting.is_some();
        agent.snapshot_where("both ready", |s| s.readings.iter().all(is_good)).await;
        bad.set_behaviour(behaviour);
        let snapshot = agent.snapshot_where("the bad one out", |s| !s.readings[1].ready).await;
        assert!(snapshot.readings[0].ready);
        assert_eq!(snapshot.readings[1].waiting, Some(2), "the values stay");
        assert!((agent.metric("metrics_agent_endpoints_ready").await - 1.0).abs() < 0.5);
        bad.set_behaviour(text(2));
    }
    agent.snapshot_where("both ready again", |s| s.readings.iter().all(|r| r.ready)).await;
}

#[tokio::test]
async fn endpoints_stay_ready_if_all_scrapes_fail() {
    let (one, other) = (ScriptedServer::start(text(1)).await, ScriptedServer::start(text(2)).await);
    let agent = Agent::start(unready_after_two(&[&one, &other])).await;
    agent.snapshot_where("both scraped", |s| s.readings.iter().all(|r| r.age_ms.is_some())).await;
    one.set_behaviour(Behaviour::Hang);
    agent.snapshot_where("one out", |s| !s.readings[0].ready).await;
    other.set_behaviour(Behaviour::Hang);
    agent.snapshot_where("all back", |s| s.readings.iter().all(|r| r.ready)).await;
    other.set_behaviour(text(2));
    agent.snapshot_where("one out again", |s| !s.readings[0].ready && s.readings[1].ready).await;
}

#[tokio::test]
async fn one_bad_endpoint_does_not_hold_up_the_others() {
    let (good, hanging) =
        (ScriptedServer::start(text(1)).await, ScriptedServer::start(Behaviour::Hang).await);
    let agent = Agent::start(scraping(&[hanging.address(), good.address()])).await;
    let snapshot = agent.snapshot_where("the good one's value", |s| s.readings[1].waiting == Some(1)).await;
    assert_eq!(snapshot.readings[0].age_ms, None);
    assert!(snapshot.readings[0].ready, "a never scraped endpoint is ready");
}

#[tokio::test]
async fn an_invalid_value_costs_its_field_and_is_counted() {
    let server = ScriptedServer::start(Behaviour::Text(load(1, 1).replace("waiting 1", "waiting -1"))).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let reading = agent.reading_where("a reading", |r| r.age_ms.is_some()).await;
    assert_eq!((reading.waiting, reading.running), (None, Some(1)));
    assert!(
        agent.metric("metrics_agent_extract_errors_total{field=\"waiting\",reason=\"invalid\"}").await >= 1.0
    );
}

#[tokio::test]
async fn an_endpoint_whose_host_does_not_respond_is_not_ready_while_another_is() {
    let other = ScriptedServer::start(Behaviour::Text(load(1, 1))).await;
    // A listener with a full queue: the host drops further attempts to connect, as one that is gone does.
    let silent = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    silent.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    silent.listen(0).unwrap();
    let address = silent.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) = timeout(Duration::from_millis(300), TcpStream::connect(address)).await {
        queued.push(stream);
    }
    let mut settings = scraping(&[address, other.address()]);
    settings.scrape.timeout = Duration::from_millis(100);
    let agent = Agent::start(settings).await;
    let ready = async |expected: [bool; 2]| {
        let are =
            |snapshot: &v1::Snapshot| snapshot.readings.iter().map(|reading| reading.ready).eq(expected);
        agent.snapshot_where(&format!("{expected:?}"), are).await
    };
    ready([false, true]).await;
    drop(other);
    // The other one refuses connections, so the network of the agent may be the cause.
    ready([true, false]).await;
}
