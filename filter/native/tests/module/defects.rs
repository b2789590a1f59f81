//! Panics in hooks, and requests that end at any time.

use serde_json::json;

use crate::envoy::{Config, Next, Panic, Request};
use crate::pool::{address, ready, turn};

const CHAT: &[u8] = br#"{"model": "n", "messages": [{"role": "user", "content": "hi"}]}"#;
const RENAMED: &[u8] = br#"{"model": "m", "messages": [{"role": "user", "content": "hi"}]}"#;
const DESTINATION: &str = "x-gateway-destination-endpoint";

fn panics(config: &Config, pool: &str, expected: u64) {
    config.wait_for("endpoint_picker.panics", &[("pool", pool)], expected);
    config.wait_for("endpoint_picker.in_flight", &[("pool", pool)], 0);
}

fn passes(config: &Config) {
    let request = Request::chat(config, 0);
    request.headers(false);
    assert_eq!(request.body(CHAT, true), Next::Continue);
    assert_eq!(request.destinations(), Some(address(2)));
}

#[test]
fn a_panic_at_the_head_leaves_the_request_to_the_failure_mode_without_headers_that_steer() {
    let _turn = turn();
    let config = ready("defects-1", &json!({}));
    let head = [(":path", "/v1/completions"), (DESTINATION, "10.9.9.9:1")];
    let request = Request::new(&config, 0, &head);
    request.set_panics(&[Panic::RequestHeaders]);
    assert_eq!(request.headers(false), Next::Continue);
    assert_eq!(request.header(DESTINATION), None);
    // The rest passes.
    request.set_panics(&[]);
    assert_eq!(request.body(CHAT, true), Next::Continue);
    assert_eq!(request.destinations(), None);
    request.answer_headers(&address(1), &[(":status", "200")], true);
    passes(&config);
    drop(request);
    panics(&config, "defects-1", 1);
}

#[test]
fn a_panic_at_the_body_is_503_when_the_pool_fails_closed() {
    let _turn = turn();
    let config = ready("defects-2", &json!({"failureMode": "FailClose"}));
    let request = Request::chat(&config, 0);
    assert_eq!(request.headers(false), Next::Hold);
    request.set_panics(&[Panic::RequestBody]);
    assert_eq!(request.body(CHAT, true), Next::Drop);
    assert_eq!(request.reply().unwrap().status, 503);
    passes(&config);
    drop(request);
    panics(&config, "defects-2", 1);
}

#[test]
fn a_panic_of_the_recovery_too_is_503() {
    let _turn = turn();
    let config = ready("defects-3", &json!({}));
    let request = Request::chat(&config, 0);
    request.headers(false);
    request.set_panics(&[Panic::RequestBody, Panic::Metadata]);
    assert_eq!(request.body(CHAT, true), Next::Drop);
    let reply = request.reply().unwrap();
    assert_eq!((reply.status, reply.details.as_str()), (503, "endpoint_picker_defect"));
    passes(&config);
    drop(request);
    panics(&config, "defects-3", 1);
}

#[test]
fn a_panic_at_the_answer_lets_it_pass_and_its_load_ends_with_the_request() {
    let _turn = turn();
    let config = ready("defects-4", &json!({}));
    for panic in [Panic::ResponseHeaders, Panic::ResponseBody] {
        let request = Request::chat(&config, 0);
        request.headers(false);
        assert_eq!(request.body(RENAMED, true), Next::Continue);
        request.set_panics(&[panic]);
        request.answer_headers(&address(2), &[(":status", "200")], false);
        assert_eq!(request.answer_body(br#"{"model":"canary"}"#, true), r#"{"model":"canary"}"#);
    }
    passes(&config);
    panics(&config, "defects-4", 2);
}

#[test]
fn a_request_may_end_after_any_hook() {
    let _turn = turn();
    let config = ready("defects-5", &json!({}));
    let steps: [&dyn Fn(&Request); 6] = [
        &|request| assert_eq!(request.headers(false), Next::Hold),
        &|request| assert_eq!(request.body(&RENAMED[..10], false), Next::Hold),
        &|request| assert_eq!(request.body(&RENAMED[10..], true), Next::Continue),
        &|request| request.answer_headers(&address(2), &[(":status", "200")], false),
        &|request| assert_eq!(request.answer_body(br#"{"model":"canary"}"#, false), r#"{"model":"m"}"#),
        &|request| request.answer_trailers(),
    ];
    for count in 0..=steps.len() {
        let request = Request::chat(&config, 0);
        for step in &steps[..count] {
            step(&request);
        }
    }
    panics(&config, "defects-5", 0);
    config.wait_for("endpoint_picker.routed", &[("pool", "defects-5")], 4);
}
