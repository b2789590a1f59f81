//! Streams that another server continues.

use endpoint_picker_wire::v1::Policy;
use serde_json::{Value, json};

use crate::envoy::{Config, Next, Request, Route};
use crate::pool::{Pool, address, fewest_waiting, turn, with_policy};

const HEAD: [(&str, &str); 4] = [
    (":status", "200"),
    ("content-type", "text/event-stream"),
    ("transfer-encoding", "chunked"),
    ("x-envoy-upstream-service-time", "3"),
];
const END: &str = "data: [DONE]\n\n";
const DESTINATION: &str = "x-gateway-destination-endpoint";

/// A pool whose servers are picked in the order of their numbers, and avoided when they fail.
fn pool(name: &str, fields: &Value) -> Pool {
    let mut setting = json!({"cluster": "servers"});
    setting.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let policy = Policy { avoid_failing_ms: 60_000, ..fewest_waiting() };
    with_policy(name, &json!({"resumeStreams": setting}), policy, &[0, 10, 20])
}

fn body(fields: &Value) -> Vec<u8> {
    let mut body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    body.to_string().into_bytes()
}

fn word(text: &str) -> String {
    word_of("content", text)
}

/// An event with this text under this name.
fn word_of(name: &str, text: &str) -> String {
    let choice = json!({"index": 0, "delta": {name: text}});
    format!("data: {}\n\n", json!({"id": "a", "model": "canary", "choices": [choice]}))
}

