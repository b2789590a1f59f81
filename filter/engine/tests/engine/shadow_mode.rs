//! The filter as the shadow of another picker.

use endpoint_picker_engine::agent::Reporter;
use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::proxy::ProxyError;
use endpoint_picker_engine::proxy::headers::{DESTINATION, EXPLANATION};
use endpoint_picker_wire::report::Report;
use endpoint_picker_wire::statistics::Count;
use endpoint_picker_wire::{Message, v1};
use serde_json::{Value, json};

use crate::fixture::{Fixture, Request, START, TEXT, address, fewest_waiting, topology};

const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;
const SECRET: &str = "0123456789abcdef";

const COUNTERS: [&str; 6] =
    ["agreed", "equal_score", "disagreed", "rejected", "unknown_endpoint", "not_compared"];

/// A pool of three endpoints in the shadow, whose own rules pick the first.
fn shadow() -> Fixture {
    Fixture::with_config(&config(&json!({})))
}

fn config(fields: &Value) -> Value {
    let mut config = json!({"mode": "shadow"});
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    config
}

/// A completed request that another picker has sent to this endpoint.
fn sent_to(fixture: &mut Fixture, endpoint: u8, body: &str) -> Request {
    with_headers(fixture, &[(DESTINATION, &address(endpoint))], body)
}

/// A completed request with these headers, which must pass as it is.
fn with_headers(fixture: &mut Fixture, headers: &[(&str, &str)], body: &str) -> Request {
    let mut request = fixture.request(TEXT, headers);
    let before = request.proxy.request_headers.clone();
    assert_eq!(request.head(fixture), Flow::Continue);
    assert_eq!(request.body(fixture, body.as_bytes(), true), Flow::Continue);
    assert_eq!(request.proxy.request_headers, before);
    assert_eq!(request.proxy.request_body, body.as_bytes());
    assert_eq!((&request.proxy.local_answer, &request.proxy.picked_for), (&None, &None));
    request
}

/// The counters of comparisons, in the order of [`COUNTERS`].
fn counts(fixture: &mut Fixture) -> [u64; 6] {
    COUNTERS.map(|name| fixture.counted(&format!("shadow_{name}")))
}

#[test]
fn the_same_pick_agrees_and_another_does_not() {
    let mut fixture = shadow();
    sent_to(&mut fixture, 1, BODY);
    assert_eq!(counts(&mut fixture), [1, 0, 0, 0, 0, 0]);
    sent_to(&mut fixture, 2, BODY);
    assert_eq!(counts(&mut fixture), [1, 0, 1, 0, 0, 0]);
    assert_eq!(fixture.counted("routed"), 0, "the filter routes nothing");
}

#[test]
fn a_pick_of_the_same_score_agrees() {
    let mut fixture = shadow();
    fixture.adopt(topology(&[1, 2, 3], fewest_waiting()), &[0, 0, 20]);
    for _ in 0..40 {
        sent_to(&mut fixture, 2, BODY);
    }
    let [agreed, equal_score, disagreed, ..] = counts(&mut fixture);
    assert_eq!((agreed, disagreed), (40, 0));
    assert!((5..=35).contains(&equal_score), "chance takes either endpoint: {equal_score}");
}

#[test]
fn load_and_prompts_are_recorded_where_requests_went() {
    let mut policy = fewest_waiting();
    let config_of_picker = policy.picker_config.as_mut().unwrap();
    for name in ["prefix-cache-scorer", "approx-prefix-cache-producer"] {
        config_of_picker.plugins.push(v1::Plugin {
            name: name.to_owned(),
            r#type: name.to_owned(),
            parameters: "{}".to_owned(),
        });
    }
    let reference = v1::PluginRef { name: "prefix-cache-scorer".to_owned(), weight: Some(9.0) };
    config_of_picker.profiles[0].plugins.insert(0, reference);
    let mut fixture = Fixture::with_policy(&config(&json!({})), policy);
    let body = json!({"model": "m", "prompt": "a long prompt of several blocks ".repeat(40)}).to_string();
    let mut request = sent_to(&mut fixture, 3, &body);
    assert_eq!(fixture.in_flight(), [0, 0, 1]);
    assert_eq!(counts(&mut fixture), [0, 0, 1, 0, 0, 0]);
    request.answer(&mut fixture, 3, &[(":status", "200")]);
    request.chunk(&mut fixture, "x", true);
    assert_eq!(fixture.in_flight(), [0, 0, 0]);
    sent_to(&mut fixture, 3, &body);
    assert_eq!(counts(&mut fixture), [1, 0, 1, 0, 0, 0], "the prompt's blocks are at the third endpoint");
    assert!(fixture.counted("prompt_blocks_matched") > 0);
}

