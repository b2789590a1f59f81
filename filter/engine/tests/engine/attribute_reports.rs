//! Numbers of responses, by `request-attribute-reporter`.

use endpoint_picker_engine::testing;
use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Request, TEXT, fewest_waiting};

const JSON: &[(&str, &str)] = &[(":status", "200"), ("content-type", "application/json")];
const ANSWER: &str = r#"{"usage":{"prompt_tokens":7,"completion_tokens":5}}"#;

/// A policy with reporters of these names and attributes.
fn policy(reporters: &[(&str, Value)]) -> v1::Policy {
    let mut policy = fewest_waiting();
    let plugin = |(name, attribute): &(&str, Value)| {
        let parameters = json!({"attributes": [attribute]}).to_string();
        v1::Plugin { name: (*name).to_owned(), ..testing::plugin("request-attribute-reporter", &parameters) }
    };
    policy.picker_config.as_mut().unwrap().plugins.extend(reporters.iter().map(plugin));
    policy
}

fn attribute(name: &str, expression: &str) -> Value {
    json!({"key": {"name": name}, "expression": expression})
}

fn fixture(reporters: &[(&str, Value)]) -> Fixture {
    Fixture::with_policy(&json!({}), policy(reporters))
}

fn numbers(request: &Request) -> Vec<(&str, &str, i64)> {
    let numbers = request.proxy.numbers.iter();
    numbers.map(|(namespace, name, value)| (namespace.as_str(), name.as_str(), *value)).collect()
}

#[test]
fn each_reporter_reports_once_when_the_response_has_ended() {
    let in_billing =
        json!({"key": {"namespace": "billing", "name": "sum"}, "expression": "usage.total_tokens"});
    let mut fixture =
        fixture(&[("cost", attribute("x-cost", "usage.completion_tokens")), ("sum", in_billing)]);
    let mut request = fixture.routed();
    request.answer(&mut fixture, 1, JSON);
    let (first, last) = ANSWER.split_at(30);
    assert_eq!(request.chunk(&mut fixture, first, false), first);
    assert_eq!(numbers(&request), []);
    assert_eq!(request.chunk(&mut fixture, last, true), last);
    assert_eq!(numbers(&request), [("envoy.lb", "x-cost", 5), ("billing", "sum", 12)]);
    assert_eq!(fixture.counted("attribute_reports|cost|reported"), 1);
}

#[test]
fn a_stream_that_ends_with_trailers_is_reported_too() {
    let mut fixture = fixture(&[("cost", attribute("x-cost", "usage.completion_tokens"))]);
    let mut request = fixture.routed();
    request.answer(&mut fixture, 1, &[(":status", "200"), ("content-type", "text/event-stream")]);
    request.chunk(&mut fixture, &format!("data: {ANSWER}\n\n"), false);
    request.exchange.response_trailers(&mut fixture.pool, &mut request.proxy);
    assert_eq!(numbers(&request), [("envoy.lb", "x-cost", 5)]);
}

#[test]
fn responses_without_a_number_are_counted_by_the_reason() {
    let mut conditional = attribute("b", "1");
    conditional["condition"] = json!("usage.completion_tokens > 5");
    let mut fixture = fixture(&[
        ("nothing", attribute("a", "usage.completion_tokens - 5.0")),
        ("unmet", conditional),
        ("failing", attribute("c", "usage.cost")),
    ]);
    let mut request = fixture.routed();
    request.answer(&mut fixture, 1, JSON);
    assert_eq!(request.chunk(&mut fixture, ANSWER, true), ANSWER);
    assert_eq!(numbers(&request), []);
    for counter in ["nothing|nothing", "unmet|unmet", "failing|failed"] {
        assert_eq!(fixture.counted(&format!("attribute_reports|{counter}")), 1, "{counter}");
    }
}

#[test]
fn a_failure_a_compressed_response_and_a_refused_call_report_nothing_and_pass() {
    let mut fixture = fixture(&[("cost", attribute("x-cost", "1"))]);
    let compressed = &[JSON[0], JSON[1], ("content-encoding", "gzip")];
    for headers in [&[(":status", "500"), JSON[1]][..], compressed] {
        let mut request = fixture.post(TEXT, &[], r#"{"model": "m", "prompt": "hi"}"#);
        request.answer(&mut fixture, 1, headers);
        assert_eq!(request.chunk(&mut fixture, ANSWER, true), ANSWER);
        assert_eq!(numbers(&request), []);
    }
    let mut request = fixture.post(TEXT, &[], r#"{"model": "m", "prompt": "hi"}"#);
    request.answer(&mut fixture, 1, JSON);
    request.proxy.refused.push("set_metadata");
    assert_eq!(request.chunk(&mut fixture, ANSWER, true), ANSWER);
    assert_eq!(fixture.in_flight(), [0, 0, 0]);
}
