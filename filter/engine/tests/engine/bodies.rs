//! How much of a body is held before the decision.

use endpoint_picker_engine::exchange::{Flow, refuse_withheld_body};
use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use crate::fixture::{CHAT, Fixture, TEXT, address, fewest_waiting};

/// Looks at 1 KiB and holds 8 KiB at most.
fn small_limits() -> Value {
    json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192}})
}

/// A body whose model is at its beginning.
fn model_first(length: usize) -> String {
    format!(r#"{{"model": "m", "prompt": "{}"}}"#, "a".repeat(length))
}

/// A body whose model is behind a prompt of this length.
fn model_last(length: usize) -> String {
    format!(r#"{{"prompt": "{}", "model": "m"}}"#, "a".repeat(length))
}

fn rewrites() -> v1::Policy {
    let target = v1::Target { model: "canary".to_owned(), weight: None };
    let rule =
        v1::RewriteRule { resource: "rule".to_owned(), models: vec!["m".to_owned()], targets: vec![target] };
    v1::Policy { rewrite_rules: vec![rule], ..fewest_waiting() }
}

#[test]
fn a_short_body_is_held_until_it_has_arrived_completely() {
    let mut fixture = Fixture::new();
    let mut request = fixture.request(CHAT, &[]);
    let body = br#"{"model": "m", "messages": [{"role": "user", "content": "hi"}]}"#;
    assert_eq!(request.head(&mut fixture), Flow::Hold);
    assert_eq!(request.body(&mut fixture, &body[..20], false), Flow::Hold);
    assert_eq!(request.destination(), None);
    assert_eq!(request.body(&mut fixture, &body[20..], true), Flow::Continue);
    assert_eq!(request.destination(), Some(address(1).as_str()));
    assert_eq!(request.proxy.body_reads.take(), [usize::MAX], "the body is read once");
    assert_eq!(fixture.in_flight(), [1, 0, 0]);
    assert_eq!(fixture.counted("routed"), 1);
}

#[test]
fn trailers_end_a_body() {
    let mut fixture = Fixture::new();
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    assert_eq!(request.body(&mut fixture, model_first(5).as_bytes(), false), Flow::Hold);
    assert_eq!(request.trailers(&mut fixture), Flow::Continue);
    assert!(request.destination().is_some());
    assert_eq!(request.trailers(&mut fixture), Flow::Continue, "nothing is decided twice");
    assert_eq!(fixture.in_flight(), [1, 0, 0]);
}

#[test]
fn a_long_body_is_decided_by_its_beginning_and_streams() {
    let mut fixture = Fixture::with_config(&small_limits());
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    let body = model_first(100_000);
    assert_eq!(request.body(&mut fixture, &body.as_bytes()[..1023], false), Flow::Hold);
    assert_eq!(request.body(&mut fixture, &body.as_bytes()[1023..1024], false), Flow::Continue);
    assert!(request.destination().is_some());
    assert_eq!(request.body(&mut fixture, &body.as_bytes()[1024..], true), Flow::Continue);
    assert_eq!(request.proxy.body_reads.take(), [1024]);
    assert_eq!(fixture.in_flight(), [1, 0, 0]);
}

#[test]
fn each_look_is_at_twice_as_many_bytes() {
    let mut fixture = Fixture::with_config(&small_limits());
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    let body = model_last(3000);
    for part in body.as_bytes().chunks(100) {
        assert_eq!(request.body(&mut fixture, part, false), Flow::Hold);
    }
    assert_eq!(request.body(&mut fixture, &[b' '; 5000], false), Flow::Continue);
    assert_eq!(request.proxy.body_reads.take(), [1024, 2048, 4096]);
}

#[test]
fn bytes_that_arrive_together_are_looked_at_as_if_they_came_one_by_one() {
    let mut fixture = Fixture::with_config(&small_limits());
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    let body = model_last(6000) + &" ".repeat(100_000);
    assert_eq!(request.body(&mut fixture, body.as_bytes(), false), Flow::Continue);
    assert_eq!(request.proxy.body_reads.take(), [1024, 2048, 4096, 8192]);
}

#[test]
fn a_body_without_a_model_in_the_bytes_that_may_be_held_is_answered_413() {
    let mut fixture = Fixture::with_config(&small_limits());
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    let body = model_last(10_000);
    assert_eq!(request.body(&mut fixture, &body.as_bytes()[..8191], false), Flow::Hold);
    assert_eq!(request.body(&mut fixture, &body.as_bytes()[8191..8192], false), Flow::Hold);
    let rejection = request.rejection();
    assert_eq!(rejection.status, 413);
    assert_eq!(rejection.headers[0], ("content-type".to_owned(), "application/json".to_owned()));
    let error: Value = serde_json::from_str(&rejection.body).unwrap();
    assert_eq!(error["error"]["code"], "PayloadTooLarge");
    assert!(error["error"]["message"].as_str().unwrap().contains("8192"), "{error}");
    assert_eq!(request.body(&mut fixture, b"more", true), Flow::Continue, "the answer is not sent twice");
    assert_eq!(fixture.counted("rejected|413"), 1);
    assert_eq!(fixture.in_flight(), [0, 0, 0]);
}

#[test]
fn such_a_body_is_left_to_the_proxy_if_so_configured() {
    let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192, "unreadBody": "Abstain"}});
    let mut fixture = Fixture::with_config(&limits);
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    assert_eq!(request.body(&mut fixture, model_last(10_000).as_bytes(), false), Flow::Continue);
    assert_eq!(request.destination(), None);
    assert_eq!(fixture.counted("abstained|body_too_large"), 1);
    assert_eq!(fixture.counted("routed"), 0);

    let mut hinted = fixture.request(TEXT, &[]);
    hinted.proxy.namespace = Some(vec![0]);
    hinted.proxy.hint = Some(b"10.9.9.9:80".to_vec());
    hinted.head(&mut fixture);
    assert_eq!(hinted.body(&mut fixture, model_last(10_000).as_bytes(), false), Flow::Continue);
    assert_eq!(hinted.destination(), Some("10.9.9.9:80"), "it stays within its hint");
}