#[test]
fn a_request_that_a_picker_of_the_same_pool_has_counted_is_not_counted_again() {
    for (pool, counts_expected, load) in
        [("p", [0, 0, 0, 0, 0, 1], [0, 0, 0]), ("another", [1, 0, 0, 0, 0, 0], [1, 0, 0])]
    {
        let mut fixture = shadow();
        let mut request = fixture.request(TEXT, &[(DESTINATION, &address(1))]);
        request.proxy.picked_for = Some(pool.as_bytes().to_vec());
        assert_eq!(request.head(&mut fixture), Flow::Continue);
        assert_eq!(request.body(&mut fixture, BODY.as_bytes(), true), Flow::Continue);
        assert_eq!((counts(&mut fixture), fixture.in_flight()), (counts_expected, load.to_vec()), "{pool}");
    }
}

#[test]
fn load_moves_to_the_endpoint_of_the_list_that_answers() {
    let mut fixture = shadow();
    let list = [address(2), address(3)].join(",");
    let mut request = with_headers(&mut fixture, &[(DESTINATION, &list)], BODY);
    assert_eq!(fixture.in_flight(), [0, 1, 0]);
    request.answer(&mut fixture, 3, &[(":status", "200")]);
    assert_eq!(fixture.in_flight(), [0, 0, 1]);
    assert_eq!(fixture.avoided(), [2]);
}

#[test]
fn an_endpoint_that_the_pool_lacks_is_counted_and_nothing_is_recorded() {
    let mut fixture = shadow();
    for destination in ["10.9.9.9:80", "server:8000", "", "x,10.0.0.1:8000"] {
        with_headers(&mut fixture, &[(DESTINATION, destination)], BODY);
    }
    assert_eq!(counts(&mut fixture), [0, 0, 3, 0, 3, 1], "an empty header is not a pick");
    assert_eq!(fixture.in_flight(), [0, 0, 0]);
}

#[test]
fn what_cannot_be_compared_passes_and_is_counted() {
    let mut without_pick = shadow();
    with_headers(&mut without_pick, &[], BODY);
    assert_eq!(counts(&mut without_pick), [0, 0, 0, 0, 0, 1]);

    let mut without_snapshot = Fixture::without_snapshot(&config(&json!({"failureMode": "FailClose"})));
    sent_to(&mut without_snapshot, 1, BODY);
    assert_eq!(counts(&mut without_snapshot), [0, 0, 0, 0, 0, 1]);

    for refused in ["request_headers", "request_chunk", "now"] {
        let mut fixture = shadow();
        let mut request = fixture.request(TEXT, &[(DESTINATION, &address(1))]);
        request.proxy.refused = vec![refused];
        assert_eq!(request.head(&mut fixture), Flow::Continue);
        assert_eq!(request.body(&mut fixture, BODY.as_bytes(), true), Flow::Continue);
        assert_eq!(request.destination(), Some(address(1).as_str()));
        assert_eq!(counts(&mut fixture), [0, 0, 0, 0, 0, 1], "{refused}");
    }
}

