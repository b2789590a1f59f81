//! Requests that the module rejects.

use serde_json::json;

use crate::envoy::{Next, Request};
use crate::pool::{ready, turn, unready};

const CHAT: &[u8] = br#"{"model": "n", "messages": [{"role": "user", "content": "hi"}]}"#;

#[test]
fn a_body_that_is_not_json_is_answered_when_the_hook_has_let_go_of_its_state() {
    let _turn = turn();
    let config = ready("rejections-1", &json!({}));
    for is_destroyed in [false, true] {
        let request = Request::chat(&config, 0);
        if is_destroyed {
            request.destroy_by_reply();
        }
        assert_eq!(request.headers(false), Next::Hold);
        // The mock calls the response's hooks inside the call that sends it, as Envoy does, and then may
        // destroy the request.
        assert_eq!(request.body(b"{bad", true), Next::Drop);
        let reply = request.reply().unwrap();
        assert_eq!(reply.status, 400);
        assert_eq!(reply.details, "endpoint_picker_rejected");
        assert!(reply.body.contains("invalid_request_error"), "{}", reply.body);
        assert_eq!(reply.headers["content-type"], "application/json");
    }
    config.wait_for("endpoint_picker.rejected", &[("pool", "rejections-1"), ("status", "400")], 2);
}

#[test]
fn hooks_after_an_answer_do_nothing() {
    let _turn = turn();
    let config = ready("rejections-2", &json!({}));
    let request = Request::chat(&config, 0);
    request.headers(false);
    request.body(b"{bad", false);
    assert_eq!(request.body(b"", true), Next::Drop);
    assert_eq!(request.body(b"more", true), Next::Drop);
    assert_eq!(request.trailers(), Next::Hold);
    assert_eq!(request.reply().unwrap().status, 400);
}

#[test]
fn before_the_first_snapshot_the_failure_mode_decides() {
    let _turn = turn();
    let open = unready("rejections-3", &json!({}));
    let request = Request::chat(&open, 0);
    request.headers(false);
    assert_eq!(request.body(CHAT, true), Next::Continue);
    assert_eq!(request.destinations(), None);
    let close = unready("rejections-4", &json!({"failureMode": "FailClose"}));
    let request = Request::chat(&close, 0);
    request.headers(false);
    assert_eq!(request.body(CHAT, true), Next::Drop);
    assert_eq!(request.reply().unwrap().status, 503);
}
