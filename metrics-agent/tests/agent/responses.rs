//! Responses to scrapes that are not a plain text of vLLM: redirects, compressed texts, other formats and
//! other engines.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;

use crate::harness::{Agent, eventually, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

/// The status of the only endpoint, once it passes.
async fn endpoint_where(agent: &Agent, what: &str, passes: impl Fn(&Value) -> bool) -> Value {
    eventually(what, async || {
        let status: Value = serde_json::from_str(&agent.get("/v1/pools/default").await.text()).ok()?;
        Some(status["endpoints"][0].clone()).filter(&passes)
    })
    .await
}

/// Waits until scrapes of this server fail for this reason, and returns the problem that the API shows.
async fn problem(behaviour: Behaviour, reason: &str) -> String {
    let server = ScriptedServer::start(behaviour).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let metric = format!("metrics_agent_scrape_errors_total{{reason=\"{reason}\"}}");
    eventually(&metric, async || (agent.metric(&metric).await >= 2.0).then_some(())).await;
    let endpoint = endpoint_where(&agent, "the problem", |it| it["reason"].is_string()).await;
    assert!(endpoint["age_ms"].is_null(), "there is no reading: {endpoint}");
    endpoint["reason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn one_redirect_to_the_same_server_is_followed_over_the_kept_connection() {
    for (status, absolute) in [(307, false), (308, true), (301, true), (302, false)] {
        let server = ScriptedServer::start(Behaviour::Hang).await;
        let host = if absolute { format!("http://{}", server.address()) } else { String::new() };
        server.set_behaviour(Behaviour::Redirect(status, format!("{host}/metrics/"), load(7, 1)));
        let agent = Agent::start(scraping(&[server.address()])).await;
        agent.reading_where("the text behind the redirect", |reading| reading.waiting == Some(7)).await;
        eventually("several scrapes", async || (server.requests() > 5).then_some(())).await;
        assert_eq!(server.connections(), 1, "{status}");
    }
}

#[tokio::test]
async fn a_redirect_elsewhere_is_named_and_not_followed() {
    let other = ScriptedServer::start(Behaviour::Text(load(9, 9))).await;
    for location in [format!("http://{}/metrics/", other.address()), "/metrics".to_owned()] {
        let problem = problem(Behaviour::Redirect(307, location.clone(), load(7, 1)), "status").await;
        assert_eq!(problem, format!("status 307 Temporary Redirect to {location:?}"));
    }
    assert_eq!(other.requests(), 0);
}

#[tokio::test]
async fn a_compressed_text_is_read() {
    let busy = gzip(include_bytes!("../captures/vllm-0.32.0-lora-busy.prom"));
    let server = ScriptedServer::start(Behaviour::Body("content-encoding: gzip\r\n", busy)).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    agent.reading_where("the compressed text", |reading| reading.waiting == Some(8)).await;
    eventually("several scrapes", async || (server.requests() > 3).then_some(())).await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_small_body_of_a_large_text_is_too_large() {
    let bomb = gzip(&vec![b' '; 16 * 1024 * 1024]);
    assert!(bomb.len() < 20_000);
    let problem = problem(Behaviour::Body("content-encoding: gzip\r\n", bomb), "too_large").await;
    assert!(problem.contains("4194304 bytes"), "{problem}");
}

#[tokio::test]
async fn other_encodings_and_formats_are_named() {
    let text = load(1, 1).into_bytes();
    let brotli = Behaviour::Body("content-encoding: br\r\n", text.clone());
    assert_eq!(problem(brotli, "encoding").await, "content encoding \"br\"");
    let broken = Behaviour::Body("content-encoding: gzip\r\n", text);
    assert_eq!(problem(broken, "encoding").await, "broken gzip");
    let json = Behaviour::Body("content-type: application/json\r\n", b"[]".to_vec());
    assert_eq!(problem(json, "no_metrics").await, "content type \"application/json\" instead of metrics");
}

#[tokio::test]
async fn an_endpoint_without_a_label_has_the_engine_that_its_text_shows() {
    let sglang = include_str!("../captures/sglang-0.5.23-busy.prom").to_owned();
    let server = ScriptedServer::start(Behaviour::Text(sglang)).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let endpoint = endpoint_where(&agent, "the engine", |it| it["engine"] == "sglang").await;
    assert_eq!((&endpoint["waiting"], &endpoint["running"]), (&12.into(), &4.into()));
    assert_eq!((agent.get("/readyz").await.status, &endpoint["cache_tokens"]), (200, &8_192.into()));
    server.set_behaviour(Behaviour::Text(load(3, 1)));
    let endpoint = endpoint_where(&agent, "another engine", |it| it["engine"] == "vllm").await;
    assert_eq!(endpoint["waiting"], 3);
}

#[tokio::test]
async fn series_that_differ_in_an_unread_label_are_counted_and_have_no_value() {
    let text = load(3, 1) + "vllm:num_requests_waiting{replica=\"b\"} 9\n";
    let server = ScriptedServer::start(Behaviour::Text(text)).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    let reading = agent.reading_where("the other field", |reading| reading.running == Some(1)).await;
    assert_eq!(reading.waiting, None);
    let counter = "metrics_agent_extract_errors_total{field=\"waiting\",reason=\"ambiguous\"}";
    eventually("the count", async || (agent.metric(counter).await >= 1.0).then_some(())).await;
}