#[test]
fn a_request_that_the_rules_reject_is_counted_and_passes() {
    let mut fixture = shadow();
    for body in ["{", "[]", "x"] {
        sent_to(&mut fixture, 1, body);
    }
    assert_eq!(counts(&mut fixture), [0, 0, 3, 3, 0, 0]);
    let mut request = fixture.request(TEXT, &[(DESTINATION, &address(1))]);
    request.proxy.namespace = Some(vec![0]);
    request.proxy.hint = Some(b"10.9.9.9:80".to_vec());
    request.head(&mut fixture);
    assert_eq!(request.body(&mut fixture, BODY.as_bytes(), true), Flow::Continue);
    assert_eq!(counts(&mut fixture), [0, 0, 4, 4, 0, 0]);
    assert_eq!(fixture.in_flight(), [1, 0, 0], "it is in flight all the same");
}

#[test]
fn a_request_without_a_body_passes_and_is_not_compared() {
    let mut fixture = shadow();
    let mut request = fixture.request("/v1/models", &[(DESTINATION, &address(2))]);
    assert_eq!(request.head_only(&mut fixture), Flow::Continue);
    assert_eq!(request.destination(), Some(address(2).as_str()));
    assert_eq!(counts(&mut fixture), [0; 6]);
    assert_eq!(fixture.in_flight(), [0, 0, 0]);
}

#[test]
fn a_body_passes_in_pieces_and_its_trailers_end_it() {
    let mut fixture = shadow();
    let mut request = fixture.request(TEXT, &[(DESTINATION, &address(1))]);
    request.head(&mut fixture);
    for piece in [&BODY[..7], &BODY[7..]] {
        assert_eq!(request.body(&mut fixture, piece.as_bytes(), false), Flow::Continue);
        assert_eq!(counts(&mut fixture), [0; 6]);
    }
    assert_eq!(request.trailers(&mut fixture), Flow::Continue);
    assert_eq!(counts(&mut fixture), [1, 0, 0, 0, 0, 0]);
    assert_eq!(request.trailers(&mut fixture), Flow::Continue);
    assert_eq!(counts(&mut fixture), [1, 0, 0, 0, 0, 0]);
}

#[test]
fn a_long_body_is_compared_by_its_beginning() {
    let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192}});
    let mut fixture = Fixture::with_config(&config(&limits));
    let body = |model_first: bool| {
        let prompt = "a".repeat(20_000);
        if model_first {
            format!(r#"{{"model": "m", "prompt": "{prompt}"}}"#)
        } else {
            format!(r#"{{"prompt": "{prompt}", "model": "m"}}"#)
        }
    };
    for (model_first, expected) in [(true, [1, 0, 0, 0, 0, 0]), (false, [1, 0, 1, 1, 0, 0])] {
        let mut request = fixture.request(TEXT, &[(DESTINATION, &address(1))]);
        request.head(&mut fixture);
        let body = body(model_first);
        for piece in body.as_bytes().chunks(700) {
            assert_eq!(request.body(&mut fixture, piece, false), Flow::Continue);
        }
        assert_eq!(counts(&mut fixture), expected, "model first: {model_first}");
        assert_eq!(request.body(&mut fixture, b"", true), Flow::Continue);
        assert_eq!(counts(&mut fixture), expected);
    }
    let abstains = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192, "unreadBody": "Abstain"}});
    let mut fixture = Fixture::with_config(&config(&abstains));
    sent_to(&mut fixture, 1, &body(false));
    assert_eq!(counts(&mut fixture), [0, 0, 0, 0, 0, 1]);
}

