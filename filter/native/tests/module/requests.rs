//! Requests that go to an endpoint.

use endpoint_picker_wire::v1;
use serde_json::json;

use crate::envoy::{Next, Request, Value};
use crate::pool::{address, fewest_waiting, ready, turn, with_agent, with_policy};

const DESTINATION: &str = "x-gateway-destination-endpoint";
const CHAT: &[u8] = br#"{"model": "n", "messages": [{"role": "user", "content": "hi"}]}"#;

fn routed(request: &Request) {
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(CHAT, true), Next::Continue);
}

#[test]
fn header_and_metadata_have_the_destination_and_the_answer_passes() {
    let _turn = turn();
    let config = ready("requests-1", &json!({}));
    let request = Request::chat(&config, 0);
    routed(&request);
    assert_eq!(request.header(DESTINATION), Some(address(2)));
    assert_eq!(request.destinations(), Some(address(2)));
    assert_eq!(request.override_host(), None);
    config.wait_for("endpoint_picker.in_flight", &[("pool", "requests-1")], 1);
    request.answer_headers(&address(2), &[(":status", "200"), (DESTINATION, "forged")], false);
    assert_eq!(request.answer_header(DESTINATION), None);
    assert_eq!(request.answer_body(b"hello", true), "hello");
    let pool = ("pool", "requests-1");
    config.wait_for("endpoint_picker.in_flight", &[pool], 0);
    config.wait_for("endpoint_picker.routed", &[pool], 1);
    config.wait_for("endpoint_picker.picks", &[pool, ("endpoint", &address(2))], 1);
    config.wait_for("endpoint_picker.model_requests", &[pool, ("model_name", "n"), ("target_model", "n")], 1);
    config.wait_for("endpoint_picker.decision_us", &[pool], 1);
    config.wait_for("endpoint_picker.first_byte_ms", &[pool], 1);
    config.wait_for("endpoint_picker.snapshots", &[pool], 1);
    // Nothing was rejected, and Envoy knows.
    config.wait_for("endpoint_picker.rejected", &[pool, ("status", "429")], 0);
}

#[test]
fn headers_that_steer_are_removed_before_the_decision() {
    let _turn = turn();
    let config = ready("requests-2", &json!({}));
    let request = Request::new(
        &config,
        1,
        &[
            (":method", "GET"),
            (":path", "/v1/models"),
            (DESTINATION, "10.9.9.9:1"),
            ("x-endpoint-picker-fallback", "none"),
        ],
    );
    assert_eq!(request.headers(true), Next::Continue);
    assert_ne!(request.header(DESTINATION), Some("10.9.9.9:1".to_owned()));
    assert_eq!(request.header("x-endpoint-picker-fallback"), None);
}

#[test]
fn a_second_picker_of_the_same_pool_leaves_the_choice_of_the_first() {
    let _turn = turn();
    let config = ready("requests-3", &json!({}));
    let alone = Request::chat(&config, 0);
    routed(&alone);
    assert_eq!(alone.filter_state(), 0, "a mark that nobody reads");
    let _second = with_agent("requests-3", &json!({}), &config.agent);
    let request = Request::chat(&config, 0);
    routed(&request);
    assert_eq!(request.filter_state(), 1);
    let before = request.header(DESTINATION);
    // The mock's filter state is the request's, so the same hooks stand for a second filter.
    assert_eq!(request.headers(true), Next::Continue);
    assert_eq!(request.header(DESTINATION), before);
    config.wait_for("endpoint_picker.routed", &[("pool", "requests-3")], 2);
}

#[test]
fn a_hint_is_read_as_a_list_or_a_text_and_never_left() {
    let _turn = turn();
    let config = ready("requests-4", &json!({}));
    let key = "x-gateway-destination-endpoint-subset";
    let list = Value::List(vec![Some(address(3)), Some(address(1))]);
    let list_with_null = Value::List(vec![Some(address(3)), None, Some(address(1))]);
    let both = format!("{},{}", address(1), address(3));
    for hint in [list, Value::Text(format!("{},{}", address(3), address(1)))] {
        let request = Request::chat(&config, 0);
        request.set_metadata("envoy.lb.subset_hint", key, hint);
        routed(&request);
        assert_eq!(request.destinations(), Some(both.clone()));
        assert_eq!(request.metadata("envoy.lb", "endpoint-picker-fallback"), Some("none".to_owned()));
    }
    for hint in [Value::Text(String::new()), Value::List(vec![]), Value::Number(1.0), list_with_null] {
        let request = Request::chat(&config, 0);
        request.set_metadata("envoy.lb.subset_hint", key, hint.clone());
        assert_eq!(request.headers(false), Next::Hold);
        assert_eq!(request.body(CHAT, true), Next::Drop, "{hint:?}");
        assert_eq!(request.reply().unwrap().status, 503);
    }
    let request = Request::chat(&config, 0);
    request.set_metadata("envoy.lb.subset_hint", "another-key", Value::Text(address(1)));
    routed(&request);
    assert_eq!(request.destinations(), Some(address(2)));
}

