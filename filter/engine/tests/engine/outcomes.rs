//! The proof that responses give about their servers, the first token, and the prompts and models that follow
//! from both.

use core::time::Duration;

use endpoint_picker::response::outcome::ServerOutcome;
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::statistics::MetricKind;
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, Request, START, TEXT, address};

const OK: &[(&str, &str)] = &[(":status", "200")];
const JSON: &[(&str, &str)] = &[(":status", "200"), ("content-type", "application/json")];
const EVENTS: &[(&str, &str)] = &[(":status", "200"), ("content-type", "text/event-stream")];
const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;
const ERROR: &str = "data: {\"error\":{\"message\":\"EngineDeadError\",\"code\":500}}\n\n";
const TOKEN: &str = "data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n";

/// A pool whose first endpoint has just failed a generation.
fn failing() -> Fixture {
    let mut fixture = Fixture::new();
    fixture.routed().answer(&mut fixture, 1, &[(":status", "500")]);
    assert_eq!(fixture.avoided(), [1]);
    fixture
}

/// A request whose response comes from the first endpoint, whichever is picked.
fn respond(fixture: &mut Fixture, mut request: Request, head: &[(&str, &str)], body: &str) {
    request.proxy.attempts = Some(1);
    request.answer(fixture, 1, head);
    request.chunk(fixture, body, false);
    request.chunk(fixture, "", true);
}

#[test]
fn only_a_generation_that_is_served_ends_an_avoidance() {
    for (path, body, head, chunk, expected) in [
        (TEXT, BODY, OK, "text", ServerOutcome::Served),
        (TEXT, BODY, JSON, "{\"choices\":[]}", ServerOutcome::Served),
        (TEXT, BODY, EVENTS, TOKEN, ServerOutcome::Served),
        (TEXT, BODY, EVENTS, "data: [DONE]\n\n", ServerOutcome::Neutral),
        (TEXT, BODY, EVENTS, ERROR, ServerOutcome::Failed),
        (TEXT, BODY, EVENTS, "data: {\"error\":{\"code\":400}}\n\n", ServerOutcome::Neutral),
        (TEXT, BODY, JSON, "{\"error\":\"dead\"}", ServerOutcome::Failed),
        (TEXT, BODY, &[(":status", "400")], "", ServerOutcome::Neutral),
        (TEXT, BODY, &[(":status", "404")], "", ServerOutcome::Neutral),
        (TEXT, BODY, &[(":status", "429")], "", ServerOutcome::Neutral),
        (TEXT, BODY, &[(":status", "503")], "", ServerOutcome::Failed),
        ("/tokenize", BODY, JSON, "{\"count\":1}", ServerOutcome::Neutral),
        ("/v1/completions/render", BODY, JSON, "{}", ServerOutcome::Neutral),
        ("/v1/files", "x", JSON, "{}", ServerOutcome::Neutral),
    ] {
        let mut fixture = failing();
        let request = fixture.post(path, &[], body);
        respond(&mut fixture, request, head, chunk);
        let is_avoided = expected != ServerOutcome::Served;
        assert_eq!(fixture.avoided(), if is_avoided { &[1][..] } else { &[] }, "{path} {head:?} {chunk}");
        // And the other way round: a server that is not avoided.
        let mut fixture = Fixture::new();
        let request = fixture.post(path, &[], body);
        respond(&mut fixture, request, head, chunk);
        let is_avoided = expected == ServerOutcome::Failed;
        assert_eq!(fixture.avoided(), if is_avoided { &[1][..] } else { &[] }, "{path} {head:?} {chunk}");
    }
}

#[test]
fn a_response_to_a_request_without_a_body_proves_nothing_and_no_response_does() {
    for (details, status, is_avoided) in [
        ("via_upstream", "200", false),
        ("via_upstream", "500", false),
        ("upstream_reset_before_response_started{connection_failure}", "503", true),
    ] {
        for (mut fixture, was_avoided) in [(failing(), true), (Fixture::new(), false)] {
            let mut request = fixture.request("/v1/models", &[]);
            request.head_only(&mut fixture);
            request.proxy.details = details;
            request.proxy.attempts = Some(1);
            request.answer(&mut fixture, 1, &[(":status", status), ("content-type", "application/json")]);
            request.chunk(&mut fixture, "{\"data\":[]}", true);
            let expected: &[u8] = if was_avoided || is_avoided { &[1] } else { &[] };
            assert_eq!(fixture.avoided(), expected, "{details} {status}");
        }
    }
}