#[test]
fn a_model_that_the_other_picker_has_named_is_not_rewritten_again() {
    let target = v1::Target { model: "canary".to_owned(), weight: None };
    let rule = v1::RewriteRule { resource: "rule".to_owned(), models: vec![], targets: vec![target] };
    let model = v1::InferenceModel { name: "m".to_owned(), priority: 0, targets: vec![] };
    let policy = v1::Policy { rewrite_rules: vec![rule], inference_models: vec![model], ..fewest_waiting() };
    let mut fixture = Fixture::with_policy(&config(&json!({})), policy);
    let request = sent_to(&mut fixture, 1, r#"{"model": "stable", "prompt": "hi"}"#);
    request.served(&mut fixture);
    assert_eq!(counts(&mut fixture), [1, 0, 0, 0, 0, 0]);
    assert_eq!(fixture.counted("model_requests|stable|stable"), 1);
}

#[test]
fn answers_pass_as_servers_send_them() {
    let mut fixture = shadow();
    let mut request = sent_to(&mut fixture, 1, BODY);
    let headers =
        [(":status", "200"), (DESTINATION, "10.0.0.1:8000"), (EXPLANATION, "x"), ("content-length", "1")];
    request.answer(&mut fixture, 1, &headers);
    for (name, value) in headers {
        assert_eq!(request.proxy.response_header(name), Some(value));
    }
    assert_eq!(request.chunk(&mut fixture, "x", true), "x");
    assert_eq!(fixture.in_flight(), [0, 0, 0]);
}

#[test]
fn both_picks_are_explained_where_explanations_are_switched_on() {
    let explain = json!({"explain": {"accessLog": true, "header": "x-why", "secret": SECRET}});
    let mut fixture = Fixture::with_config(&config(&explain));
    let mut request = fixture.request(TEXT, &[(DESTINATION, &address(2)), ("x-why", SECRET)]);
    request.head(&mut fixture);
    request.body(&mut fixture, BODY.as_bytes(), true);
    assert_eq!(request.proxy.request_header("x-why"), None, "the server does not get the secret");
    assert_eq!(request.proxy.request_header(EXPLANATION), None, "no header is set");
    let logged = request.proxy.shadow_explanation.clone().unwrap();
    assert!(logged.starts_with("routed; 10.0.0.1:8000 "), "{logged}");
    assert!(logged.ends_with("; the acting picker picks 10.0.0.2:8000: different"), "{logged}");
    request.answer(&mut fixture, 2, &[(":status", "200")]);
    assert_eq!(request.proxy.response_header(EXPLANATION), Some(logged.as_str()));

    let mut fixture = shadow();
    assert_eq!(sent_to(&mut fixture, 2, BODY).proxy.shadow_explanation, None);
}

#[test]
fn a_hook_that_fails_lets_the_request_pass() {
    let mut fixture = Fixture::with_config(&config(&json!({"failureMode": "FailClose"})));
    let mut request = fixture.request(TEXT, &[(DESTINATION, &address(1))]);
    let error = ProxyError { call: "a hook", status: "it panicked".to_owned() };
    assert_eq!(request.exchange.fail(&mut fixture.pool, &mut request.proxy, error), Flow::Continue);
    assert_eq!(request.destination(), Some(address(1).as_str()));
    assert_eq!(request.proxy.local_answer, None);
}

#[test]
fn a_report_has_the_agreement_without_a_shadow_configuration() {
    let mut fixture = shadow();
    sent_to(&mut fixture, 1, BODY);
    sent_to(&mut fixture, 2, BODY);
    fixture.flush();
    let mut reporter = Reporter::new("p", "envoy-1".to_owned(), Form::Wasm, 42);
    let report = reporter.next_report(fixture.pool.store(), || fixture.pool.totals(), START).unwrap();
    let report = Report::decode(report.body.unwrap().as_slice()).unwrap();
    assert_eq!((report.routed, report.shadow_agreed, report.shadow_disagreed), (0, Some(1), Some(1)));
    assert_eq!(report.endpoints.len(), 2, "picks and loads are those of the other picker");
}

#[test]
fn a_configuration_that_picks_reports_the_agreement_of_the_one_that_replaces_it() {
    let fixture = Fixture::with_config(&json!({}));
    let mut totals = fixture.pool.totals();
    let report_of = |fixture: &Fixture, totals| {
        let mut reporter = Reporter::new("p", "envoy-1".to_owned(), Form::Wasm, 42);
        let report = reporter.next_report(fixture.pool.store(), || totals, START).unwrap();
        Report::decode(report.body.unwrap().as_slice()).unwrap()
    };
    assert_eq!(report_of(&fixture, totals.clone()).shadow_agreed, None);
    // Counters are of the proxy, and of all its configurations.
    totals.counts.set(Count::ShadowDisagreed.statistic(), "", 2);
    let report = report_of(&fixture, totals);
    assert_eq!((report.shadow_agreed, report.shadow_disagreed), (Some(0), Some(2)));
}
