//! Usage in responses: samples for the index of prompts, and the counts of predicted and cached tokens.

use endpoint_picker_engine::agent::Reporter;
use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::proxy::headers::EXPLANATION;
use endpoint_picker_engine::testing::{picker_config, plugin};
use endpoint_picker_wire::Message;
use endpoint_picker_wire::report::{EndpointReport, PredictionErrors, Report};
use endpoint_picker_wire::statistics::MetricKind;
use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use crate::claims::HUGE;
use crate::fixture::{CHAT, Fixture, Request, START, TEXT};

pub(crate) const JSON: &[(&str, &str)] = &[(":status", "200"), ("content-type", "application/json")];
const STREAM: &[(&str, &str)] = &[(":status", "200"), ("content-type", "text/event-stream")];

/// Has a client see explanations.
const SECRET: &str = "0123456789abcdef";

/// A prompt of 400 estimated tokens.
fn prompt(number: usize) -> Value {
    json!({"model": "m", "prompt": format!("{number:05}").repeat(320)})
}

/// The body of a response to a prompt with this many tokens, of which some were cached.
pub(crate) fn usage(prompt: u64, cached: u64) -> String {
    json!({"usage": {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}})
        .to_string()
}

/// A pool with the EPP's default that counts tokens.
fn counting() -> Fixture {
    Fixture::with_policy(&json!({"countTokens": true}), v1::Policy::default())
}

