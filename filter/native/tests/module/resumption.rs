//! The filter that resumes streams.

use endpoint_picker_wire::v1::Policy;
use serde_json::{Value, json};

use crate::envoy::{Config, Next, Request, Route};
use crate::pool::{address, fewest_waiting, ready, turn, with_policy};

const HEAD: [(&str, &str); 3] =
    [(":status", "200"), ("content-type", "text/event-stream"), ("transfer-encoding", "chunked")];
const END: &str = "data: [DONE]\n\n";

fn filter(pool: &str, fields: &Value) -> Config {
    let mut config = json!({"cluster": "picked", "pool": pool});
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    Config::of_filter("resume-streams", &config).unwrap()
}

fn body(fields: &Value) -> Vec<u8> {
    let mut body = json!({"stream": true, "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body.to_string().into_bytes()
}

fn word(text: &str) -> String {
    format!("data: {}\n\n", json!({"id": "a", "choices": [{"index": 0, "delta": {"content": text}}]}))
}

/// A chat that the filter has sent.
fn sent(config: &Config) -> Request {
    let request = Request::chat(config, 0);
    request.set_header("accept-encoding", "gzip");
    assert_eq!(request.headers(false), Next::Hold);
    let body = body(&json!({}));
    assert_eq!(request.body(&body[..20], false), Next::Hold);
    assert_eq!(request.body(&body[20..], true), Next::Drop);
    assert_eq!(request.sent_body(), "", "Envoy keeps no copy of the body");
    request
}

#[test]
fn a_cut_stream_continues_in_a_second_request() {
    let _turn = turn();
    let config = filter("resumed-1", &json!({}));
    let request = sent(&config);
    let first = request.own().calls.remove(0);
    assert_eq!(first.body.as_bytes(), body(&json!({})));
    assert_eq!(first.headers[":path"], "/v1/chat/completions");
    assert_eq!(first.headers["content-length"], first.body.len().to_string());
    assert!(!first.headers.contains_key("accept-encoding"));
    assert_eq!(first.headers["x-endpoint-picker-resumption"], "0");

    request.call_head(1, &HEAD);
    assert!(!request.own().head.unwrap().contains_key("transfer-encoding"));
    request.call_chunk(1, &word("one"));
    request.call_chunk(1, "data: {");
    request.call_end(1, true);
    let own = request.own();
    assert_eq!((own.calls.len(), own.is_complete), (2, false));
    assert_eq!(own.calls[1].headers["x-endpoint-picker-resumption"], "1");
    let continued: Value = own.calls[1].body.parse().unwrap();
    assert_eq!(continued["messages"][1], json!({"role": "assistant", "content": "one"}));
    assert_eq!(request.metadata("endpoint-picker", "resumptions").as_deref(), Some("1"));

    // Later bytes of the first server are not part of the response.
    request.call_chunk(1, &word("late"));
    request.call_head(2, &HEAD);
    request.call_chunk(2, &(word(" two") + END));
    request.call_end(2, false);
    let own = request.own();
    assert!(own.is_complete && own.reset.is_none());
    assert!(own.body.contains("one") && own.body.contains(" two") && own.body.ends_with(END));
    assert!(!own.body.contains("late"));
    drop(request);
    // A pool's threads wake the filter, which writes its counts.
    let picker = ready("resumed-1", &json!({}));
    config.wait_for("endpoint_picker.resumable_streams", &[("pool", "resumed-1")], 1);
    config.wait_for("endpoint_picker.resumed_streams", &[("pool", "resumed-1")], 1);
    config.run_until("report with the streams", |_| {
        let reports = picker.agent.take_reports();
        let mut counts = reports.iter().filter_map(|report| report.resumptions.as_ref());
        counts.any(|counts| (counts.resumable, counts.resumed) == (1, 1)).then_some(())
    });
}

#[test]
fn a_stream_that_cannot_be_resumed_is_cut_and_other_requests_pass() {
    let _turn = turn();
    let config = filter("resumed-2", &json!({"maxKeptBytes": 1024, "maxUnreadBytes": 100}));
    let request = sent(&config);
    request.call_head(1, &HEAD);
    request.call_chunk(1, &format!("data: {}\n\n", json!({"choices": [{"delta": {"tool_calls": [{}]}}]})));
    request.call_end(1, true);
    assert_eq!(request.own().reset.as_deref(), Some("endpoint_picker_stream_not_resumed"));

    let request = sent(&config);
    request.call_end(1, true);
    assert_eq!(request.reply().unwrap().status, 503, "nothing was sent yet");

    let request = sent(&config);
    request.call_head(1, &HEAD);
    request.client_stops_reading();
    request.call_chunk(1, &word("few"));
    assert_eq!(request.own().reset, None);
    request.call_chunk(1, &word(&"many".repeat(30)));
    assert!(request.own().reset.is_some());

    let request = sent(&config);
    request.call_head(1, &HEAD);
    request.call_chunk(1, &word("one"));
    request.call_end(1, true);
    request.call_head(2, &[(":status", "503")]);
    assert!(request.own().reset.is_some(), "the picker refuses the continuation");

    let missing = filter("", &json!({"cluster": "missing"}));
    assert_eq!(sent(&missing).reply().unwrap().status, 503);

    for fields in [json!({"n": 2}), json!({"stream": false}), json!({"user": "a".repeat(2000)})] {
        let request = Request::chat(&config, 0);
        assert_eq!(request.headers(false), Next::Hold);
        let body = body(&fields);
        assert_eq!(request.body(&body, true), Next::Continue, "{fields}");
        assert_eq!((request.sent_body().as_bytes(), request.own().calls.len()), (&body[..], 0));
    }
    let list = Request::new(&config, 0, &[(":method", "POST"), (":path", "/v1/embeddings")]);
    assert_eq!(list.headers(false), Next::Continue);
    let _picker = ready("resumed-cuts", &json!({}));
    let cut = |reason| [("pool", "resumed-2"), ("reason", reason)];
    config.wait_for("endpoint_picker.cut_streams", &cut("slow_client"), 1);
    config.wait_for("endpoint_picker.cut_streams", &cut("tool_call"), 1);
    config.wait_for("endpoint_picker.unresumable_streams", &cut("several_choices"), 1);
}

#[test]
fn a_wrong_configuration_is_refused_and_a_route_has_none() {
    let _turn = turn();
    assert!(Config::of_filter("resume-streams", &json!({})).is_none());
    assert!(Config::of_filter("resume-streams", &json!({"cluster": "a", "maxResumptions": 0})).is_none());
    assert!(Route::of_filter("resume-streams", &json!({"cluster": "a"})).is_none());
}

#[test]
fn a_server_that_cuts_a_response_is_avoided() {
    let _turn = turn();
    let policy = Policy { avoid_failing_ms: 60_000, ..fewest_waiting() };
    let config = with_policy("resumed-avoided", &json!({}), policy, &[10, 0, 20]);
    let picked = || {
        let request = Request::chat(&config, 0);
        assert_eq!(request.headers(false), Next::Hold);
        assert_eq!(
            request.body(br#"{"model": "n", "messages": [{"role": "user", "content": "hi"}]}"#, true),
            Next::Continue
        );
        request
    };
    let request = picked();
    assert_eq!(request.destinations().unwrap(), address(2));
    request.answer_headers(&address(2), &[(":status", "200")], false);
    request.answer_body(b"part", false);
    request.cut("downstream_remote_disconnect");
    assert_eq!(picked().destinations().unwrap(), address(2));
    request.cut("upstream_reset_after_response_started{connection_termination}");
    assert_ne!(picked().destinations().unwrap(), address(2));
}
