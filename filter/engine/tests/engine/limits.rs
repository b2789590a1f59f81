//! Requests whose clients have limits for the latency: admission by predictions, and limits that were kept.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::testing::{picker_config, plugin};
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, Request, START, TEXT, snapshot, topology};

const STREAM: &[(&str, &str)] = &[(":status", "200"), ("content-type", "text/event-stream")];
const WHOLE: &[(&str, &str)] = &[(":status", "200"), ("content-type", "application/json")];

const SHEDDABLE: (&str, &str) = ("x-llm-d-inference-objective", "batch");
const TTFT: &str = "x-llm-d-slo-ttft-ms";
const TPOT: &str = "x-slo-tpot-ms";

/// Three busy servers behind an admitter.
fn fixture(parameters: &str) -> Fixture {
    let mut config = picker_config(&[("max-score-picker", None)]);
    config.plugins.push(plugin("predicted-latency-producer", parameters));
    config.plugins.push(plugin("latency-slo-admitter", "{}"));
    let objective = v1::Objective { name: "batch".to_owned(), priority: -1 };
    let policy =
        v1::Policy { picker_config: Some(config), objectives: vec![objective], ..v1::Policy::default() };
    let explain = json!({"explain": {"header": "x-why", "secret": "0123456789abcdef"}});
    let mut fixture = Fixture::without_snapshot(&explain);
    let mut snapshot = snapshot(&[0; 3]);
    for reading in &mut snapshot.readings {
        (reading.running, reading.kv_usage) = (Some(1), Some(0.5));
    }
    let topology = Arc::new(Topology::compile(topology(&[1, 2, 3], policy)).unwrap());
    fixture.pool.adopt(Arc::new(PoolView::new(topology, snapshot, START)));
    fixture
}

fn streaming() -> Fixture {
    fixture(r#"{"streamingMode": true}"#)
}

/// A prompt of 1000 tokens, which takes 1/8 ms each before the first response, and whole blocks: 128 ms.
fn post(fixture: &mut Fixture, headers: &[(&str, &str)]) -> Request {
    fixture.post(TEXT, headers, &json!({"model": "m", "prompt": "abcde".repeat(800)}).to_string())
}

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let mut headers = request.rejection().headers.iter();
    headers.find(|(header, _)| header == name).map(|(_, value)| value.as_str())
}

/// Has the picked server respond with a first chunk after this time, and with this many more, 10 ms apart.
fn respond(fixture: &mut Fixture, mut request: Request, head: &[(&str, &str)], ms: u64, more: u64) {
    let from = request.destination().unwrap().as_bytes()[7] - b'0';
    request.answer(fixture, from, head);
    for number in 0..=more {
        request.proxy.now.set(START + Duration::from_millis(ms + 10 * number));
        request.chunk(fixture, "data: {}\n\n", false);
    }
    request.chunk(fixture, "", true);
}

fn counted(fixture: &mut Fixture, names: [&str; 3]) -> [u64; 3] {
    names.map(|name| fixture.counted(&format!("slo_{name}")))
}

