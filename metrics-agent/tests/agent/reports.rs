//! Reports of proxies, and where they show.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use endpoint_picker::pool::Endpoint;
use endpoint_picker_wire::report::{
    Band, BandOutcome, BandTenant, DetectorSaturation, EndpointReport, FilterForm, FlowControl, Rejected,
    Report, Resumptions, StatisticCount, StreamReason,
};
use endpoint_picker_wire::{Message, OTHER_FORMAT_STATUS, REPORT_FORMAT};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::harness::{Agent, eventually, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

async fn post(agent: &Agent, path: &str, kind: &str, body: &[u8]) -> (u16, String) {
    let (status, body) = post_for_bytes(agent, path, kind, body).await;
    (status, String::from_utf8_lossy(&body).into_owned())
}

/// Sends a body of this content type. Returns the status and the body of the response.
pub(crate) async fn post_for_bytes(agent: &Agent, path: &str, kind: &str, body: &[u8]) -> (u16, Vec<u8>) {
    post_to(agent.address, path, kind, body).await
}

/// The same to an agent at this address.
pub(crate) async fn post_to(address: SocketAddr, path: &str, kind: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // The agent may respond before it has read the whole body.
    let _ = stream.write_all(body).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let end = answer.windows(4).position(|part| part == b"\r\n\r\n").expect("an answer with a head") + 4;
    let head = String::from_utf8_lossy(&answer[..end]).into_owned();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), answer.split_off(end))
}

async fn agent_and_key() -> (Agent, ScriptedServer, u64) {
    let server = ScriptedServer::start(Behaviour::Text(load(3, 1))).await;
    let agent = Agent::start(scraping(&[server.address()])).await;
    agent.reading_where("a reading", |reading| reading.waiting == Some(3)).await;
    let endpoint = Endpoint::new(format!("default/{}", server.address()), server.address(), vec![]);
    (agent, server, endpoint.key())
}

/// A queue in which a request waits, and one has.
fn queue() -> FlowControl {
    let dispatched = BandOutcome {
        outcome: "Dispatched".to_owned(),
        waits: vec![0, 1],
        wait_seconds: 0.000_2,
        longest_wait_seconds: Some(0.000_2),
    };
    let band = Band {
        requests: 1,
        bytes: 30,
        max_requests: 10,
        max_bytes: 1_000,
        tenants: vec![BandTenant {
            fairness_id: "team-a".to_owned(),
            requests: 1,
            bytes: 30,
            outcomes: vec![dispatched.clone()],
        }],
        outcomes: vec![dispatched],
        ..Band::default()
    };
    let stages = Some(1.0);
    FlowControl {
        prefill_saturation: stages,
        decode_saturation: stages,
        saturation: 1.0,
        max_requests: 10,
        max_bytes: 1_000,
        in_flight: 1,
        evicted: 1,
        bands: vec![band],
        detectors: vec![DetectorSaturation { detector: "queue".to_owned(), prefill: stages, decode: stages }],
    }
}

pub(crate) fn report(endpoint: u64, picks: u64) -> Vec<u8> {
    let report = Report {
        format: REPORT_FORMAT,
        proxy: "envoy-1".to_owned(),
        generation: 1,
        endpoints: vec![EndpointReport {
            endpoint,
            picks,
            requests: 2,
            tokens: 300,
            ..EndpointReport::default()
        }],
        routed: 41,
        abstained: 1,
        rejected: vec![Rejected { status: 429, requests: 5 }],
        shadow_agreed: Some(30),
        shadow_disagreed: Some(11),
        flow_control: Some(queue()),
        served_elsewhere: 4 + picks / 100,
        version: "1.2.3".to_owned(),
        form: FilterForm::Wasm.into(),
        resumptions: Some(Resumptions {
            resumable: 9,
            resumed: 4,
            cut: vec![StreamReason { reason: "refused".to_owned(), streams: 1 }],
            unresumable: vec![StreamReason { reason: "token_details".to_owned(), streams: 2 }],
        }),
        counts: [
            ("rejected_held_bodies", "", 3),
            ("sessions", "codex", 6),
            ("session_turns", "codex", 70),
            ("session_blocks", "", 900),
            ("session_blocks_matched", "", 890),
        ]
        .map(|(statistic, value, count)| {
            let (statistic, value) = (statistic.to_owned(), value.to_owned());
            StatisticCount { statistic, value, count }
        })
        .into(),
        ..Report::default()
    };
    report.encode_to_vec()
}

