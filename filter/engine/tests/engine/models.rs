//! Requests whose model is replaced, and the client's name in their responses.

use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, TEXT, fewest_waiting};

const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;

fn target(model: &str) -> v1::Target {
    v1::Target { model: model.to_owned(), weight: None }
}

fn renaming() -> Fixture {
    let rule = v1::RewriteRule {
        resource: "rule".to_owned(),
        models: vec!["m".to_owned()],
        targets: vec![target("canary")],
    };
    Fixture::with_policy(&json!({}), v1::Policy { rewrite_rules: vec![rule], ..fewest_waiting() })
}

#[test]
fn the_body_names_the_other_model_and_its_length_is_corrected() {
    let mut fixture = renaming();
    let request = fixture.post(TEXT, &[("content-length", "30")], BODY);
    assert_eq!(request.proxy.request_body, br#"{"model": "canary", "prompt": "hi"}"#);
    assert_eq!(request.proxy.request_header("content-length"), Some("35"));
    let chunked = fixture.post(TEXT, &[], BODY);
    assert_eq!(chunked.proxy.request_header("content-length"), None);
}

#[test]
fn other_bodies_stay_as_they_are() {
    let mut fixture = renaming();
    let body = r#"{"model": "n", "prompt": "hi"}"#;
    let request = fixture.post(TEXT, &[("content-length", "30")], body);
    assert_eq!(request.proxy.request_body, body.as_bytes());
    let mut request = request;
    request.answer(&mut fixture, 1, &[(":status", "200"), ("content-length", "18")]);
    assert_eq!(request.proxy.response_header("content-length"), Some("18"));
    assert_eq!(request.chunk(&mut fixture, r#"{"model":"canary"}"#, true), r#"{"model":"canary"}"#);
}

#[test]
fn the_answer_names_the_clients_model_also_where_its_name_is_cut() {
    let mut fixture = renaming();
    let mut request = fixture.post(TEXT, &[], BODY);
    request.answer(&mut fixture, 1, &[(":status", "200"), ("content-length", "18")]);
    assert_eq!(request.proxy.response_header("content-length"), None, "its length is not known yet");
    let first = request.chunk(&mut fixture, r#"{"model":"can"#, false);
    let last = request.chunk(&mut fixture, r#"ary"}"#, true);
    assert_eq!(first + &last, r#"{"model":"m"}"#);
}

#[test]
fn a_compressed_answer_and_one_without_a_body_stay_as_they_are() {
    let mut fixture = renaming();
    let mut request = fixture.post(TEXT, &[], BODY);
    let headers = [(":status", "200"), ("content-length", "18"), ("content-encoding", "gzip")];
    request.answer(&mut fixture, 1, &headers);
    assert_eq!(request.proxy.response_header("content-length"), Some("18"));
    assert_eq!(request.chunk(&mut fixture, r#"{"model":"canary"}"#, true), r#"{"model":"canary"}"#);

    let mut request = fixture.post(TEXT, &[], BODY);
    request.proxy.response_headers =
        vec![(":status".to_owned(), b"200".to_vec()), ("content-length".to_owned(), b"18".to_vec())];
    request.exchange.response_headers(&mut fixture.pool, &mut request.proxy, true);
    assert_eq!(request.proxy.response_header("content-length"), Some("18"));
}

#[test]
fn an_answer_that_cannot_be_read_passes() {
    let mut fixture = renaming();
    for call in ["response_chunk", "replace_response_chunk"] {
        let mut request = fixture.post(TEXT, &[], BODY);
        request.answer(&mut fixture, 1, &[(":status", "200")]);
        request.proxy.refused = vec![call];
        assert_eq!(request.chunk(&mut fixture, r#"{"model":"canary"}"#, true), r#"{"model":"canary"}"#);
    }
}

#[test]
fn an_answer_may_end_with_trailers_within_the_name() {
    let mut fixture = renaming();
    let mut request = fixture.post(TEXT, &[], BODY);
    request.answer(&mut fixture, 1, &[(":status", "200")]);
    request.chunk(&mut fixture, r#"{"model":"can"#, false);
    request.exchange.response_trailers(&mut fixture.pool, &mut request.proxy);
    assert_eq!(fixture.in_flight(), [0, 0, 0]);
}

#[test]
fn a_body_that_cannot_be_replaced_is_left_to_the_failure_mode() {
    let mut fixture = renaming();
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    request.proxy.refused = vec!["replace_request_body"];
    request.body(&mut fixture, BODY.as_bytes(), true);
    assert_eq!(request.destination(), None);
    assert_eq!(fixture.counted("abstained|no_snapshot"), 1);
}

/// Example of `Models and priorities`.
#[test]
fn the_body_has_the_priority_of_the_policy_and_not_the_clients() {
    let policy = fewest_waiting();
    let config = v1::PickerConfig { propagate_priority: true, ..policy.picker_config.clone().unwrap() };
    let objectives = vec![v1::Objective { name: "urgent".to_owned(), priority: 7 }];
    let policy = v1::Policy { picker_config: Some(config), objectives, ..policy };
    let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192}});
    let mut fixture = Fixture::with_policy(&limits, policy);
    let urgent = ("x-llm-d-inference-objective", "urgent");
    let request = fixture.post(TEXT, &[urgent, ("content-length", "30")], BODY);
    assert_eq!(request.proxy.request_body, br#"{"model": "m", "prompt": "hi","priority":-7}"#);
    assert_eq!(request.proxy.request_header("content-length"), Some("44"));
    let other = fixture.post(TEXT, &[], r#"{"priority": -100, "model": "m", "prompt": "hi"}"#);
    assert_eq!(other.proxy.request_body, br#"{"priority": 0, "model": "m", "prompt": "hi"}"#);

    let mut long = fixture.request(TEXT, &[urgent]);
    long.head(&mut fixture);
    let body = format!(r#"{{"model": "m", "prompt": "{}", "priority": 1}}"#, "a".repeat(2000));
    let (beginning, rest) = body.as_bytes().split_at(1500);
    long.body(&mut fixture, beginning, false);
    assert_eq!(long.destination(), None, "the whole body is awaited");
    long.body(&mut fixture, rest, true);
    assert!(long.destination().is_some());
    assert!(long.proxy.request_body.ends_with(br#", "priority": -7}"#));

    for (path, body) in [("/v1/rerank", r#"{"model": "m"}"#), ("/anything/else", "hi")] {
        let mut request = fixture.request(path, &[urgent]);
        request.head(&mut fixture);
        request.body(&mut fixture, body.as_bytes(), true);
        assert_eq!(request.proxy.request_body, body.as_bytes(), "{path}");
    }
}

#[test]
fn models_and_rewrites_are_counted() {
    let mut fixture = renaming();
    for _ in 0..2 {
        fixture.post(TEXT, &[], BODY).served(&mut fixture);
    }
    assert_eq!(fixture.counted("model_requests|m|canary"), 2);
    assert_eq!(fixture.counted("rewrites|rule|canary"), 2);
    assert_eq!(fixture.counted("picks|10.0.0.1:8000"), 2);
}

#[test]
fn a_request_that_names_no_model_is_counted_as_none() {
    let mut fixture = Fixture::new();
    let request = fixture.post("/anything/else", &[], "");
    assert!(request.destination().is_some());
    request.served(&mut fixture);
    assert_eq!(fixture.counted("model_requests|none|none"), 1);
}

#[test]
fn an_unknown_model_is_answered_404_also_by_the_beginning_of_a_body() {
    let model = v1::InferenceModel { name: "known".to_owned(), ..v1::InferenceModel::default() };
    let policy = v1::Policy { inference_models: vec![model], ..fewest_waiting() };
    let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192}});
    let mut fixture = Fixture::with_policy(&limits, policy);
    assert_eq!(fixture.post(TEXT, &[], BODY).rejection().status, 404);
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    let long = format!(r#"{{"model": "m", "prompt": "{}"#, "a".repeat(2000));
    request.body(&mut fixture, long.as_bytes(), false);
    assert_eq!(request.rejection().status, 404);
    assert_eq!(fixture.counted("rejected|404"), 2);
    let known = fixture.post(TEXT, &[], r#"{"model": "known", "prompt": "hi"}"#);
    assert!(known.destination().is_some());
}

#[test]
fn a_second_model_behind_the_part_of_a_long_body_that_is_read_is_not_checked() {
    let model = v1::InferenceModel { name: "known".to_owned(), ..v1::InferenceModel::default() };
    let body = format!(r#"{{"model": "known", "prompt": "{}", "model": "unknown"}}"#, "a".repeat(2000));
    for (peek_bytes, is_checked) in [(1024, false), (8192, true)] {
        let policy = v1::Policy { inference_models: vec![model.clone()], ..fewest_waiting() };
        let limits = json!({"limits": {"peekBytes": peek_bytes, "maxHeldBytes": 8192}});
        let mut fixture = Fixture::with_policy(&limits, policy);
        let mut request = fixture.request(TEXT, &[]);
        request.head(&mut fixture);
        let (beginning, rest) = body.as_bytes().split_at(1024);
        request.body(&mut fixture, beginning, false);
        request.body(&mut fixture, rest, true);
        assert_eq!(request.destination().is_none(), is_checked);
        assert_eq!(fixture.counted("rejected|404"), u64::from(is_checked));
    }
}