#[test]
fn an_override_host_is_the_only_destination_and_with_a_hint_of_the_only_attempt() {
    let _turn = turn();
    let config = ready("requests-5", &json!({"steering": "overrideHost"}));
    let request = Request::chat(&config, 0);
    routed(&request);
    assert_eq!(request.override_host(), Some((address(2), false)));
    assert_eq!(request.destinations(), Some(address(2)));
    assert_eq!(request.header("x-envoy-max-retries"), None);
    let hinted = Request::chat(&config, 0);
    let hint = Value::Text(format!("{},{}", address(3), address(1)));
    hinted.set_metadata("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset", hint);
    routed(&hinted);
    assert_eq!(hinted.override_host(), Some((address(1), true)));
    assert_eq!(hinted.destinations(), Some(address(1)));
    assert_eq!(hinted.header(DESTINATION), Some(address(1)));
    assert_eq!(hinted.header("x-envoy-max-retries"), Some("0".to_owned()));
    // A subset load balancer would find no selector for this key together with the destination's.
    assert_eq!(hinted.metadata("envoy.lb", "endpoint-picker-fallback"), None);
}

#[test]
fn explanation_and_scores_are_left_in_metadata() {
    let _turn = turn();
    let policy = v1::Policy { emit_endpoint_scores: true, ..fewest_waiting() };
    let config = with_policy("requests-6", &json!({"explain": {"accessLog": true}}), policy, &[1, 0]);
    let request = Request::chat(&config, 0);
    routed(&request);
    let why = request.metadata("endpoint-picker", "explanation").unwrap();
    assert!(why.contains(&address(2)), "{why}");
    let [(namespace, encoded)] = &request.structures()[..] else { panic!("{:?}", request.structures()) };
    assert_eq!(namespace, "envoy.lb");
    let text = String::from_utf8_lossy(encoded);
    assert!(text.contains("x-gateway-destination-endpoint-scores") && text.contains(&address(1)), "{text}");
}

#[test]
fn configurations_that_cannot_be_used_are_refused() {
    let _turn = turn();
    let agent = json!({"addresses": ["http://127.0.0.1:9"]});
    for refused in [
        json!({}),
        json!({"pool": "p"}),
        json!([]),
        json!({"pool": "p", "agent": agent, "x": 1}),
        json!({"pool": "p", "agentCluster": "a"}),
    ] {
        assert!(crate::envoy::Config::new(&refused).is_none(), "{refused}");
        assert!(crate::envoy::Route::new(&refused).is_none(), "{refused}");
    }
}

#[test]
fn a_number_of_the_response_is_in_dynamic_metadata() {
    let _turn = turn();
    let mut policy = fewest_waiting();
    let attribute = json!({"key": {"name": "cost"}, "expression": "usage.completion_tokens * 2.5"});
    let parameters = json!({"attributes": [attribute]}).to_string();
    let (name, r#type) = ("billing".to_owned(), "request-attribute-reporter".to_owned());
    policy.picker_config.as_mut().unwrap().plugins.push(v1::Plugin { name, r#type, parameters });
    let config = with_policy("requests-reports", &json!({}), policy, &[10, 0, 20]);
    let request = Request::chat(&config, 0);
    routed(&request);
    request.answer_headers(&address(2), &[(":status", "200"), ("content-type", "application/json")], false);
    request.answer_body(br#"{"usage": {"prompt_tokens": 3, "#, false);
    assert_eq!(request.metadata_number("envoy.lb", "cost"), None);
    request.answer_body(br#""completion_tokens": 5}}"#, true);
    assert_eq!(request.metadata_number("envoy.lb", "cost"), Some(12.0));
    let labels = [("pool", "requests-reports"), ("plugin_name", "billing"), ("outcome", "reported")];
    config.wait_for("endpoint_picker.attribute_reports", &labels, 1);
}
