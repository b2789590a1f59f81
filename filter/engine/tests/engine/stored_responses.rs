//! Requests that name a stored response or conversation go to the server that stores it.

use core::time::Duration;

use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Request, START, address, fewest_waiting, topology};

const RESPONSES: &str = "/v1/responses";
const CONVERSATIONS: &str = "/v1/conversations";

/// A request whose response comes from server 2, though the rules pick server 1, with this type and these
/// chunks.
fn answered(fixture: &mut Fixture, path: &str, body: &Value, content_type: &str, chunks: &[&str]) {
    let mut request = fixture.post(path, &[], &body.to_string());
    // The first attempt went there: the destination has not failed.
    request.proxy.attempts = Some(1);
    request.answer(fixture, 2, &[(":status", "200"), ("content-type", content_type)]);
    for (at, chunk) in chunks.iter().enumerate() {
        request.chunk(fixture, chunk, at + 1 == chunks.len());
    }
}

/// A turn whose response server 2 stores.
fn stored(fixture: &mut Fixture, path: &str, id: &str) {
    let body = json!({"model": "m", "input": "hi", "items": [{"type": "message"}]});
    answered(fixture, path, &body, "application/json", &[&json!({"id": id, "object": "o"}).to_string()]);
}

/// The destination of a turn with these members.
fn turn(fixture: &mut Fixture, members: &Value) -> String {
    let mut body = json!({"model": "m", "input": "hi"});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    fixture.post(RESPONSES, &[], &body.to_string()).destination().unwrap().to_owned()
}

fn next(fixture: &mut Fixture, id: &str) -> String {
    turn(fixture, &json!({"previous_response_id": id}))
}

fn without_body(fixture: &mut Fixture, method: &str, path: &str) -> Request {
    let mut request = fixture.request(path, &[]);
    method.as_bytes().clone_into(&mut request.proxy.request_headers[0].1);
    request.head_only(fixture);
    request
}

#[test]
fn everything_about_a_response_goes_to_the_server_that_stores_it() {
    let mut fixture = Fixture::new();
    assert_eq!(next(&mut fixture, "resp_a"), address(1), "not known yet");
    stored(&mut fixture, RESPONSES, "resp_a");
    assert_eq!(next(&mut fixture, "resp_a"), address(2));
    assert_eq!(next(&mut fixture, "resp_b"), address(1), "another");
    for (method, path) in [
        ("GET", "/v1/responses/resp_a"),
        ("GET", "/v1/responses/resp_a/input_items?limit=2"),
        ("GET", "/v1/responses/resp_a?stream=true"),
        ("DELETE", "/v1/responses/resp_a"),
        ("POST", "/v1/responses/resp_a/cancel"),
    ] {
        for _ in 0..20 {
            let request = without_body(&mut fixture, method, path);
            assert_eq!(request.destination(), Some(address(2).as_str()), "{method} {path}");
        }
    }
    let cancelled = fixture.post("/v1/responses/resp_a/cancel", &[], "{}");
    assert_eq!(cancelled.destination(), Some(address(2).as_str()));
}

#[test]
fn a_stream_names_its_response_however_it_is_cut() {
    let stream = "event: response.created\n\
        data: {\"type\":\"response.created\",\"response\":{\"object\":\"response\",\"id\":\"resp_a\"}}\n\n\
        data: {\"type\":\"response.output_item.added\",\"item\":{\"id\":\"msg_1\"}}\n\n\
        data: {\"type\":\"response.output_text.delta\",\"item_id\":\"msg_1\",\"delta\":\"a\"}\n\n";
    let body = json!({"model": "m", "input": "hi", "stream": true});
    for length in [1, 7, 50, stream.len()] {
        let chunks: Vec<&str> =
            stream.as_bytes().chunks(length).map(|chunk| core::str::from_utf8(chunk).unwrap()).collect();
        let mut fixture = Fixture::new();
        answered(&mut fixture, RESPONSES, &body, "text/event-stream", &chunks);
        assert_eq!(next(&mut fixture, "resp_a"), address(2), "chunks of {length}");
        assert_eq!(next(&mut fixture, "msg_1"), address(1));
    }
}