#[test]
fn a_request_that_no_server_would_serve_in_time_gets_429_and_the_time_to_retry() {
    let mut fixture = streaming();
    let refused = post(&mut fixture, &[SHEDDABLE, (TTFT, "20.5")]);
    assert_eq!(refused.rejection().status, 429);
    assert_eq!(header(&refused, "retry-after"), Some("1"));
    assert_eq!(header(&refused, "content-type"), Some("application/json"));
    let body = &refused.rejection().body;
    assert!(body.contains(r#""message":"request cannot be admitted: no valid endpoint available"#), "{body}");
    assert!(body.contains(r#""type":"rate_limit_error""#), "{body}");
    let admitted = post(&mut fixture, &[SHEDDABLE, (TTFT, "200")]);
    assert!(admitted.destination().is_some());
    assert!(post(&mut fixture, &[(TTFT, "20")]).destination().is_some(), "of priority 0");
    assert!(post(&mut fixture, &[SHEDDABLE]).destination().is_some(), "without a limit");
    assert_eq!(counted(&mut fixture, ["refused", "admitted", "ttft_kept"]), [1, 2, 0]);
    assert_eq!(fixture.counted("rejected|429"), 1);
}

#[test]
fn kept_and_missed_limits_are_counted() {
    let mut fixture = streaming();
    for (limit, took, more) in [("50", 49, 0), ("50", 51, 3), ("0", 900, 0)] {
        let request = post(&mut fixture, &[(TTFT, limit)]);
        respond(&mut fixture, request, STREAM, took, more);
    }
    for limit in ["9", "11"] {
        let request = post(&mut fixture, &[(TPOT, limit)]);
        respond(&mut fixture, request, STREAM, 1, 20);
    }
    let request = post(&mut fixture, &[(TTFT, "50"), (TPOT, "50")]);
    respond(&mut fixture, request, WHOLE, 900, 0);
    assert_eq!(counted(&mut fixture, ["admitted", "ttft_kept", "ttft_missed"]), [5, 1, 2]);
    assert_eq!(counted(&mut fixture, ["refused", "tpot_kept", "tpot_missed"]), [0, 1, 1]);
}

#[test]
fn responses_that_fail_or_break_off_neither_keep_nor_miss_a_limit() {
    let mut fixture = streaming();
    let request = post(&mut fixture, &[(TTFT, "50"), (TPOT, "5")]);
    respond(&mut fixture, request, &[(":status", "503"), ("content-type", "text/event-stream")], 100, 0);
    let mut request = post(&mut fixture, &[(TPOT, "5")]);
    request.answer(&mut fixture, 1, STREAM);
    request.chunk(&mut fixture, "a", false);
    request.exchange.end(&mut fixture.pool);
    assert_eq!(counted(&mut fixture, ["admitted", "ttft_kept", "ttft_missed"]), [2, 0, 0]);
    assert_eq!(counted(&mut fixture, ["refused", "tpot_kept", "tpot_missed"]), [0, 0, 0]);
}

#[test]
fn without_streaming_the_end_of_a_response_keeps_the_limit() {
    let mut fixture = fixture("{}");
    for limit in ["95", "105"] {
        let request = post(&mut fixture, &[(TTFT, limit), (TPOT, "1")]);
        respond(&mut fixture, request, STREAM, 50, 5);
    }
    let request = post(&mut fixture, &[(TTFT, "95")]);
    respond(&mut fixture, request, WHOLE, 100, 0);
    assert_eq!(counted(&mut fixture, ["ttft_kept", "ttft_missed", "tpot_missed"]), [1, 2, 0]);
}

#[test]
fn responses_teach_what_the_admitter_predicts() {
    let mut fixture = streaming();
    let is_admitted = |fixture: &mut Fixture, limit| {
        post(fixture, &[SHEDDABLE, (TTFT, limit)]).proxy.local_answer.is_none()
    };
    assert!(is_admitted(&mut fixture, "140") && !is_admitted(&mut fixture, "100"));
    for number in 0..300 {
        let prompt = format!("{number:05}").repeat(800);
        let body = json!({"model": "m", "prompt": prompt}).to_string();
        let request = fixture.post(TEXT, &[], &body);
        respond(&mut fixture, request, STREAM, 40, 1);
    }
    assert!(is_admitted(&mut fixture, "60"));
}

#[test]
fn predictions_are_explained_for_rejections_too() {
    let mut fixture = streaming();
    let refused = post(&mut fixture, &[SHEDDABLE, (TTFT, "20"), ("x-why", "0123456789abcdef")]);
    let why = header(&refused, "x-endpoint-picker-explanation").unwrap();
    let predicted =
        "(predicted-latency-producer: ttft 128.1 ms, headroom -108.1, tpot 0.1 ms, headroom -0.1)";
    assert!(why.contains(&format!("10.0.0.1:8000 {predicted} candidate")), "{why}");
}
