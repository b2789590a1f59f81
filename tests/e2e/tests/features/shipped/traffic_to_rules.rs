//! The course of docs/operate/from-your-traffic-to-your-rules.md with model servers that need time: record,
//! replay, shadow, switch, compare, and the way back.

use endpoint_picker_e2e::fixture::CHAT;
use endpoint_picker_e2e::statistics::complete_statistics;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::shipped::rules;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::{ModelServer, SERVED_BY};
use metrics_agent_server_model::ServiceTimes;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;
use tokio::task::JoinSet;

const PAGE: &str = "docs/operate/from-your-traffic-to-your-rules.md";

/// The rules before: by queues alone, whatever servers have cached.
const MINE: &str =
    "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: queue-scorer}]\n";

/// Clients of a day, each of which has some conversations, one after another.
const CLIENTS: usize = 4;
const CONVERSATIONS: usize = 6;
const TURNS: usize = 6;
const REQUESTS: usize = CLIENTS * CONVERSATIONS * TURNS;

/// Bytes of text that each turn adds: 500 tokens of the servers.
const TURN: usize = 2_000;

/// Requests in a row that go to one server only because it has their prompt cached: by chance this happens
/// once in 19 683 times.
const IN_A_ROW: usize = 10;

/// The row of the picks that were made. The servers' usage does not say how many tokens were cached, so the
/// share is that of these picks at the servers of the replay.
const REALLY: &str = "recorded, replayed";

/// Difference of the cached share that was predicted to the one that came.
const CACHED_ERROR: f64 = 0.15;

fn times() -> ServiceTimes {
    ServiceTimes {
        max_running: 8,
        step: Duration::from_millis(2),
        step_per_sequence: Duration::ZERO,
        prefill_per_token: Duration::from_micros(100),
        kv_blocks: 32_768,
        ..ServiceTimes::default()
    }
}

/// The recommended rules as a shadow of the pool, as the page on shadows says.
fn shadow() -> String {
    let kind = "kind: EndpointPickerConfig\n";
    let metadata = "metadata: {name: default, annotations: {endpoint-picker/shadow: \"true\"}}\n";
    recommended().replacen(kind, &format!("{kind}{metadata}"), 1)
}

fn recommended() -> String {
    rules::recommended(&[]).unwrap()
}

/// The command of the page, the only block of a shell in it.
fn command() -> String {
    let page = fs::read_to_string(tools::root().join(PAGE)).unwrap();
    let mut blocks = page.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    let command = blocks.next().unwrap().trim().to_owned();
    assert_eq!(blocks.next(), None);
    command
}

/// A pool whose requests are recorded.
struct Recorded {
    stack: Stack,
    record: TempDir,
    /// Requests so far.
    sent: usize,
    days: usize,
    _servers: Vec<ModelServer>,
}

/// The record of a day.
struct Day {
    header: String,
    lines: Vec<String>,
}

impl Recorded {
    async fn start() -> Self {
        let server = |number| ModelServer::start_with_service_times(&format!("server-{number}"), times());
        let servers: Vec<ModelServer> = (0..3).map(|number| server(number).unwrap()).collect();
        let addresses: Vec<SocketAddr> = servers.iter().map(ModelServer::address).collect();
        let record = TempDir::new().unwrap();
        let flags = ["--record", record.path().to_str().unwrap()];
        let builder = Stack::builder().other_servers(&addresses).manifests(MINE).agent_flags(&flags);
        let stack = builder.start().await;
        Self { stack, record, sent: 0, days: 0, _servers: servers }
    }