#[test]
fn a_body_in_which_the_model_is_replaced_is_held_completely() {
    let mut fixture = Fixture::with_policy(&small_limits(), rewrites());
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    let body = model_first(7000);
    assert_eq!(request.body(&mut fixture, &body.as_bytes()[..5000], false), Flow::Hold);
    assert_eq!(request.body(&mut fixture, &body.as_bytes()[5000..], true), Flow::Continue);
    assert_eq!(request.proxy.body_reads.take(), [1024, usize::MAX], "one look is enough");
    assert!(request.proxy.request_body.starts_with(br#"{"model": "canary", "prompt": "aaa"#));
}

#[test]
fn a_body_in_which_the_model_is_replaced_must_not_be_longer_than_what_may_be_held() {
    let mut fixture = Fixture::with_policy(&small_limits(), rewrites());
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    assert_eq!(request.body(&mut fixture, model_first(9000).as_bytes(), false), Flow::Hold);
    assert_eq!(request.rejection().status, 413);
}

#[test]
fn a_malformed_body_is_refused_when_it_has_arrived_completely() {
    // Servers read two of these, and the EPP refuses them.
    let served = [r#"{"model": "m"}"#, r#"{"prompt": "hi"}"#];
    let mut fixture = Fixture::new();
    for body in served {
        assert!(fixture.post(TEXT, &[], body).destination().is_some(), "{body}");
    }
    let policy = v1::Policy { epp_rules: v1::EppRules::V010.into(), ..fewest_waiting() };
    let mut fixture = Fixture::with_policy(&json!({}), policy);
    for body in ["{", "[]", "\u{0}"].into_iter().chain(served) {
        let request = fixture.post(TEXT, &[], body);
        assert_eq!(request.rejection().status, 400, "{body}");
    }
    assert_eq!(fixture.post(TEXT, &[], "\u{e9}").rejection().status, 400);
    assert_eq!(fixture.counted("rejected|400"), 6);
}

#[test]
fn a_long_malformed_body_is_refused_when_its_end_has_arrived() {
    let mut fixture = Fixture::with_config(&small_limits());
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    assert_eq!(request.body(&mut fixture, &[b'x'; 2000], false), Flow::Hold);
    assert_eq!(request.body(&mut fixture, b"x", true), Flow::Hold);
    assert_eq!(request.rejection().status, 400);
}

#[test]
fn an_unknown_path_and_a_tunnel_are_decided_without_their_bytes() {
    let mut fixture = Fixture::new();
    for (path, headers) in [
        ("/anything/else", vec![]),
        (TEXT, vec![(":method", "CONNECT")]),
        (CHAT, vec![(":method", "GET"), ("upgrade", "websocket")]),
    ] {
        let mut request = fixture.request(path, &[]);
        for (name, value) in headers {
            request.proxy.request_headers.retain(|(header, _)| header != name);
            request.proxy.request_headers.push((name.to_owned(), value.as_bytes().to_vec()));
        }
        assert_eq!(request.head(&mut fixture), Flow::Continue, "{path}");
        assert!(request.destination().is_some());
        assert_eq!(request.body(&mut fixture, b"anything", true), Flow::Continue);
        assert_eq!(request.proxy.body_reads.take(), [0; 0]);
        request.exchange.end(&mut fixture.pool);
    }
}

#[test]
fn a_request_without_a_body_goes_to_any_endpoint() {
    let mut fixture = Fixture::new();
    let mut request = fixture.request("/v1/models", &[]);
    assert_eq!(request.head_only(&mut fixture), Flow::Continue);
    assert!(request.destination().is_some_and(|address| address.starts_with("10.0.0.")));
    assert_eq!(fixture.in_flight().iter().sum::<u64>(), 1);
}

#[test]
fn before_the_first_snapshot_the_failure_mode_decides() {
    for (mode, status) in [("FailOpen", None), ("FailClose", Some(503))] {
        let mut fixture = Fixture::without_snapshot(&json!({"failureMode": mode}));
        let request = fixture.post(TEXT, &[], r#"{"model": "m", "prompt": "hi"}"#);
        assert_eq!(request.proxy.local_answer.as_ref().map(|answer| answer.status), status);
        assert_eq!(request.destination(), None);
        let counter = if status.is_some() { "rejected|503" } else { "abstained|no_snapshot" };
        assert_eq!(fixture.counted(counter), 1);
    }
}

#[test]
fn before_the_first_snapshot_no_body_is_held() {
    let mut fixture = Fixture::without_snapshot(&json!({}));
    let mut request = fixture.request(TEXT, &[]);
    assert_eq!(request.head(&mut fixture), Flow::Continue);
    assert_eq!(request.body(&mut fixture, b"{", false), Flow::Continue);
    assert_eq!(fixture.counted("abstained|no_snapshot"), 1);
}

#[test]
fn a_policy_has_a_failure_mode_of_its_own() {
    let mut policy = fewest_waiting();
    policy.set_failure_mode(v1::FailureMode::FailClose);
    let mut fixture = Fixture::with_policy(&json!({"failureMode": "FailOpen"}), policy);
    let mut request = fixture.request(TEXT, &[]);
    request.head(&mut fixture);
    request.proxy.refused = vec!["request_body"];
    assert_eq!(request.body(&mut fixture, b"{}", true), Flow::Hold);
    assert_eq!(request.rejection().status, 503);
    assert_eq!(request.rejection().headers[1].1, "rejected-no-endpoints");
}

#[test]
fn a_refused_call_leaves_the_request_to_the_proxy() {
    let mut fixture = Fixture::new();
    for call in ["request_body", "now", "set_request_header"] {
        let mut request = fixture.request(TEXT, &[]);
        request.head(&mut fixture);
        request.proxy.refused = vec![call];
        let body = br#"{"model": "m", "prompt": "hi"}"#;
        assert_eq!(request.body(&mut fixture, body, true), Flow::Continue, "{call}");
        assert_eq!(request.destination(), None);
        request.exchange.end(&mut fixture.pool);
        assert_eq!(fixture.in_flight(), [0, 0, 0], "{call}");
    }
    assert_eq!(fixture.counted("abstained|no_snapshot"), 3);
}

#[test]
fn without_its_body_a_held_request_gets_what_the_failure_mode_decides() {
    for (mode, flow) in [("FailOpen", Flow::Continue), ("FailClose", Flow::Hold)] {
        let mut fixture = Fixture::with_config(&json!({"failureMode": mode}));
        let mut request = fixture.request(CHAT, &[]);
        assert_eq!(request.head(&mut fixture), Flow::Hold);
        assert!(request.exchange.is_held());
        assert_eq!(request.exchange.request_body_withheld(&mut fixture.pool, &mut request.proxy), flow);
        assert!(!request.exchange.is_held());
        let is_rejected = mode == "FailClose";
        assert_eq!(request.proxy.local_answer.is_some(), is_rejected);
        assert_eq!(fixture.counted("rejected|503"), u64::from(is_rejected));
        assert_eq!(fixture.counted("abstained|no_snapshot"), u64::from(!is_rejected));
    }
}

#[test]
fn a_request_that_is_held_in_vain_is_answered_with_the_reason() {
    let mut fixture = Fixture::new();
    let mut request = fixture.request(CHAT, &[]);
    request.head(&mut fixture);
    refuse_withheld_body(&fixture.pool, &mut request.proxy).unwrap();
    assert_eq!(request.rejection().status, 503);
    assert!(request.rejection().body.contains("does not pass the request's body on"));
    assert_eq!(fixture.counted("rejected|503"), 1);
}

#[test]
fn a_body_that_exceeds_the_proxys_buffer_gets_the_filters_error() {
    let plain = &[(":status", "413"), ("content-type", "text/plain"), ("content-length", "17")];
    let mut fixture = Fixture::new();
    let mut request = fixture.request(CHAT, &[]);
    request.head(&mut fixture);
    request.body(&mut fixture, b"{", false);
    request.proxy.details = "request_payload_too_large";
    request.answer(&mut fixture, 0, plain);
    let body = request.chunk(&mut fixture, "Payload Too Large", true);
    let error: Value = serde_json::from_str(&body).unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains("33554432 bytes"), "{body}");
    assert_eq!(request.proxy.response_header("content-type"), Some("application/json"));
    assert_eq!(request.proxy.response_header("content-length"), Some(body.len().to_string().as_str()));
    assert_eq!(fixture.counted("rejected|413"), 1);
    // The filter responds too, and the proxy's response comes first.
    let mut fixture = Fixture::with_config(&small_limits());
    let mut request = fixture.request(CHAT, &[]);
    request.head(&mut fixture);
    request.body(&mut fixture, &[b' '; 9000], false);
    assert_eq!(request.rejection().status, 413);
    request.proxy.details = "endpoint_picker_rejected";
    request.answer(&mut fixture, 0, plain);
    assert!(request.chunk(&mut fixture, "Payload Too Large", true).contains("8192 bytes"));
    assert_eq!(fixture.counted("rejected|413"), 1);
    // A server's own 413, and a buffer of another filter.
    let mut routed = fixture.routed();
    routed.answer(&mut fixture, 1, plain);
    assert_eq!(routed.chunk(&mut fixture, "Payload Too Large", true), "Payload Too Large");
    let mut routed = fixture.routed();
    routed.proxy.details = "request_payload_too_large";
    routed.answer(&mut fixture, 1, plain);
    assert_eq!(routed.chunk(&mut fixture, "Payload Too Large", true), "Payload Too Large");
    assert_eq!(fixture.counted("rejected|413"), 1);
}