/// A chat that the module has sent.
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
fn a_cut_stream_continues_at_another_server() {
    let _turn = turn();
    let config = pool("resumed-1", &json!({}));
    let request = sent(&config);
    // As the first decision could have written it.
    request.set_header("x-data-parallel-rank", "3");
    let first = request.own().calls.remove(0);
    let model = |body: &str| body.parse::<Value>().unwrap()["model"].clone();
    assert_eq!(model(&first.body), "canary", "the picker has rewritten the model");
    assert_eq!(first.headers[":path"], "/v1/chat/completions");
    assert_eq!(first.headers["content-length"], first.body.len().to_string());
    assert!(!first.headers.contains_key("accept-encoding"));
    assert_eq!(first.headers[DESTINATION], address(1));

    request.call_head(1, &HEAD);
    assert!(!request.own().head.unwrap().contains_key("transfer-encoding"));
    request.call_chunk(1, &word("one"));
    assert!(request.own().body.contains(r#""model":"m""#), "the client's name of the model is back");
    request.call_chunk(1, "data: {");
    request.call_end(1, true);
    let own = request.own();
    assert_eq!((own.calls.len(), own.is_complete), (2, false));
    assert_eq!(own.calls[1].headers[DESTINATION], address(2), "the first server is avoided");
    assert!(!own.calls[1].headers.contains_key("x-data-parallel-rank"), "a header of the first decision");
    let continued: Value = own.calls[1].body.parse().unwrap();
    assert_eq!(continued["messages"][1], json!({"role": "assistant", "content": "one"}));
    assert_eq!(continued["model"], "canary");

    // Later bytes of the first server are not part of the response.
    request.call_chunk(1, &word("late"));
    request.call_head(2, &HEAD);
    assert_eq!(request.metadata("endpoint-picker", "resumptions").as_deref(), Some("1"));
    request.call_chunk(2, &(word(" two") + END));
    request.call_end(2, false);
    let own = request.own();
    assert!(own.is_complete && own.reset.is_none());
    assert!(own.body.contains("one") && own.body.contains(" two") && own.body.ends_with(END));
    assert!(!own.body.contains("late"));
    drop(request);
    config.wait_for("endpoint_picker.resumable_streams", &[("pool", "resumed-1")], 1);
    config.wait_for("endpoint_picker.resumed_streams", &[("pool", "resumed-1")], 1);
    config.wait_for("endpoint_picker.routed", &[("pool", "resumed-1")], 2);
    config.run_until("report with the streams", |_| {
        let reports = config.agent.take_reports();
        let mut counts = reports.iter().filter_map(|report| report.resumptions.as_ref());
        counts.any(|counts| (counts.resumable, counts.resumed) == (1, 1)).then_some(())
    });
}

#[test]
fn the_clients_headers_are_back_for_another_pick_in_their_number_and_order() {
    let _turn = turn();
    let config = pool("resumed-6", &json!({}));
    let request = Request::chat(&config, 0);
    for (name, value) in [("x-tag", "b"), ("x-tag", "a"), ("x-tag", "b"), ("x-bytes", "kept")] {
        request.set_header(name, value);
    }
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(&body(&json!({})), true), Next::Drop);
    request.replace_header("x-tag", &["b", "c"]);
    request.replace_header("x-added", &["1"]);
    request.replace_header("x-bytes", &[]);
    request.call_head(1, &HEAD);
    request.call_end(1, true);
    assert_eq!(request.own().calls.len(), 2);
    assert_eq!(request.header_values("x-tag"), ["b", "a", "b"]);
    assert_eq!(request.header_values("x-bytes"), ["kept"]);
    assert_eq!(request.header("x-added"), None);
}

#[test]
fn a_server_that_ends_a_stream_without_its_marker_or_does_not_respond_is_avoided() {
    let _turn = turn();
    let config = pool("resumed-2", &json!({"maxPauseSeconds": 1}));
    let refused = [(":status", "503"), ("content-type", "text/plain")];
    let request = sent(&config);
    request.call_head(1, &refused);
    assert_eq!(request.own().calls[1].headers[DESTINATION], address(2));
    assert_eq!(request.own().calls[1].body, request.own().calls[0].body);
    request.call_end(1, false);
    assert_eq!((request.own().head, request.own().calls.len()), (None, 2), "that was not the response");

    request.call_head(2, &HEAD);
    request.call_chunk(2, &word("one"));
    request.call_end(2, false);
    assert_eq!(request.own().calls[2].headers[DESTINATION], address(3));

    request.call_head(3, &HEAD);
    let pause = || config.run_until("reset after a pause", |_| request.has_scheduled().then_some(()));
    pause();
    request.call_chunk(3, &word("in time"));
    request.run_scheduled();
    assert_eq!(request.own().resets, [0_u64; 0], "the pause was over before the event came");
    pause();
    request.run_scheduled();
    let own = request.own();
    assert_eq!((own.resets, own.calls.len()), (vec![3], 4));
    request.call_end(3, true);
    assert_eq!(request.own().calls.len(), 4, "the reset request is not awaited");

    // A server's own error passes.
    let request = sent(&config);
    let error = [(":status", "500"), ("x-envoy-upstream-service-time", "3")];
    request.call_head(1, &error);
    request.call_chunk(1, "broken");
    request.call_end(1, false);
    let own = request.own();
    assert_eq!((own.head.unwrap()[":status"].as_str(), own.body.as_str()), ("500", "broken"));
    assert!(own.is_complete);

    let request = sent(&config);
    for number in 1..=4 {
        request.call_head(number, &refused);
    }
    assert_eq!((request.reply().unwrap().status, request.own().calls.len()), (503, 4));
}

#[test]
fn a_stream_that_cannot_be_resumed_is_cut_and_other_requests_pass() {
    let _turn = turn();
    let config = pool("resumed-3", &json!({"maxKeptBytes": 1024, "maxUnreadBytes": 100}));
    let request = sent(&config);
    request.call_head(1, &HEAD);
    request.call_chunk(1, &format!("data: {}\n\n", json!({"choices": [{"delta": {"audio": {}}}]})));
    request.call_end(1, true);
    assert_eq!(request.own().reset.as_deref(), Some("endpoint_picker_stream_not_resumed"));

    let request = sent(&config);
    request.call_head(1, &HEAD);
    request.call_chunk(1, &word_of("reasoning", "hm"));
    request.call_end(1, true);
    request.call_head(2, &HEAD);
    request.call_chunk(2, &word_of("reasoning", "so"));
    let own = request.own();
    assert!(own.reset.is_some() && !own.body.contains("so\""), "{}", own.body);
    assert!(own.body.contains("different_output"), "the client gets the reason: {}", own.body);

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
    request.call_head(2, &[(":status", "400"), ("x-envoy-upstream-service-time", "3")]);
    assert!(request.own().reset.is_some(), "the server refuses the continuation");

    let missing = pool("resumed-4", &json!({"cluster": "missing"}));
    assert_eq!(sent(&missing).reply().unwrap().status, 503);

    for fields in [json!({"n": 2}), json!({"stream": false}), json!({"user": "a".repeat(2000)})] {
        let request = Request::chat(&config, 0);
        assert_eq!(request.headers(false), Next::Hold);
        assert_eq!(request.body(&body(&fields), true), Next::Continue, "{fields}");
        let sent: Value = request.sent_body().parse().unwrap();
        assert_eq!((sent["model"].as_str(), request.own().calls.len()), (Some("canary"), 0));
    }
    let cut = |reason| [("pool", "resumed-3"), ("reason", reason)];
    config.wait_for("endpoint_picker.cut_streams", &cut("slow_client"), 1);
    config.wait_for("endpoint_picker.cut_streams", &cut("other_output"), 1);
    config.wait_for("endpoint_picker.cut_streams", &cut("different_output"), 1);
    config.wait_for("endpoint_picker.cut_streams", &cut("refused"), 1);
    config.wait_for("endpoint_picker.resumed_streams", &[("pool", "resumed-3")], 1);
    config.wait_for("endpoint_picker.unresumable_streams", &cut("several_choices"), 1);
}

#[test]
fn a_route_has_the_setting_and_a_wrong_one_is_refused() {
    let _turn = turn();
    let config = with_policy("resumed-5", &json!({}), fewest_waiting(), &[0, 10]);
    let chat = |request: &Request| {
        assert_eq!(request.headers(false), Next::Hold);
        request.body(&body(&json!({})), true)
    };
    assert_eq!(chat(&Request::chat(&config, 0)), Next::Continue);
    let setting = |setting: Value| {
        Route::new(&json!({"pool": "resumed-5", "agent": config.agent.access(), "resumeStreams": setting}))
    };
    let route = setting(json!({"cluster": "servers"})).unwrap();
    let request = Request::chat(&config, 0);
    request.set_route(Some(&route));
    assert_eq!(chat(&request), Next::Drop);
    for wrong in
        [json!({}), json!({"cluster": "a", "maxResumptions": 0}), json!({"cluster": "a", "magic": 1})]
    {
        assert!(setting(wrong.clone()).is_none(), "{wrong}");
    }
}

#[test]
fn a_server_that_cuts_another_response_is_avoided() {
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

#[test]
fn responses_that_clients_do_not_read_share_the_room_of_held_bodies() {
    let _turn = turn();
    let fields = json!({
        "resumeStreams": {"cluster": "servers", "maxUnreadBytes": 1_000_000},
        "limits": {"peekBytes": 1024, "maxHeldBytes": 8192, "maxHeldBytesInAll": 8192},
    });
    let config = with_policy("resumed-9", &fields, fewest_waiting(), &[0, 10, 20]);
    let unread = || {
        let request = sent(&config);
        request.call_head(1, &HEAD);
        request.client_stops_reading();
        request.call_chunk(1, &word(&"many".repeat(1_200)));
        request
    };
    let first = unread();
    assert_eq!(first.own().reset, None);
    let second = unread();
    assert!(second.own().reset.is_some());
    drop(first);
    assert_eq!(unread().own().reset, None, "there is room again");
    // The picker has decided by the beginning of this body, whose rest is awaited for a resumption.
    let begin = || {
        let request = Request::chat(&config, 0);
        assert_eq!(request.headers(false), Next::Hold);
        let next = request.body(&body(&json!({"model": "n", "user": "u".repeat(2_500)})), false);
        (request, next)
    };
    let first = begin();
    let (second, third) = (begin(), begin());
    assert_eq!([first.1, second.1, third.1], [Next::Hold, Next::Hold, Next::Hold]);
    assert_eq!(begin().1, Next::Continue, "its stream is not resumed");
    drop(first);
    assert_eq!(begin().1, Next::Hold);
    config.wait_for("endpoint_picker.cut_streams", &[("pool", "resumed-9"), ("reason", "slow_client")], 1);
}
