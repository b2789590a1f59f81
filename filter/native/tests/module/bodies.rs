//! Bodies in all the forms in which Envoy brings them.

use serde_json::json;

use crate::envoy::{Next, Request};
use crate::pool::{address, ready, turn};

const CHAT: &str = r#"{"model": "n", "messages": [{"role": "user", "content": "hi"}]}"#;
const RENAMED: &str = r#"{"model": "m", "prompt": "hi"}"#;

fn completion(config: &crate::envoy::Config, headers: &[(&str, &str)]) -> Request {
    let head = [(":method", "POST"), (":path", "/v1/completions")];
    Request::new(config, 0, &head.into_iter().chain(headers.iter().copied()).collect::<Vec<_>>())
}

#[test]
fn a_body_is_joined_wherever_it_is_cut() {
    let _turn = turn();
    let config = ready("bodies-1", &json!({}));
    for cut in 0..=CHAT.len() {
        let (first, rest) = CHAT.as_bytes().split_at(cut);
        let request = Request::chat(&config, 0);
        assert_eq!(request.headers(false), Next::Hold);
        assert_eq!(request.body(first, false), Next::Hold);
        assert_eq!(request.body(rest, true), Next::Continue, "cut at {cut}");
        assert_eq!(request.sent_body(), CHAT);
        assert_eq!(request.destinations(), Some(address(2)));
    }
}

#[test]
fn trailers_end_a_body_and_so_does_an_empty_last_piece() {
    let _turn = turn();
    let config = ready("bodies-2", &json!({}));
    let request = Request::chat(&config, 0);
    request.headers(false);
    assert_eq!(request.body(CHAT.as_bytes(), false), Next::Hold);
    assert_eq!(request.body(b"", false), Next::Hold);
    assert_eq!(request.trailers(), Next::Continue);
    assert_eq!(request.destinations(), Some(address(2)));
}

#[test]
fn a_body_that_an_earlier_filter_has_held_is_read_once() {
    let _turn = turn();
    let config = ready("bodies-3", &json!({}));
    let request = Request::chat(&config, 0);
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.held_body(CHAT.as_bytes()), Next::Continue);
    assert_eq!(request.destinations(), Some(address(2)));
    let renamed = completion(&config, &[]);
    assert_eq!(renamed.headers(false), Next::Hold);
    assert_eq!(renamed.held_body(RENAMED.as_bytes()), Next::Continue);
    assert_eq!(renamed.sent_body(), r#"{"model": "canary", "prompt": "hi"}"#);
}

#[test]
fn the_model_is_replaced_in_the_request_and_restored_in_the_answer() {
    let _turn = turn();
    let config = ready("bodies-4", &json!({"countTokens": true}));
    for cut in [0, 5, RENAMED.len()] {
        let (first, rest) = RENAMED.as_bytes().split_at(cut);
        let request = completion(&config, &[("content-length", "30")]);
        request.headers(false);
        assert_eq!(request.body(first, false), Next::Hold);
        assert_eq!(request.body(rest, true), Next::Continue);
        assert_eq!(request.sent_body(), r#"{"model": "canary", "prompt": "hi"}"#);
        assert_eq!(request.header("content-length"), Some("35".to_owned()));
        let json = [(":status", "200"), ("content-type", "application/json"), ("content-length", "18")];
        request.answer_headers(&address(2), &json, false);
        assert_eq!(request.answer_header("content-length"), None);
        let answer = r#"{"model":"canary","usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        let (first, rest) = answer.as_bytes().split_at(14);
        let answer = request.answer_body(first, false) + &request.answer_body(rest, true);
        assert_eq!(answer, r#"{"model":"m","usage":{"prompt_tokens":3,"completion_tokens":4}}"#);
    }
    let models = [("pool", "bodies-4"), ("model_name", "m"), ("target_model", "canary")];
    config.wait_for("endpoint_picker.input_tokens_total", &models, 9);
    config.wait_for("endpoint_picker.output_tokens", &models, 3);
}

#[test]
fn the_last_trailers_replace_the_body_that_envoy_has_buffered() {
    let _turn = turn();
    let config = ready("bodies-5", &json!({}));
    let request = completion(&config, &[]);
    request.headers(false);
    request.body(RENAMED.as_bytes(), false);
    assert_eq!(request.trailers(), Next::Continue);
    assert_eq!(request.sent_body(), r#"{"model": "canary", "prompt": "hi"}"#);
}

#[test]
fn a_long_body_is_decided_by_its_beginning_and_needs_no_limit_of_the_listener() {
    let _turn = turn();
    let config = ready("bodies-6", &json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8_000_000}}));
    let request = Request::chat(&config, 0);
    request.replace_header("content-length", &[]);
    request.headers(false);
    assert_eq!(request.buffer_limit(), 8_000_000 + (1 << 20));
    let text = "x".repeat(4000);
    let body = format!(r#"{{"model": "n", "messages": [{{"role": "user", "content": "{text}"}}]}}"#);
    let (first, rest) = body.as_bytes().split_at(2000);
    assert_eq!(request.body(first, false), Next::Continue);
    assert_eq!(request.destinations(), Some(address(2)));
    assert_eq!(request.body(rest, true), Next::Continue);
}

#[test]
fn envoy_buffers_what_a_body_declares_and_what_a_change_may_add() {
    let _turn = turn();
    let config = ready("bodies-9", &json!({"limits": {"maxHeldBytes": 8_000_000}}));
    for (length, limit) in
        [("100", 1 << 20), ("2000000", 2_000_000 + (512 << 10)), ("99000000", 8_000_000 + (1 << 20))]
    {
        let request = Request::chat(&config, 0);
        request.replace_header("content-length", &[length]);
        assert_eq!(request.headers(false), Next::Hold);
        assert_eq!(request.buffer_limit(), limit);
    }
}

#[test]
fn all_pools_and_workers_hold_bodies_in_one_room_and_a_client_that_goes_away_gives_its_part_back() {
    let _turn = turn();
    let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192, "maxHeldBytesInAll": 8192}});
    let (one, other) = (ready("bodies-7", &limits), ready("bodies-8", &limits));
    let text = "x".repeat(3000);
    let part = format!(r#"{{"messages": [{{"role": "user", "content": "{text}"#);
    let begin = |config, worker| {
        let request = Request::chat(config, worker);
        assert_eq!(request.headers(false), Next::Hold);
        let next = request.body(part.as_bytes(), false);
        let status = request.reply().map(|reply| reply.status);
        assert_eq!(next, if status.is_some() { Next::Drop } else { Next::Hold });
        (request, status)
    };
    let (first, status) = begin(&one, 0);
    assert_eq!(status, None);
    let (second, status) = begin(&other, 1);
    assert_eq!(status, None);
    let (_rejected, status) = begin(&one, 1);
    assert_eq!(status, Some(503));
    drop(first);
    let (third, status) = begin(&one, 0);
    assert_eq!(status, None, "there is room again");
    for request in [second, third] {
        assert_eq!(request.body(br#""}], "model": "n"}"#, true), Next::Continue);
    }
    assert_eq!([begin(&one, 0).1, begin(&other, 0).1], [None, None]);
    one.wait_for("endpoint_picker.rejected_held_bodies", &[("pool", "bodies-7")], 1);
    one.wait_for("endpoint_picker.rejected", &[("pool", "bodies-7"), ("status", "503")], 1);
}