#[test]
fn an_error_counts_before_the_first_token_as_a_5xx_and_behind_it_as_a_cut_stream() {
    let failures = |fixture: &Fixture| {
        fixture.pool.store().read(|ledger| ledger.responses().iter().map(|it| it.failures).sum::<u64>())
    };
    let mut fixture = Fixture::with_config(&json!({"countTokens": true}));
    let mut request = fixture.routed();
    request.answer(&mut fixture, 1, EVENTS);
    request.chunk(&mut fixture, ERROR, false);
    request.chunk(&mut fixture, "data: [DONE]\n\n", true);
    assert!(!fixture.sink.values(MetricKind::Histogram).contains_key("first_byte_ms"));
    assert_eq!((failures(&fixture), fixture.counted("response_errors|server")), (1, 1));

    let mut fixture = Fixture::with_config(&json!({"countTokens": true}));
    let mut request = fixture.routed();
    request.answer(&mut fixture, 1, EVENTS);
    request.chunk(&mut fixture, TOKEN, false);
    assert_eq!(fixture.avoided(), [0; 0]);
    let (beginning, end) = ERROR.split_at(20);
    request.chunk(&mut fixture, beginning, false);
    request.chunk(&mut fixture, end, false);
    request.chunk(&mut fixture, ERROR, true);
    assert_eq!(fixture.avoided(), [1]);
    assert_eq!(fixture.sink.values(MetricKind::Histogram)["first_byte_ms"], [0]);
    assert_eq!((failures(&fixture), fixture.counted("response_errors|server")), (1, 1));
}

#[test]
fn an_error_behind_the_first_token_counts_however_the_stream_ends() {
    type End = fn(&mut Request, &mut Fixture);
    let ends: [(&str, End); 4] = [
        ("with a chunk", |request, fixture| drop(request.chunk(fixture, "data: [DONE]\n\n", true))),
        ("with trailers", |request, fixture| {
            request.exchange.response_trailers(&mut fixture.pool, &mut request.proxy);
        }),
        ("cut", |request, fixture| request.exchange.cut(&mut fixture.pool, &request.proxy)),
        ("not wanted", |request, fixture| request.exchange.end_at(&mut fixture.pool, || Ok(START))),
    ];
    for (name, end) in ends {
        let mut fixture = Fixture::with_config(&json!({"countTokens": true}));
        let mut request = fixture.routed();
        request.answer(&mut fixture, 1, EVENTS);
        for chunk in [TOKEN, TOKEN, ERROR] {
            request.chunk(&mut fixture, chunk, false);
        }
        end(&mut request, &mut fixture);
        assert_eq!((fixture.avoided(), fixture.counted("response_errors|server")), (vec![1], 1), "{name}");
    }
}

#[test]
fn an_error_of_the_client_is_counted_apart() {
    let mut fixture = Fixture::new();
    let request = fixture.routed();
    respond(&mut fixture, request, EVENTS, "data: {\"error\":{\"type\":\"BadRequestError\"}}\n\n");
    assert_eq!(fixture.avoided(), [0; 0]);
    assert_eq!(fixture.counted("response_errors|client"), 1);
    assert_eq!(fixture.counted("response_errors|server"), 0);
}

/// Bookkeeping of the responses API, and its first output.
const CREATED: &str =
    "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null}}\n\n";
const IN_PROGRESS: &str = "data: {\"type\":\"response.in_progress\",\"response\":{}}\n\n";
const DELTA: &str = "data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\n";

#[test]
fn the_prompts_load_and_the_time_to_the_first_token_end_with_the_first_output() {
    let mut fixture = Fixture::new();
    let body = json!({"model": "m", "input": "a".repeat(4000), "max_output_tokens": 10}).to_string();
    let mut request = fixture.post("/v1/responses", &[], &body);
    let routed = fixture.loads()[0];
    assert!(routed.tokens >= 1000, "{routed:?}");
    request.answer(&mut fixture, 1, EVENTS);
    request.proxy.now.set(START + Duration::from_millis(17));
    for bookkeeping in [CREATED, IN_PROGRESS, ": a comment\n\n"] {
        request.chunk(&mut fixture, bookkeeping, false);
        assert_eq!(fixture.loads()[0], routed, "{bookkeeping}");
    }
    request.proxy.now.set(START + Duration::from_millis(500));
    request.chunk(&mut fixture, DELTA, false);
    assert!(fixture.loads()[0].tokens < routed.tokens);
    assert_eq!(fixture.sink.values(MetricKind::Histogram)["first_byte_ms"], [500]);
    fixture.pool.store().read(|ledger| assert_eq!(ledger.first_token().requests(), 0, "with the end"));
    request.chunk(&mut fixture, "", true);
    fixture.pool.store().read(|ledger| assert_eq!(ledger.first_token().requests(), 1));
}

