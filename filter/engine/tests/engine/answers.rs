//! The feedback of responses: failures, recoveries and loads.

use endpoint_picker::pool::load::Load;
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, Request, TEXT, address, fewest_waiting};

const OK: &[(&str, &str)] = &[(":status", "200")];

/// A request whose hint allows these endpoints, so that they are tried in this order.
fn hinted(fixture: &mut Fixture, endpoints: &[u8]) -> Request {
    let mut request = fixture.request(TEXT, &[]);
    let addresses: Vec<String> = endpoints.iter().map(|&endpoint| address(endpoint)).collect();
    request.proxy.namespace = Some(vec![0]);
    request.proxy.hint = Some(addresses.join(",").into_bytes());
    request.head(fixture);
    request.body(fixture, br#"{"model": "m", "prompt": "hi"}"#, true);
    request
}

#[test]
fn a_server_is_blamed_for_its_own_errors_only() {
    for (status, details, is_blamed) in [
        ("500", "via_upstream", true),
        ("503", "via_upstream", true),
        ("503", "upstream_reset_before_response_started{connection_refused}", true),
        ("503", "upstream_reset_before_response_started{remote_connection_failure}", true),
        ("504", "upstream_per_try_timeout", true),
        ("504", "response_timeout", true),
        ("503", "upstream_reset_before_response_started{overflow}", false),
        ("503", "upstream_reset_before_response_started{overflow,x}", false),
        ("503", "no_healthy_upstream", false),
        ("500", "ext_authz_denied", false),
        ("499", "via_upstream", false),
        ("200", "via_upstream", false),
        ("not a number", "via_upstream", false),
    ] {
        let mut fixture = Fixture::new();
        let mut request = fixture.routed();
        request.proxy.details = details;
        request.answer(&mut fixture, 1, &[(":status", status)]);
        let expected: &[u8] = if is_blamed { &[1] } else { &[] };
        assert_eq!(fixture.avoided(), expected, "{status} {details}");
    }
}

#[test]
fn an_answer_of_the_proxys_own_teaches_nothing() {
    let mut fixture = Fixture::new();
    let mut request = fixture.routed();
    request.proxy.response_headers = vec![(":status".to_owned(), b"503".to_vec())];
    request.proxy.details = "via_upstream";
    request.exchange.response_headers(&mut fixture.pool, &mut request.proxy, false);
    assert_eq!(fixture.avoided(), [0; 0]);
    request.chunk(&mut fixture, "x", true);
    assert!(
        !fixture
            .sink
            .values(endpoint_picker_wire::statistics::MetricKind::Histogram)
            .contains_key("first_byte_ms")
    );
}

#[test]
fn endpoints_that_were_tried_before_the_one_that_answers_have_failed() {
    let mut fixture = Fixture::new();
    let mut request = hinted(&mut fixture, &[1, 2]);
    assert_eq!(request.destination(), Some("10.0.0.1:8000,10.0.0.2:8000"));
    request.answer(&mut fixture, 2, OK);
    assert_eq!(fixture.avoided(), [1]);
    let mut next = fixture.post(TEXT, &[], r#"{"model": "m", "prompt": "hi"}"#);
    assert_eq!(next.destination(), Some(address(2).as_str()), "the next request avoids it");
    next.answer(&mut fixture, 2, &[(":status", "500")]);
    assert_eq!(fixture.avoided(), [1, 2]);
}

#[test]
fn a_generation_ends_the_avoidance() {
    let mut fixture = Fixture::new();
    let mut failing = fixture.routed();
    let mut other = fixture.routed();
    failing.answer(&mut fixture, 1, &[(":status", "500")]);
    assert_eq!(fixture.avoided(), [1]);
    other.answer(&mut fixture, 1, OK);
    assert_eq!(fixture.avoided(), [1], "servers send the head of a stream before they generate");
    other.chunk(&mut fixture, "text", false);
    assert_eq!(fixture.avoided(), [0; 0]);
}

#[test]
fn nothing_is_avoided_if_the_policy_switches_that_off() {
    let policy = v1::Policy { avoid_failing_ms: 0, ..fewest_waiting() };
    let mut fixture = Fixture::with_policy(&json!({}), policy);
    fixture.routed().answer(&mut fixture, 1, &[(":status", "500")]);
    assert_eq!(fixture.avoided(), [0; 0]);
}

#[test]
fn the_load_moves_to_the_endpoint_that_serves() {
    let mut fixture = Fixture::new();
    let mut request = hinted(&mut fixture, &[1, 2, 3]);
    assert_eq!(fixture.in_flight(), [1, 0, 0]);
    request.answer(&mut fixture, 3, OK);
    assert_eq!(fixture.in_flight(), [0, 0, 1]);
    request.chunk(&mut fixture, "x", true);
    assert_eq!(fixture.loads(), [Load::default(); 3]);
}

#[test]
fn the_load_stays_where_the_pool_has_no_such_server() {
    let mut fixture = Fixture::new();
    let mut request = fixture.routed();
    request.answer(&mut fixture, 99, &[(":status", "500")]);
    assert_eq!(fixture.in_flight(), [1, 0, 0]);
    assert_eq!(fixture.avoided(), [0; 0]);
}

#[test]
fn the_prompts_load_ends_with_the_first_byte_and_the_rest_with_the_last() {
    let mut fixture = Fixture::new();
    let body = json!({"model": "m", "prompt": "a".repeat(4000), "max_tokens": 10}).to_string();
    let mut request = fixture.post(TEXT, &[], &body);
    let routed = fixture.loads()[0];
    assert!(routed.tokens >= 1000, "{routed:?}");
    request.answer(&mut fixture, 1, OK);
    assert_eq!(fixture.loads()[0], routed, "servers send the head of a stream before they read the prompt");
    request.chunk(&mut fixture, "a", false);
    let answered = fixture.loads()[0];
    assert!(answered.tokens < routed.tokens, "{answered:?}");
    assert_eq!(answered.requests, 1);
    request.chunk(&mut fixture, "a", false);
    assert_eq!(fixture.loads()[0], answered);
    request.chunk(&mut fixture, "b", true);
    assert_eq!(fixture.loads(), [Load::default(); 3]);
}

#[test]
fn every_end_releases_the_load_once() {
    type End = fn(&mut Request, &mut Fixture);
    let ends: [End; 5] = [
        |request, fixture| request.exchange.end(&mut fixture.pool),
        |request, fixture| {
            request.answer(fixture, 1, OK);
            request.exchange.end(&mut fixture.pool);
        },
        |request, fixture| {
            request.answer(fixture, 1, OK);
            request.chunk(fixture, "x", true);
        },
        |request, fixture| {
            request.answer(fixture, 1, OK);
            request.chunk(fixture, "x", false);
            request.exchange.response_trailers(&mut fixture.pool, &mut request.proxy);
        },
        |request, fixture| {
            request.proxy.response_headers = vec![(":status".to_owned(), b"204".to_vec())];
            request.exchange.response_headers(&mut fixture.pool, &mut request.proxy, true);
        },
    ];
    for end in ends {
        let mut fixture = Fixture::new();
        let other = fixture.routed();
        let mut request = fixture.routed();
        assert_eq!(fixture.in_flight(), [2, 0, 0]);
        end(&mut request, &mut fixture);
        assert_eq!(fixture.in_flight(), [1, 0, 0]);
        request.exchange.end(&mut fixture.pool);
        assert_eq!(fixture.in_flight(), [1, 0, 0], "the proxy always calls end() last");
        drop(other);
    }
}

#[test]
fn a_request_is_released_also_after_its_endpoint_has_left_and_returned() {
    let mut fixture = Fixture::new();
    let mut request = fixture.routed();
    fixture.adopt(crate::fixture::topology(&[2, 3], fewest_waiting()), &[0, 0]);
    assert_eq!(fixture.in_flight(), [0, 0]);
    request.exchange.end(&mut fixture.pool);
    fixture.adopt(crate::fixture::topology(&[1, 2], fewest_waiting()), &[0, 0]);
    assert_eq!(fixture.in_flight(), [0, 0]);
}

#[test]
fn an_answer_whose_server_cannot_be_read_passes_and_its_load_is_released() {
    for call in ["upstream_address", "read_response_headers", "response_details", "now"] {
        let mut fixture = Fixture::new();
        let mut request = fixture.routed();
        request.proxy.refused = vec![call];
        request.answer(&mut fixture, 1, &[(":status", "500")]);
        assert_eq!(request.chunk(&mut fixture, "x", false), "x");
        assert_eq!(fixture.avoided(), [0; 0], "{call}");
        request.exchange.end(&mut fixture.pool);
        assert_eq!(fixture.loads(), [Load::default(); 3], "{call}");
    }
}

#[test]
fn the_time_to_the_first_byte_is_measured_for_answers_that_are_not_failures() {
    let mut fixture = Fixture::new();
    for (status, values) in [("500", vec![]), ("200", vec![40])] {
        let mut request = fixture.post(TEXT, &[], r#"{"model": "m", "prompt": "hi"}"#);
        let endpoint = request.destination().unwrap().as_bytes()[7] - b'0';
        request.proxy.now.set(crate::fixture::START + core::time::Duration::from_millis(40));
        request.answer(&mut fixture, endpoint, &[(":status", status)]);
        request.chunk(&mut fixture, "a", false);
        request.proxy.now.set(crate::fixture::START + core::time::Duration::from_millis(90));
        request.chunk(&mut fixture, "b", true);
        let histograms = fixture.sink.values(endpoint_picker_wire::statistics::MetricKind::Histogram);
        assert_eq!(histograms.get("first_byte_ms").cloned().unwrap_or_default(), values);
    }
}

#[test]
fn a_first_attempt_at_a_server_that_was_not_picked_is_counted() {
    // In the pool, and not in it.
    for server in [3, 99] {
        let mut fixture = Fixture::new();
        let mut request = fixture.routed();
        request.proxy.attempts = Some(1);
        request.answer(&mut fixture, server, OK);
        assert_eq!(fixture.counted("served_elsewhere"), 1, "{server}");
        assert_eq!(fixture.avoided(), [0; 0], "the pick was not tried, so it did not fail");
    }
}

#[test]
fn an_attempt_that_leaves_the_picks_after_a_failure_is_not_counted_as_served_elsewhere() {
    let attempts = [
        // The pick, the next of the list, the proxy's fallback, and a proxy that does not know the attempts.
        (1, Some(1)),
        (2, Some(2)),
        (3, Some(3)),
        (3, None),
    ];
    for (server, attempts) in attempts {
        let mut fixture = Fixture::new();
        let mut request = hinted(&mut fixture, &[1, 2]);
        request.proxy.attempts = attempts;
        request.answer(&mut fixture, server, OK);
        assert_eq!(fixture.counted("served_elsewhere"), 0, "{server} {attempts:?}");
    }
    let mut fixture = Fixture::new();
    let mut request = fixture.routed();
    request.proxy.attempts = Some(1);
    fixture.adopt(crate::fixture::topology(&[2, 3], fewest_waiting()), &[0, 0]);
    request.answer(&mut fixture, 1, OK);
    assert_eq!(fixture.counted("served_elsewhere"), 0, "the pick has left the pool");
}

#[test]
fn a_server_whose_response_was_cut_is_avoided_and_has_no_load() {
    let mut fixture = Fixture::new();
    let mut request = fixture.routed();
    request.answer(&mut fixture, 1, OK);
    request.chunk(&mut fixture, "part", false);
    assert_eq!(fixture.avoided(), [0; 0]);
    request.exchange.cut(&mut fixture.pool, &request.proxy);
    assert_eq!(fixture.avoided(), [1]);
    assert!(fixture.in_flight().iter().all(|&requests| requests == 0));
}