#[test]
fn a_whole_response_is_searched_for_its_id_to_its_end() {
    let mut fixture = Fixture::new();
    let body = json!({"model": "m", "input": "hi"});
    let chunks = [r#"{"output": [{"id": "msg_1"}], "text": "#, r#"{"id": "no"}, "id": "re"#, r#"sp_a"}"#];
    answered(&mut fixture, RESPONSES, &body, "application/json", &chunks);
    assert_eq!(["resp_a", "msg_1", "no"].map(|id| next(&mut fixture, id)), [2, 1, 1].map(address));
}

#[test]
fn conversations_stay_at_their_server() {
    let mut fixture = Fixture::new();
    stored(&mut fixture, CONVERSATIONS, "conv_a");
    for conversation in [json!("conv_a"), json!({"x": [1], "id": "conv_a"})] {
        assert_eq!(turn(&mut fixture, &json!({"conversation": conversation})), address(2));
    }
    let items = fixture.post("/v1/conversations/conv_a/items", &[], r#"{"items": []}"#);
    assert_eq!(items.destination(), Some(address(2).as_str()));
    let deleted = without_body(&mut fixture, "DELETE", "/v1/conversations/conv_a");
    assert_eq!(deleted.destination(), Some(address(2).as_str()));
    for other in [json!(null), json!(1), json!(["conv_a"]), json!({"id": ["conv_a"]})] {
        assert_eq!(turn(&mut fixture, &json!({"conversation": other})), address(1));
    }
    let both = json!({"conversation": "conv_a", "previous_response_id": "resp_b"});
    assert_eq!(turn(&mut fixture, &both), address(1), "the response before comes first, and is not known");
}

#[test]
fn a_response_that_is_not_stored_binds_nothing() {
    let cases = [
        (json!({"store": false}), "200", json!({"id": "resp_a"})),
        (json!({}), "404", json!({"id": "resp_a"})),
        (json!({}), "200", json!({"id": ["resp_a"]})),
        (json!({}), "200", json!({"output": {"id": "resp_a"}})),
    ];
    for (members, status, answer) in cases {
        let mut fixture = Fixture::new();
        let mut body = json!({"model": "m", "input": "hi"});
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let mut request = fixture.post(RESPONSES, &[], &body.to_string());
        request.proxy.attempts = Some(1);
        request.answer(&mut fixture, 2, &[(":status", status), ("content-type", "application/json")]);
        request.chunk(&mut fixture, &answer.to_string(), true);
        assert_eq!(next(&mut fixture, "resp_a"), address(1), "{members} {status} {answer}");
    }
}

#[test]
fn ids_are_bounded() {
    let mut fixture = Fixture::new();
    let (longest, longer) = ("x".repeat(256), "x".repeat(257));
    for id in ["", &longest, &longer, "with \"escapes"] {
        stored(&mut fixture, RESPONSES, id);
    }
    let destinations = ["", &longest, &longer, "with \"escapes"].map(|id| next(&mut fixture, id));
    assert_eq!(destinations, [1, 2, 1, 1].map(address));
}

#[test]
fn without_its_server_a_request_is_picked_for_as_any_other() {
    let mut fixture = Fixture::new();
    stored(&mut fixture, RESPONSES, "resp_a");
    fixture.adopt(topology(&[1, 3], fewest_waiting()), &[5, 0]);
    assert_eq!(next(&mut fixture, "resp_a"), address(3));
    fixture.adopt(topology(&[1, 2, 3], fewest_waiting()), &[5, 9, 0]);
    assert_eq!(next(&mut fixture, "resp_a"), address(3), "a server that comes back has stored nothing");
}

#[test]
fn a_server_that_failed_a_moment_ago_still_gets_what_only_it_stores() {
    let mut fixture = Fixture::new();
    stored(&mut fixture, RESPONSES, "resp_a");
    let mut failed = fixture.post(RESPONSES, &[], r#"{"model": "m", "input": "hi"}"#);
    failed.proxy.attempts = Some(1);
    failed.answer(&mut fixture, 2, &[(":status", "500")]);
    assert_eq!(fixture.avoided(), [2]);
    assert_eq!(next(&mut fixture, "resp_a"), address(2));
}

#[test]
fn ids_are_forgotten_after_a_day() {
    let mut fixture = Fixture::new();
    stored(&mut fixture, RESPONSES, "resp_a");
    for (hours, server) in [(23, 2), (25, 1)] {
        let mut request = fixture.request("/v1/responses", &[]);
        request.proxy.now.set(START + Duration::from_secs(hours * 3600));
        request.head(&mut fixture);
        request.body(
            &mut fixture,
            br#"{"model": "m", "input": "hi", "previous_response_id": "resp_a"}"#,
            true,
        );
        assert_eq!(request.destination().unwrap(), address(server), "after {hours} hours");
    }
}

#[test]
fn the_epp_sends_them_anywhere() {
    let policy = v1::Policy { epp_rules: v1::EppRules::V010.into(), ..fewest_waiting() };
    let mut fixture = Fixture::with_policy(&json!({}), policy);
    stored(&mut fixture, RESPONSES, "resp_a");
    assert_eq!(next(&mut fixture, "resp_a"), address(1));
}
