//! The tokens that responses report.

use core::time::Duration;

use endpoint_picker_wire::statistics::MetricKind;
use serde_json::json;

use crate::fixture::{Fixture, Request, START, TEXT};

const ANSWER: &str =
    r#"{"usage":{"prompt_tokens":7,"completion_tokens":5,"prompt_tokens_details":{"cached_tokens":4}}}"#;
const JSON: &[(&str, &str)] = &[(":status", "200"), ("content-type", "application/json")];

fn counting() -> Fixture {
    Fixture::with_config(&json!({"countTokens": true}))
}

fn histogram(fixture: &Fixture, name: &str) -> Vec<u64> {
    let histograms = fixture.sink.values(MetricKind::Histogram);
    histograms.get(&format!("{name}|m|m")).cloned().unwrap_or_default()
}

fn advance(request: &Request, milliseconds: u64) {
    request.proxy.now.set(START + Duration::from_millis(milliseconds));
}

#[test]
fn the_tokens_of_a_plain_answer_are_counted_when_it_has_ended() {
    let mut fixture = counting();
    let mut request = fixture.routed();
    request.answer(&mut fixture, 1, JSON);
    let (first, last) = ANSWER.split_at(30);
    assert_eq!(request.chunk(&mut fixture, first, false), first);
    assert_eq!(histogram(&fixture, "input_tokens"), [0; 0]);
    advance(&request, 50);
    assert_eq!(request.chunk(&mut fixture, last, true), last);
    assert_eq!(histogram(&fixture, "input_tokens"), [7]);
    assert_eq!(histogram(&fixture, "output_tokens"), [5]);
    assert_eq!(histogram(&fixture, "cached_tokens"), [4]);
    assert_eq!(histogram(&fixture, "ntpot_us"), [10_000]);
    assert_eq!(histogram(&fixture, "streaming_tpot_us"), [0; 0], "it was not streamed");
    fixture.pool.publish_metrics(false, START);
    for (name, sum) in [("input", 7), ("output", 5), ("cached", 4)] {
        assert_eq!(fixture.counted(&format!("{name}_tokens_total|m|m")), sum);
    }
}

#[test]
fn a_streamed_answer_has_a_time_for_each_further_token() {
    let mut fixture = counting();
    let mut request = fixture.routed();
    advance(&request, 20);
    request.answer(&mut fixture, 1, &[(":status", "200"), ("content-type", "text/event-stream")]);
    request.chunk(&mut fixture, "data: {}\n\n", false);
    advance(&request, 100);
    request.chunk(&mut fixture, &format!("data: {ANSWER}\n\n"), false);
    request.exchange.response_trailers(&mut fixture.pool, &mut request.proxy);
    assert_eq!(histogram(&fixture, "output_tokens"), [5]);
    assert_eq!(histogram(&fixture, "ntpot_us"), [20_000]);
    assert_eq!(histogram(&fixture, "streaming_tpot_us"), [20_000]);
}

#[test]
fn nothing_is_counted_unless_configured_or_for_other_answers() {
    let mut fixture = Fixture::new();
    let mut request = fixture.routed();
    request.answer(&mut fixture, 1, JSON);
    request.chunk(&mut fixture, ANSWER, true);
    assert_eq!(histogram(&fixture, "input_tokens"), [0; 0]);

    let mut fixture = counting();
    for (status, content_type) in [("500", "application/json"), ("200", "text/plain")] {
        let mut request = fixture.post(TEXT, &[], r#"{"model": "m", "prompt": "hi"}"#);
        request.answer(&mut fixture, 1, &[(":status", status), ("content-type", content_type)]);
        request.chunk(&mut fixture, ANSWER, true);
    }
    assert_eq!(histogram(&fixture, "input_tokens"), [0; 0]);
}

#[test]
fn an_answer_that_is_cut_off_or_cannot_be_read_is_not_counted() {
    let mut fixture = counting();
    let mut cut = fixture.routed();
    cut.answer(&mut fixture, 1, JSON);
    cut.chunk(&mut fixture, ANSWER, false);
    cut.exchange.end(&mut fixture.pool);
    for call in ["response_chunk", "now"] {
        let mut request = fixture.routed();
        request.answer(&mut fixture, 1, JSON);
        request.proxy.refused = vec![call];
        assert_eq!(request.chunk(&mut fixture, ANSWER, true), ANSWER);
    }
    assert_eq!(histogram(&fixture, "input_tokens"), [0; 0]);
}