/// Sends one report of a proxy on the agent's only endpoint.
pub(crate) async fn report_once(agent: &Agent, server: &ScriptedServer) {
    let endpoint = Endpoint::new(format!("default/{}", server.address()), server.address(), vec![]);
    assert_eq!(post(agent, PATH, PROTOBUF, &report(endpoint.key(), 1)).await.0, 204);
}

const PATH: &str = "/v1/pools/default/report";
const PROTOBUF: &str = "application/x-protobuf";

#[tokio::test]
async fn a_report_shows_in_the_pools_status_and_in_the_metrics() {
    let (agent, server, key) = agent_and_key().await;
    let before = agent.get("/v1/pools/default").await;
    let before: serde_json::Value = serde_json::from_slice(&before.body).unwrap();
    assert_eq!((&before["endpoints"][0]["sent"], &before["proxies"]), (&().into(), &serde_json::json!([])));

    assert_eq!(post(&agent, PATH, PROTOBUF, &report(key, 100)).await.0, 204);
    assert_eq!(post(&agent, PATH, PROTOBUF, &report(key, 108)).await.0, 204);
    let answer = agent.get("/v1/pools/default").await;
    assert!(answer.head.contains("cache-control: no-store"), "{}", answer.head);
    let status: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
    let endpoint = &status["endpoints"][0];
    assert_eq!(endpoint["address"], server.address().to_string());
    assert_eq!((&endpoint["waiting"], &endpoint["state"]), (&3.into(), &"ready".into()));
    let sent = &endpoint["sent"];
    assert_eq!((&sent["picks"], &sent["requests"], &sent["tokens"]), (&8.into(), &2.into(), &300.into()));
    assert!(sent["picks_per_second"].as_f64().unwrap() > 0.0, "{status}");
    let proxy = &status["proxies"][0];
    assert_eq!((&proxy["proxy"], &proxy["routed"]), (&"envoy-1".into(), &41.into()));
    assert_eq!((&proxy["version"], &proxy["form"]), (&"1.2.3".into(), &"wasm".into()));
    assert_eq!((&proxy["served_elsewhere"], &proxy["rejected_held_bodies"]), (&5.into(), &3.into()));
    assert_eq!(proxy["rejected"], serde_json::json!({"429": 5}));
    assert_eq!(proxy["shadow"], serde_json::json!({"agreed": 30, "disagreed": 11}));
    let resumptions = serde_json::json!({
        "resumable": 9, "resumed": 4, "cut": {"refused": 1}, "unresumable": {"token_details": 2},
    });
    assert_eq!(proxy["resumptions"], resumptions);
    let sessions = serde_json::json!({
        "begun": {"codex": 6}, "turns": {"codex": 70}, "blocks": 900, "blocks_matched": 890,
    });
    assert_eq!(proxy["sessions"], sessions);

    let endpoint_report =
        EndpointReport { endpoint: key, picks: 108, failing: true, ..EndpointReport::default() };
    let failing = Report {
        format: REPORT_FORMAT,
        proxy: "envoy-2".to_owned(),
        endpoints: vec![endpoint_report],
        ..Report::default()
    };
    assert_eq!(post(&agent, PATH, PROTOBUF, &failing.encode_to_vec()).await.0, 204);
    let status = agent.get("/v1/pools/default").await.text();
    assert!(status.contains(r#""state":"failing""#), "one proxy's failure is enough: {status}");
    assert_eq!(status.matches(r#""shadow""#).count(), 1, "the second proxy has no shadow: {status}");

    let name = format!("default/{}", server.address());
    let metrics = agent.get("/metrics").await.text();
    for line in [
        format!("endpoint_picker_picks_total{{pool=\"default\",endpoint=\"{name}\"}} 8"),
        format!("llm_d_epp_per_endpoint_queue_size{{name=\"default\",model_server_endpoint=\"{name}\"}} 3.0"),
        "llm_d_epp_ready_endpoints{name=\"default\"} 1.0".to_owned(),
        "endpoint_picker_served_elsewhere_total{pool=\"default\",proxy=\"envoy-1\"} 5".to_owned(),
        "endpoint_picker_proxies{pool=\"default\"} 2.0".to_owned(),
        "endpoint_picker_proxy_info{pool=\"default\",proxy=\"envoy-1\",version=\"1.2.3\",form=\"wasm\"} 1.0"
            .to_owned(),
        "endpoint_picker_shadow_decisions_total{pool=\"default\",proxy=\"envoy-1\",agrees=\"false\"} 11"
            .to_owned(),
        "metrics_agent_reports_total{outcome=\"accepted\"} 3".to_owned(),
        "# EOF".to_owned(),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in:\n{metrics}");
    }
    let of_shadows = |line: &&str| line.starts_with("endpoint_picker_shadow_decisions_total{");
    assert_eq!(metrics.lines().filter(of_shadows).count(), 2, "an old filter reports no shadow:\n{metrics}");
}

/// The fields of a pool's status that a report fills, and the series, without their values.
const PUBLISHED: [&str; 49] = [
    ".endpoints.sent.cached_tokens",
    ".endpoints.sent.errors_per_second",
    ".endpoints.sent.failing",
    ".endpoints.sent.picks",
    ".endpoints.sent.picks_per_second",
    ".endpoints.sent.predicted_cached_tokens",
    ".endpoints.sent.requests",
    ".endpoints.sent.tokens",
    ".proxies.abstained",
    ".proxies.age_ms",
    ".proxies.form",
    ".proxies.proxy",
    ".proxies.rejected.429",
    ".proxies.resumptions.cut.refused",
    ".proxies.resumptions.resumable",
    ".proxies.resumptions.resumed",
    ".proxies.resumptions.unresumable.token_details",
    ".proxies.routed",
    ".proxies.served_elsewhere",
    ".proxies.sessions.begun.codex",
    ".proxies.sessions.blocks",
    ".proxies.sessions.blocks_matched",
    ".proxies.sessions.turns.codex",
    ".proxies.shadow.agreed",
    ".proxies.shadow.disagreed",
    ".proxies.version",
    ".traffic.abstained_per_second",
    ".traffic.first_token_ms",
    ".traffic.prefix_hits",
    ".traffic.rejected_per_second.429",
    ".traffic.routed_per_second",
    ".traffic.served_elsewhere_per_second",
    r#"endpoint_picker_cut_streams_total{pool="default",proxy="envoy-1",reason="refused"}"#,
    r#"endpoint_picker_proxies{pool="default"}"#,
    r#"endpoint_picker_proxy_info{pool="default",proxy="envoy-1",version="1.2.3",form="wasm"}"#,
    r#"endpoint_picker_report_age_seconds{pool="default",proxy="envoy-1"}"#,
    r#"endpoint_picker_requests_total{pool="default",proxy="envoy-1",outcome="abstained",status=""}"#,
    r#"endpoint_picker_requests_total{pool="default",proxy="envoy-1",outcome="rejected",status="429"}"#,
    r#"endpoint_picker_requests_total{pool="default",proxy="envoy-1",outcome="routed",status=""}"#,
    r#"endpoint_picker_resumable_streams_total{pool="default",proxy="envoy-1"}"#,
    r#"endpoint_picker_resumed_streams_total{pool="default",proxy="envoy-1"}"#,
    r#"endpoint_picker_served_elsewhere_total{pool="default",proxy="envoy-1"}"#,
    r#"endpoint_picker_session_blocks_matched_total{pool="default",proxy="envoy-1"}"#,
    r#"endpoint_picker_session_blocks_total{pool="default",proxy="envoy-1"}"#,
    r#"endpoint_picker_session_turns_total{pool="default",proxy="envoy-1",source="codex"}"#,
    r#"endpoint_picker_sessions_total{pool="default",proxy="envoy-1",source="codex"}"#,
    r#"endpoint_picker_shadow_decisions_total{pool="default",proxy="envoy-1",agrees="false"}"#,
    r#"endpoint_picker_shadow_decisions_total{pool="default",proxy="envoy-1",agrees="true"}"#,
    r#"endpoint_picker_unresumable_streams_total{pool="default",proxy="envoy-1",reason="token_details"}"#,
];

/// The paths of all numbers and texts in a value.
fn paths(value: &serde_json::Value, path: &str) -> Vec<String> {
    match value {
        serde_json::Value::Array(values) => values.iter().flat_map(|value| paths(value, path)).collect(),
        serde_json::Value::Object(fields) => {
            fields.iter().flat_map(|(name, value)| paths(value, &format!("{path}.{name}"))).collect()
        }
        _ => vec![path.to_owned()],
    }
}

#[tokio::test]
async fn the_numbers_of_a_report_keep_their_names() {
    let (agent, _server, key) = agent_and_key().await;
    for picks in [100, 108] {
        assert_eq!(post(&agent, PATH, PROTOBUF, &report(key, picks)).await.0, 204);
    }
    let status: serde_json::Value =
        serde_json::from_slice(&agent.get("/v1/pools/default").await.body).unwrap();
    let metrics = agent.get("/metrics").await.text();
    let series = metrics.lines().filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()));
    let published: BTreeSet<String> = paths(&status, "").into_iter().chain(series).collect();
    let lacking: Vec<_> = PUBLISHED.iter().filter(|name| !published.contains(**name)).collect();
    assert!(lacking.is_empty(), "{lacking:?} are not among {published:#?}");
}

#[tokio::test]
async fn an_invalid_report_is_refused_with_the_reason_and_changes_nothing() {
    let (agent, _server, key) = agent_and_key().await;
    let good = report(key, 1);
    let other_format = Report { format: 9, ..Report::default() }.encode_to_vec();
    for (path, kind, body, status, reason) in [
        (PATH, PROTOBUF, &b"\xff\xff\xff"[..], 400, "malformed"),
        (PATH, PROTOBUF, &other_format, OTHER_FORMAT_STATUS, "format 9"),
        (PATH, "text/plain", &good, 415, "application/x-protobuf"),
        ("/v1/pools/other/report", PROTOBUF, &good, 404, "no such pool"),
        (PATH, PROTOBUF, &vec![0; (4 << 20) + 1], 413, "the allowed 4194304 bytes"),
    ] {
        let (found, answer) = post(&agent, path, kind, body).await;
        assert_eq!(found, status, "{path} {kind}: {answer}");
        assert!(answer.contains(reason), "{answer}");
    }
    let status = agent.get("/v1/pools/default").await.text();
    assert!(status.contains(r#""proxies":[]"#), "{status}");
    let metrics = agent.get("/metrics").await.text();
    assert!(metrics.contains("\nmetrics_agent_reports_total{outcome=\"refused\"} 5\n"), "{metrics}");
}

#[tokio::test]
async fn a_proxy_beyond_the_limit_is_refused_and_earlier_ones_go_on() {
    let (agent, _server, _) = agent_and_key().await;
    let report = async |proxy: &str| {
        let report = Report { format: REPORT_FORMAT, proxy: proxy.to_owned(), ..Report::default() };
        post(&agent, PATH, PROTOBUF, &report.encode_to_vec()).await
    };
    assert_eq!((report("one").await.0, report("two").await.0), (204, 204));
    let (status, answer) = report("three").await;
    assert!(
        status == 400 && answer.contains("2 other proxies") && answer.contains("--max-proxies"),
        "{answer}"
    );
    assert_eq!(report("one").await.0, 204);
}

#[tokio::test]
async fn the_pools_are_listed_and_the_404_for_an_unknown_one_names_them() {
    let (agent, _server, _) = agent_and_key().await;
    let list: serde_json::Value = serde_json::from_slice(&agent.get("/v1/pools").await.body).unwrap();
    let refused = serde_json::json!({"count": 0, "objects": []});
    let version = env!("CARGO_PKG_VERSION");
    let expected = serde_json::json!({"version": version, "pools": ["default"], "refused": refused, "unknown_pools": []});
    assert_eq!(list, expected);
    let unknown = agent.get("/v1/pools/other").await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.text().contains("allowed: default"), "{}", unknown.text());
}

#[tokio::test]
async fn a_pool_that_proxies_ask_for_and_the_agent_lacks_is_named_and_counted() {
    let (agent, _server, _) = agent_and_key().await;
    let counted = async || agent.get("/metrics").await.text();
    let series = "\nmetrics_agent_snapshots_total{outcome=\"unknown_pool\"}";
    assert!(counted().await.contains(&format!("{series} 0\n")), "an increase needs a value before it");
    for _ in 0..2 {
        assert_eq!(agent.get("/v1/pools/defualt/snapshot").await.status, 404);
    }
    assert!(counted().await.contains(&format!("{series} 2\n")));
    for path in ["/v1/pools", "/v1/pools/default"] {
        let answer: serde_json::Value = serde_json::from_slice(&agent.get(path).await.body).unwrap();
        let unknown = &answer["unknown_pools"][0];
        assert_eq!((&unknown["pool"], &unknown["requests"]), (&"defualt".into(), &2.into()), "{answer}");
        assert!(unknown["age_ms"].as_u64().unwrap() < 60_000, "{answer}");
    }
}

#[tokio::test]
async fn the_history_has_a_point_for_each_endpoint() {
    let (agent, server, _) = agent_and_key().await;
    let name = format!("default/{}", server.address());
    eventually("a point with the reading", async || {
        let answer = agent.get("/v1/pools/default/history").await;
        let history: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        let points = history["endpoints"][&name]["waiting"].as_array()?;
        (points.last()? == &serde_json::json!(3.0) && points.len() == history["ages_ms"].as_array()?.len())
            .then_some(())
    })
    .await;
}