#[test]
fn chunks_behind_the_first_token_are_not_read_unless_their_tokens_are() {
    for (count_tokens, expected) in [(false, 2), (true, 4)] {
        let mut fixture = Fixture::with_config(&json!({"countTokens": count_tokens}));
        let mut request = fixture.post("/v1/responses", &[], r#"{"model": "m", "input": "hi"}"#);
        request.answer(&mut fixture, 1, EVENTS);
        for chunk in [CREATED, DELTA, DELTA, DELTA] {
            request.chunk(&mut fixture, chunk, false);
        }
        assert_eq!(request.proxy.chunk_reads.get(), expected);
    }
}

#[test]
fn a_compressed_response_and_one_of_another_kind_begin_with_their_first_chunk() {
    let compressed = [EVENTS, &[("content-encoding", "gzip")]].concat();
    for head in [&compressed[..], &[(":status", "200"), ("content-type", "application/octet-stream")]] {
        let mut fixture = Fixture::new();
        let mut request = fixture.routed();
        request.answer(&mut fixture, 1, head);
        request.chunk(&mut fixture, CREATED, false);
        assert_eq!(fixture.sink.values(MetricKind::Histogram)["first_byte_ms"], [0]);
        assert_eq!(request.proxy.chunk_reads.get(), 0);
    }
}

/// A pool that goes by cached prompts, and avoids no endpoint.
fn matching() -> Fixture {
    Fixture::with_policy(&json!({}), v1::Policy { avoid_failing_ms: 0, ..v1::Policy::default() })
}

fn post_long_prompt(fixture: &mut Fixture) -> (Request, u8) {
    let request = fixture.post(TEXT, &[], &json!({"model": "m", "prompt": "a".repeat(4096)}).to_string());
    let endpoint = request.destination().unwrap().as_bytes()[7] - b'0';
    (request, endpoint)
}

/// Whether the endpoint of the prompt has it cached, as far as the rules know.
fn is_cached(fixture: &mut Fixture) -> bool {
    let before = fixture.counted("prompt_blocks_matched");
    post_long_prompt(fixture);
    fixture.counted("prompt_blocks_matched") > before
}

#[test]
fn a_prompt_counts_as_cached_only_where_it_was_served() {
    for (head, body, expected) in [
        (EVENTS, TOKEN, true),
        (JSON, "{\"choices\":[]}", true),
        (EVENTS, ERROR, false),
        (EVENTS, "data: [DONE]\n\n", false),
        (EVENTS, "data: {\"error\":{\"code\":400}}\n\n", false),
        (JSON, "{\"error\":\"dead\"}", false),
        (&[(":status", "500")], "", false),
        (&[(":status", "429")], "", false),
    ] {
        let mut fixture = matching();
        let (mut request, from) = post_long_prompt(&mut fixture);
        request.answer(&mut fixture, from, head);
        request.chunk(&mut fixture, body, true);
        assert_eq!(is_cached(&mut fixture), expected, "{head:?} {body}");
    }
}

#[test]
fn a_prompt_stays_cached_that_its_server_had_before_it_failed_the_next_turn() {
    let mut fixture = matching();
    for (head, body) in [(EVENTS, TOKEN), (EVENTS, ERROR)] {
        let (mut request, from) = post_long_prompt(&mut fixture);
        request.answer(&mut fixture, from, head);
        request.chunk(&mut fixture, body, true);
    }
    assert!(is_cached(&mut fixture));
}

#[test]
fn a_prompt_is_not_cached_at_a_server_that_ends_the_response_before_its_first_token() {
    for (chunk, expected) in [(": a comment\n\n", false), (TOKEN, true)] {
        let mut fixture = matching();
        let (mut request, from) = post_long_prompt(&mut fixture);
        request.answer(&mut fixture, from, EVENTS);
        request.chunk(&mut fixture, chunk, false);
        request.exchange.cut(&mut fixture.pool, &request.proxy);
        assert_eq!(is_cached(&mut fixture), expected, "{chunk}");
    }
}

#[test]
fn a_prompt_is_not_cached_at_servers_that_failed_before_another_one_served_it() {
    let mut fixture = matching();
    let (mut request, from) = post_long_prompt(&mut fixture);
    request.answer(&mut fixture, from % 3 + 1, EVENTS);
    request.chunk(&mut fixture, TOKEN, true);
    assert!(!is_cached(&mut fixture));
}

/// Sends a request at this time that may go to the first endpoint, and then to the second. The response has
/// this source, details and status. Returns the number of endpoints that are avoided then.
fn respond_at(
    fixture: &mut Fixture,
    milliseconds: u64,
    (from, details, status): (u8, &'static str, &str),
) -> usize {
    let now = START + Duration::from_millis(milliseconds);
    let mut request = fixture.request(TEXT, &[]);
    request.proxy.namespace = Some(vec![0]);
    request.proxy.hint = Some([1, 2].map(address).join(",").into_bytes());
    request.proxy.now.set(now);
    request.head(fixture);
    request.body(fixture, BODY.as_bytes(), true);
    request.proxy.details = details;
    request.answer(fixture, from, &[(":status", status)]);
    request.chunk(fixture, "text", true);
    fixture.pool.store().read(|ledger| ledger.avoided_endpoints(now).count())
}

#[test]
fn a_kept_connection_that_is_closed_is_not_a_failure_and_the_next_one_is() {
    let closed = (1, "upstream_reset_before_response_started{connection_termination}", "503");
    let refused = (1, "upstream_reset_before_response_started{connection_failure}", "503");
    let (served, by_another) = ((1, "via_upstream", "200"), (2, "via_upstream", "200"));
    let failed = (1, "via_upstream", "500");
    for (response, rest, expected) in [
        (by_another, 4500, [0, 1]),
        (by_another, 1000, [1, 1]),
        (closed, 4500, [0, 1]),
        (closed, 1000, [1, 1]),
        (refused, 4500, [1, 1]),
        (failed, 4500, [1, 1]),
    ] {
        let mut fixture = Fixture::new();
        assert_eq!(respond_at(&mut fixture, 0, served), 0);
        let avoided = [rest, rest + 300].map(|at| respond_at(&mut fixture, at, response));
        assert_eq!(avoided, expected, "{response:?} {rest}");
    }
}

#[test]
fn a_model_is_counted_by_a_response_below_400() {
    let mut fixture = Fixture::new();
    for name in 0..1500 {
        let body = json!({"model": format!("guess-{name}"), "prompt": "hi"}).to_string();
        let request = fixture.post(TEXT, &[], &body);
        respond(&mut fixture, request, &[(":status", "404")], "");
    }
    for _ in 0..3 {
        let request = fixture.routed();
        respond(&mut fixture, request, OK, "text");
    }
    // A known model counts with its next request, whatever the response.
    let request = fixture.routed();
    respond(&mut fixture, request, &[(":status", "429")], "");
    assert_eq!(fixture.counted("model_requests|m|m"), 4);
    assert_eq!(fixture.counted("model_requests|guess-1|guess-1"), 0);
    assert_eq!(fixture.counted("model_requests|other|other"), 0);
}

#[test]
fn models_that_no_request_used_for_an_hour_leave_room_for_others() {
    let mut fixture = Fixture::new();
    let serve = |fixture: &mut Fixture, model: &str| {
        let request = fixture.post(TEXT, &[], &json!({"model": model, "prompt": "hi"}).to_string());
        respond(fixture, request, OK, "text");
    };
    for name in 0..1000 {
        serve(&mut fixture, &format!("old-{name}"));
    }
    serve(&mut fixture, "new");
    let minutes = |fixture: &mut Fixture, minutes: u64| {
        fixture.pool.publish_metrics(false, START + Duration::from_secs(60 * minutes));
    };
    minutes(&mut fixture, 1);
    assert_eq!(fixture.sink.get("model_requests|other|other"), 1);
    for step in 1..=3 {
        serve(&mut fixture, "old-7");
        minutes(&mut fixture, 1 + 31 * step);
    }
    serve(&mut fixture, "new");
    serve(&mut fixture, "old-7");
    minutes(&mut fixture, 120);
    assert_eq!(fixture.sink.get("model_requests|new|new"), 1);
    assert_eq!(fixture.sink.get("model_requests|old-7|old-7"), 5);
    assert_eq!(fixture.sink.get("model_requests|old-8|old-8"), 1, "the proxy keeps its last value");
}
