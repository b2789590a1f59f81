//! Headers that only the picker may set.

use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::proxy::headers::{DESTINATION, EXPLANATION, FALLBACK, SCORES};

use serde_json::json;

use crate::fixture::{Fixture, Request, TEXT, address, fewest_waiting};

const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;

/// All headers that steer a request.
const CONTROL: [&str; 11] = [
    DESTINATION,
    FALLBACK,
    SCORES,
    EXPLANATION,
    "x-gateway-destination-endpoint-subset",
    "x-gateway-destination-endpoint-served",
    "x-llm-d-request-dropped-reason",
    "x-prefiller-host-port",
    "x-encoder-hosts-ports",
    "x-data-parallel-host-port",
    "x-kv-cache-source-host-port",
];

#[test]
fn a_clients_control_headers_are_removed_and_its_destination_is_replaced() {
    let mut fixture = Fixture::new();
    let headers: Vec<_> = CONTROL.into_iter().map(|name| (name, "10.9.9.9:80")).collect();
    let headers = [headers, vec![("authorization", "Bearer x")]].concat();
    let request = fixture.post(TEXT, &headers, BODY);
    assert_eq!(request.destination(), Some(address(1).as_str()));
    for name in &CONTROL[1..] {
        assert_eq!(request.proxy.request_header(name), None, "{name}");
    }
    assert_eq!(request.proxy.request_header("authorization"), Some("Bearer x"));
}

#[test]
fn a_clients_destination_is_removed_also_where_nothing_is_decided() {
    let mut fixture = Fixture::without_snapshot(&json!({}));
    let request = fixture.post(TEXT, &[(DESTINATION, "10.9.9.9:80")], BODY);
    assert_eq!(request.destination(), None);
}

#[test]
fn a_second_picker_for_the_same_pool_lets_the_first_ones_headers_stay() {
    let mut fixture = Fixture::new();
    let mut request = fixture.routed();
    assert_eq!(request.proxy.picked_for.as_deref(), Some(&b"p"[..]));
    let mut second = fixture.request(TEXT, &[]);
    core::mem::swap(&mut second.proxy, &mut request.proxy);
    assert_eq!(second.head(&mut fixture), Flow::Continue);
    assert_eq!(second.body(&mut fixture, b"", true), Flow::Continue);
    assert_eq!(second.destination(), Some(address(1).as_str()));
    assert_eq!(fixture.in_flight(), [1, 0, 0], "it is counted once");
    second.answer(&mut fixture, 1, &[(":status", "200")]);
    assert_eq!(second.chunk(&mut fixture, "x", true), "x");
}

#[test]
fn a_picker_for_another_pool_picks_again() {
    let mut fixture = Fixture::new();
    let mut request = fixture.request(TEXT, &[(DESTINATION, "10.9.9.9:80")]);
    request.proxy.picked_for = Some(b"another".to_vec());
    assert_eq!(request.head(&mut fixture), Flow::Hold);
    assert_eq!(request.destination(), None);
    request.body(&mut fixture, BODY.as_bytes(), true);
    assert_eq!(request.destination(), Some(address(1).as_str()));
    assert_eq!(request.proxy.picked_for.as_deref(), Some(&b"p"[..]));
}

#[test]
fn a_request_is_routed_also_where_it_cannot_be_marked() {
    let mut fixture = Fixture::new();
    let mut request = fixture.request(TEXT, &[]);
    request.proxy.refused = vec!["mark_picked"];
    request.head(&mut fixture);
    assert_eq!(request.body(&mut fixture, BODY.as_bytes(), true), Flow::Continue);
    assert!(request.destination().is_some());
}

#[test]
fn a_request_whose_control_headers_may_still_be_there_is_refused() {
    for call in ["request_headers", "remove_request_header", "picked_for"] {
        let mut fixture = Fixture::new();
        let mut request = fixture.request(TEXT, &[(DESTINATION, "10.9.9.9:80")]);
        request.proxy.refused = vec![call];
        assert_eq!(request.head(&mut fixture), Flow::Hold);
        assert_eq!(request.rejection().status, 400, "{call}");
        assert!(request.rejection().body.contains("the request's headers cannot be read"));
    }
}