/// A pool that learns and explains.
fn learning() -> Fixture {
    let mut config = picker_config(&[("expected-latency-scorer", None)]);
    config.plugins.push(plugin("approx-prefix-cache-producer", r#"{"learnFromUsage": true}"#));
    let policy = v1::Policy { picker_config: Some(config), ..v1::Policy::default() };
    Fixture::with_policy(&json!({"explain": {"header": "x-why", "secret": SECRET}}), policy)
}

fn send(fixture: &mut Fixture, body: &Value) -> (Request, u8) {
    let request = fixture.post(TEXT, &[("x-why", SECRET)], &body.to_string());
    let endpoint = request.destination().unwrap().as_bytes()[7] - b'0';
    (request, endpoint)
}

/// Sends a prompt and has its server respond.
fn exchange(fixture: &mut Fixture, body: &Value, response: &str) {
    let (mut request, from) = send(fixture, body);
    request.answer(fixture, from, JSON);
    request.chunk(fixture, response, true);
}

/// The endpoints of the next report.
fn reported(fixture: &Fixture) -> Vec<EndpointReport> {
    let mut reporter = Reporter::new("p", "envoy-1".to_owned(), Form::Wasm, 42);
    let request = reporter.next_report(fixture.pool.store(), || fixture.pool.totals(), START).unwrap();
    Report::decode(request.body.unwrap().as_slice()).unwrap().endpoints
}

/// Predicted and cached tokens of all endpoints together.
fn counts(fixture: &Fixture) -> (u64, u64) {
    let endpoints = reported(fixture);
    let sum = |of: fn(&EndpointReport) -> u64| endpoints.iter().map(of).sum();
    (sum(|it| it.predicted_cached_tokens), sum(|it| it.cached_tokens))
}

/// Predictions by events and by prompts, of all endpoints together: responses, the sum of their errors, and
/// those that are wrong.
pub(crate) fn errors(fixture: &Fixture) -> [(u64, u64, u64); 2] {
    let endpoints = reported(fixture);
    let sum = |of: fn(EndpointReport) -> Option<PredictionErrors>| {
        endpoints.iter().cloned().filter_map(of).fold((0, 0, 0), |(responses, tokens, wrong), errors| {
            (responses + errors.counts.iter().sum::<u64>(), tokens + errors.tokens, wrong + errors.wrong)
        })
    };
    [sum(|it| it.errors_by_events), sum(|it| it.errors_by_prompts)]
}

/// Uncached tokens of a new prompt of 64 estimated tokens, as the rules count them.
fn uncached(fixture: &mut Fixture, model: &str, number: usize) -> String {
    let body = json!({"model": model, "prompt": format!("n{number:03}").repeat(64)});
    let (mut request, from) = send(fixture, &body);
    request.answer(fixture, from, JSON);
    let text = request.proxy.response_header(EXPLANATION).unwrap();
    text.split_once(" U ").and_then(|(_, rest)| rest.split_once(' ')).unwrap().0.to_owned()
}

#[test]
fn predicted_and_cached_tokens_are_counted_in_tokens_of_the_server() {
    let mut fixture = counting();
    exchange(&mut fixture, &prompt(1), &usage(600, 0));
    assert_eq!(counts(&fixture), (0, 0));
    exchange(&mut fixture, &prompt(1), &usage(600, 100));
    assert_eq!(counts(&fixture), (600, 100));
    exchange(&mut fixture, &prompt(1), &usage(600, 592));
    assert_eq!(counts(&fixture), (1_200, 700), "less than a block is no difference");
    assert_eq!(errors(&fixture), [(0, 0, 0), (3, 500 + 8, 1)]);
    let histograms = fixture.sink.values(MetricKind::Histogram);
    assert_eq!(histograms["model_index_error_tokens|m|m|prompts"], [0, 500, 8]);
    fixture.pool.publish_metrics(false, START);
    assert_eq!(fixture.counted("model_index_wrong_responses|m|m|prompts"), 1);
}

#[test]
fn a_streams_usage_counts_and_a_response_without_cached_tokens_does_not() {
    let mut fixture = counting();
    exchange(&mut fixture, &prompt(1), "{}");
    exchange(&mut fixture, &prompt(1), r#"{"usage": {"prompt_tokens": 400}}"#);
    let (mut request, from) = send(&mut fixture, &prompt(1));
    request.answer(&mut fixture, from, STREAM);
    request.chunk(&mut fixture, "data: {}\n\n", true);
    assert_eq!((counts(&fixture), errors(&fixture)), ((0, 0), [(0, 0, 0); 2]));
    let (mut request, from) = send(&mut fixture, &prompt(1));
    request.answer(&mut fixture, from, STREAM);
    request.chunk(&mut fixture, "data: {}\n\n", false);
    request.chunk(&mut fixture, &format!("data: {}\n\ndata: [DONE]\n\n", usage(400, 16)), true);
    assert_eq!(counts(&fixture), (400, 16));
}

#[test]
fn responses_of_other_servers_and_to_prompts_that_were_not_read_count_nothing() {
    let mut fixture = counting();
    exchange(&mut fixture, &prompt(1), &usage(400, 0));
    let (mut request, from) = send(&mut fixture, &prompt(1));
    request.answer(&mut fixture, from % 3 + 1, JSON);
    request.chunk(&mut fixture, &usage(400, 50), true);
    assert_eq!(counts(&fixture), (0, 0), "another server");

    let mut fixture = Fixture::with_policy(
        &json!({"limits": {"peekBytes": 1024}, "countTokens": true}),
        v1::Policy::default(),
    );
    let body = prompt(1).to_string();
    for _ in 0..2 {
        let mut request = fixture.request(TEXT, &[]);
        assert_eq!(request.head(&mut fixture), Flow::Hold);
        request.body(&mut fixture, &body.as_bytes()[..1024], false);
        request.body(&mut fixture, body.as_bytes(), true);
        let from = request.destination().unwrap().as_bytes()[7] - b'0';
        request.answer(&mut fixture, from, JSON);
        request.chunk(&mut fixture, &usage(400, 100), true);
    }
    assert_eq!(counts(&fixture), (0, 0), "decided by the beginning of the body");

    let mut fixture = Fixture::with_policy(&json!({}), v1::Policy::default());
    exchange(&mut fixture, &prompt(1), &usage(400, 0));
    exchange(&mut fixture, &prompt(1), &usage(400, 100));
    assert_eq!(counts(&fixture), (0, 0), "nothing has responses read");
}

#[test]
fn the_tokens_of_a_model_follow_its_responses() {
    let mut fixture = learning();
    assert_eq!(uncached(&mut fixture, "m", 1), "64");
    for number in 0..8 {
        exchange(&mut fixture, &prompt(number), &usage(600, 0));
    }
    assert_eq!([uncached(&mut fixture, "m", 2), uncached(&mut fixture, "other", 3)], ["96", "64"]);
    for _ in 0..300 {
        exchange(&mut fixture, &prompt(1), &usage(u64::MAX >> 40, 0));
    }
    assert!(uncached(&mut fixture, "m", 4).parse::<u64>().unwrap() <= 256, "4 times the estimate at most");
}

#[test]
fn without_the_option_nothing_is_learnt() {
    let mut fixture = Fixture::with_policy(
        &json!({"countTokens": true, "explain": {"header": "x-why", "secret": SECRET}}),
        v1::Policy {
            picker_config: Some(picker_config(&[("expected-latency-scorer", None)])),
            ..v1::Policy::default()
        },
    );
    for number in 0..20 {
        exchange(&mut fixture, &prompt(number), &usage(600, 0));
    }
    assert_eq!(uncached(&mut fixture, "m", 1), "64");
}

#[test]
fn images_videos_and_audio_teach_no_tokens_of_a_model_and_no_size_of_a_cache() {
    let mut fixture = learning();
    let image = json!({"type": "image_url", "image_url": {"url": HUGE}});
    let body = json!({"model": "m", "messages": [{"role": "user", "content": [image]}]}).to_string();
    for _ in 0..30 {
        let mut request = fixture.post(CHAT, &[], &body);
        let from = request.destination().unwrap().as_bytes()[7] - b'0';
        request.answer(&mut fixture, from, JSON);
        request.chunk(&mut fixture, &usage(100, 0), true);
    }
    assert_eq!(uncached(&mut fixture, "m", 1), "64");
}