    /// All lines of the record, when it has all requests.
    async fn record(&self) -> Day {
        eventually("the record has all requests", async || {
            let mut files: Vec<_> =
                fs::read_dir(self.record.path())?.map(|file| file.unwrap().path()).collect();
            files.sort();
            let text = files.iter().map(fs::read_to_string).collect::<Result<String, _>>()?;
            let (headers, lines): (Vec<&str>, Vec<&str>) =
                text.lines().partition(|line| line.starts_with(r#"{"record":"#));
            anyhow::ensure!(lines.len() == self.sent, "{} of {} requests", lines.len(), self.sent);
            // All files of a run begin at one time.
            let header = (*headers.first().unwrap_or(&"")).to_owned();
            anyhow::Ok(Day { header, lines: lines.into_iter().map(str::to_owned).collect() })
        })
        .await
    }

    /// Sends the requests of a day, and returns their record.
    async fn day(&mut self) -> Day {
        let before = self.record().await.lines.len();
        self.days += 1;
        let mut clients = JoinSet::new();
        for number in 0..CLIENTS {
            clients.spawn(converse(self.stack.url(CHAT), format!("day {} client {number}", self.days)));
        }
        clients.join_all().await;
        self.sent += REQUESTS;
        let Day { header, mut lines } = self.record().await;
        Day { header, lines: lines.split_off(before) }
    }

    /// Sends one prompt again and again, and returns the servers.
    async fn repeat(&mut self) -> BTreeSet<String> {
        let mut servers = BTreeSet::new();
        let body = body(&format!("prompt {} {}", self.sent, "again and again ".repeat(300)));
        for _ in 0..IN_A_ROW {
            self.sent += 1;
            servers.insert(ask(&client::http1(), &self.stack.url(CHAT), "", &body).await);
        }
        servers
    }

    /// The number of decisions of the shadow that agreed, and of those that did not.
    async fn shadow_counts(&self) -> [u64; 2] {
        let statistics = complete_statistics(&self.stack).await;
        ["agreed", "disagreed"].map(|name| statistics.count(&format!("shadow_{name}{{pool=\"default\"}}")))
    }
}

fn body(text: &str) -> Value {
    json!({
        "model": "m",
        "stream": true,
        "stream_options": {"include_usage": true},
        "max_tokens": 12,
        "messages": [{"role": "user", "content": text}],
    })
}

/// Sends a request, reads its response to the end, and returns the name of its server.
async fn ask(client: &Client, url: &str, session: &str, body: &Value) -> String {
    let mut request = client.post(url).json(body);
    if !session.is_empty() {
        request = request.header("x-session-id", session);
    }
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let server = response.headers()[SERVED_BY].to_str().unwrap().to_owned();
    response.bytes().await.unwrap();
    server
}

async fn converse(url: String, name: String) {
    let client = client::http1();
    for conversation in 0..CONVERSATIONS {
        let session = format!("{name} conversation {conversation} ");
        let mut text = session.clone();
        for turn in 1..=TURNS {
            while text.len() < turn * TURN {
                text = format!("{text}{} ", text.len());
            }
            ask(&client, &url, &session, &body(&text)).await;
        }
    }
}

impl Day {
    fn values(&self) -> impl Iterator<Item = Value> {
        self.lines.iter().map(|line| serde_json::from_str(line).unwrap())
    }

    /// Replays it by the page's command in a folder with the files that the command names.
    fn replay(&self) -> Value {
        let folder = TempDir::new().unwrap();
        let lines = [&[self.header.clone()][..], &self.lines].concat().join("\n");
        fs::write(folder.path().join("record.jsonl"), lines).unwrap();
        fs::write(folder.path().join("mine.yaml"), MINE).unwrap();
        let programs = tools::metrics_agent().unwrap().parent().unwrap().to_owned();
        let output = Command::new("sh")
            .args(["-ec", &format!("{} --json", command())])
            .current_dir(folder.path())
            .env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(read(folder.path(), "replay.html").contains("uPlot"));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

/// The share of prompt tokens that servers have cached, in a row of a report.
fn cached(report: &Value, row: &str) -> f64 {
    let rows = report["rows"].as_array().unwrap();
    let row = rows.iter().find(|it| it["name"] == row).unwrap_or_else(|| panic!("{row}: {report}"));
    row["cached"]["median"].as_f64().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_traffic_leads_to_other_rules_and_back() {
    let mut pool = Recorded::start().await;

    let first = pool.day().await;
    let report = first.replay();
    assert_eq!(report["requests"], REQUESTS);
    assert!(report["shadow"].is_null(), "{report}");
    let rows: Vec<_> = report["rows"].as_array().unwrap().iter().map(|row| row["name"].clone()).collect();
    let ways = ["recorded", "recorded, replayed", "expected-latency", "epp", "mine.yaml", "omniscient"];
    assert_eq!(rows, ways);
    let before = cached(&report, REALLY);
    let predicted = cached(&report, "expected-latency");
    assert!(predicted > before + CACHED_ERROR, "{report}");

    pool.stack.set_manifests(&format!("{MINE}---\n{}", shadow()));
    eventually("the shadow decides", async || {
        let counts = pool.shadow_counts().await;
        pool.repeat().await;
        let compared: u64 = pool.shadow_counts().await.iter().zip(counts).map(|(now, then)| now - then).sum();
        if compared == IN_A_ROW as u64 { Ok(()) } else { Err(compared) }
    })
    .await;
    let counts = pool.shadow_counts().await;
    let second = pool.day().await;
    let now = pool.shadow_counts().await;
    let expected = [now[0] - counts[0], now[1] - counts[1]];
    let agreeing =
        |agrees: bool| second.values().filter(|line| line["shadow_agrees"] == agrees).count() as u64;
    assert_eq!([agreeing(true), agreeing(false)], expected);
    assert!(expected.iter().all(|count| *count > 0), "{expected:?}");
    let differs = |line: &Value| line["shadow"] != line["endpoint"] && line["shadow"].is_string();
    assert!(second.values().filter(|line| line["shadow_agrees"] == false).all(|line| differs(&line)));
    let report = second.replay();
    assert_eq!(report["shadow"], json!({"compared": REQUESTS, "agreed": expected[0]}));

    pool.stack.set_manifests(&recommended());
    eventually("requests follow the new rules", async || {
        let servers = pool.repeat().await;
        if servers.len() == 1 { Ok(()) } else { Err(format!("{servers:?}")) }
    })
    .await;
    let third = pool.day().await;
    assert!(third.values().all(|line| line.get("shadow_agrees").is_none()));
    let after = cached(&third.replay(), REALLY);
    println!("cached: {before:.3} before, {predicted:.3} predicted, {after:.3} after");
    assert!(
        (after - predicted).abs() < CACHED_ERROR,
        "{predicted} predicted, {after} after, {before} before"
    );

    pool.stack.set_manifests(MINE);
    eventually("requests follow the former rules", async || {
        let servers = pool.repeat().await;
        if servers.len() == 3 { Ok(()) } else { Err(format!("{servers:?}")) }
    })
    .await;
    let lines = pool.record().await.lines;
    assert!(lines.last().unwrap().contains(r#""why":"picked""#));
}