#[test]
fn servers_cannot_set_the_pickers_headers_on_answers() {
    let mut fixture = Fixture::new();
    let mut request = fixture.routed();
    let own = [
        (DESTINATION, "10.9.9.9:80"),
        (SCORES, "x"),
        (EXPLANATION, "x"),
        ("x-gateway-destination-endpoint-served", "x"),
        ("x-llm-d-request-dropped-reason", "x"),
    ];
    let headers = [&[(":status", "200"), ("x-other", "stays")], &own[..]].concat();
    request.answer(&mut fixture, 1, &headers);
    for (name, _) in own {
        assert_eq!(request.proxy.response_header(name), None, "{name}");
    }
    assert_eq!(request.proxy.response_header("x-other"), Some("stays"));
}

#[test]
fn servers_cannot_set_them_on_answers_to_requests_that_were_not_routed() {
    let mut fixture = Fixture::without_snapshot(&json!({}));
    let mut request = fixture.post(TEXT, &[], BODY);
    request.answer(&mut fixture, 1, &[(":status", "200"), (DESTINATION, "10.9.9.9:80")]);
    assert_eq!(request.proxy.response_header(DESTINATION), None);
}

#[test]
fn scores_are_a_header_if_the_policy_asks_for_them() {
    let mut policy = fewest_waiting();
    policy.emit_endpoint_scores = true;
    let mut fixture = Fixture::with_policy(&serde_json::json!({}), policy);
    let request = fixture.post(TEXT, &[], BODY);
    let scores = request.proxy.request_header(SCORES).unwrap();
    assert!(scores.len() > 100 && scores.bytes().all(|byte| byte.is_ascii_graphic()), "{scores}");
    assert_eq!(Fixture::new().post(TEXT, &[], BODY).proxy.request_header(SCORES), None);
}

#[test]
fn an_answer_without_a_body_has_no_chunks() {
    let mut fixture = Fixture::new();
    let mut request = fixture.routed();
    request.proxy.upstream = Some(address(1).parse().unwrap());
    request.proxy.response_headers = vec![(":status".to_owned(), b"204".to_vec())];
    request.exchange.response_headers(&mut fixture.pool, &mut request.proxy, true);
    assert_eq!(fixture.in_flight(), [0, 0, 0]);
}

#[test]
fn a_decided_request_keeps_none_of_its_headers() {
    const TRACE: (&str, &str) = ("x-trace", "0123456789abcdef");
    let keeps = |request: &Request| format!("{:?}", request.exchange).contains(TRACE.1);
    let mut fixture = Fixture::new();
    let mut request = fixture.request(TEXT, &[TRACE]);
    assert_eq!(request.head(&mut fixture), Flow::Hold);
    assert!(keeps(&request), "it is not decided");
    assert_eq!(request.body(&mut fixture, BODY.as_bytes(), true), Flow::Continue);
    assert!(request.destination().is_some() && !keeps(&request));

    let rejected = fixture.post(TEXT, &[TRACE], "no JSON");
    assert!(rejected.rejection().status == 400 && !keeps(&rejected));
    let mut withheld = fixture.request(TEXT, &[TRACE]);
    withheld.head(&mut fixture);
    withheld.exchange.request_body_withheld(&mut fixture.pool, &mut withheld.proxy);
    assert!(!withheld.exchange.is_held() && !keeps(&withheld));

    let mut fixture = Fixture::with_config(&json!({"mode": "shadow"}));
    let mut compared = fixture.request(TEXT, &[TRACE, (DESTINATION, &address(1))]);
    compared.head(&mut fixture);
    assert!(keeps(&compared), "it is compared with the body");
    compared.body(&mut fixture, BODY.as_bytes(), true);
    assert!(!keeps(&compared));
}
