//! Requests and responses of gRPC.

use core::time::Duration;

use endpoint_picker_engine::exchange::{Flow, refuse_withheld_body};
use endpoint_picker_engine::testing::plugin;
use endpoint_picker_wire::statistics::MetricKind;
use endpoint_picker_wire::v1;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixture::{Fixture, Request, START, TEXT, address, fewest_waiting, topology};

const GENERATE: &str = "/vllm.grpc.engine.VllmEngine/Generate";
const GRPC: (&str, &str) = ("content-type", "application/grpc");
const OK: &[(&str, &str)] = &[(":status", "200"), GRPC];

/// A policy with the parser of vLLM's gRPC service.
fn policy() -> v1::Policy {
    let mut policy = fewest_waiting();
    let config = policy.picker_config.as_mut().unwrap();
    config.parsers = vec!["vllmgrpc-parser".to_owned(), "openai-parser".to_owned()];
    config.plugins.extend(config.parsers.iter().map(|name| plugin(name, "{}")));
    config.plugins.push(plugin("inflight-load-producer", r#"{"addEstimatedOutputTokens": true}"#));
    policy
}

fn fixture(fields: &Value) -> Fixture {
    Fixture::with_policy(fields, policy())
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

/// A `GenerateRequest` with a text of this length, `max_tokens` 7 and `stream`.
fn generate(length: usize) -> Vec<u8> {
    let mut message =
        vec![0x1a, u8::try_from(length & 0x7f).unwrap() | 0x80, u8::try_from(length >> 7).unwrap()];
    message.resize(3 + length, b'a');
    message.extend(b"\x22\x02\x40\x07\x28\x01");
    frame(&message)
}

fn request(fixture: &mut Fixture) -> Request {
    let mut request = fixture.request(GENERATE, &[GRPC]);
    assert_eq!(request.head(fixture), Flow::Hold);
    request
}

/// A request that was routed to the first endpoint.
fn routed(fixture: &mut Fixture) -> Request {
    let mut request = request(fixture);
    assert_eq!(request.body(fixture, &generate(40), true), Flow::Continue);
    assert_eq!(request.destination(), Some(address(1).as_str()));
    request
}

fn chunk(request: &mut Request, fixture: &mut Fixture, chunk: &[u8]) {
    request.proxy.chunk = chunk.to_vec();
    request.exchange.response_body(&mut fixture.pool, &mut request.proxy, false);
}

fn trailers(request: &mut Request, fixture: &mut Fixture, status: &str) {
    request.proxy.response_trailers = vec![("grpc-status".to_owned(), status.as_bytes().to_vec())];
    request.exchange.response_trailers(&mut fixture.pool, &mut request.proxy);
}

#[test]
fn a_request_is_decided_with_its_first_message_wherever_that_is_cut() {
    let body = generate(40);
    for cut in 0..body.len() {
        let mut fixture = fixture(&json!({}));
        let mut request = request(&mut fixture);
        assert_eq!(request.body(&mut fixture, &body[..cut], false), Flow::Hold, "{cut}");
        assert_eq!(request.destination(), None, "{cut}");
        assert_eq!(request.body(&mut fixture, &body[cut..], false), Flow::Continue, "{cut}");
        assert_eq!(request.destination(), Some(address(1).as_str()), "{cut}");
        assert_eq!(fixture.loads()[0].tokens, 10 + 7, "the prompt and max_tokens");
        assert_eq!(request.body(&mut fixture, b"the next message", false), Flow::Continue, "nothing is held");
    }
}

proptest! {
    #[test]
    fn the_decision_does_not_depend_on_the_chunks(cuts in prop::collection::vec(0..60_usize, 0..8)) {
        let body = [generate(40), generate(1)].concat();
        let mut fixture = fixture(&json!({}));
        let mut request = request(&mut fixture);
        let mut cuts: Vec<usize> = cuts;
        cuts.sort_unstable();
        let mut at = 0;
        for cut in cuts.into_iter().chain([body.len()]) {
            let flow = request.body(&mut fixture, &body[at..cut], false);
            prop_assert_eq!(flow == Flow::Continue, cut >= generate(40).len());
            at = cut;
        }
        prop_assert_eq!(fixture.loads()[0].tokens, 17);
    }
}

#[test]
fn a_long_message_is_decided_by_its_beginning() {
    let mut fixture = fixture(&json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192}}));
    let mut request = request(&mut fixture);
    let body = generate(10_000);
    assert_eq!(request.body(&mut fixture, &body[..1023], false), Flow::Hold);
    assert_eq!(request.body(&mut fixture, &body[1023..1024], false), Flow::Continue);
    assert_eq!(fixture.loads()[0].tokens, 2500 + 3750, "the whole text counts, and no max_tokens");
    assert!(request.proxy.body_reads.borrow().iter().all(|&length| length <= 1024));
}

#[test]
fn a_message_without_its_input_in_the_bytes_that_may_be_held_is_refused_or_left_to_the_proxy() {
    // A field that is not read comes first.
    let mut message = vec![0x0a, 0xff, 0x7f];
    message.resize(3 + 0x3fff, b'i');
    message.extend(b"\x1a\x01a");
    let body = frame(&message);
    for (unread, flow) in [("Reject", Flow::Hold), ("Abstain", Flow::Continue)] {
        let limits = json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192, "unreadBody": unread}});
        let mut fixture = fixture(&limits);
        let mut request = request(&mut fixture);
        assert_eq!(request.body(&mut fixture, &body[..8191], false), Flow::Hold);
        assert_eq!(request.body(&mut fixture, &body[8191..8192], false), flow, "{unread}");
        let is_rejected = unread == "Reject";
        assert_eq!(request.proxy.local_answer.is_some(), is_rejected);
        assert_eq!(fixture.counted("rejected|413"), u64::from(is_rejected));
        assert_eq!(fixture.counted("abstained|body_too_large"), u64::from(!is_rejected));
        if is_rejected {
            assert_eq!(request.rejection().headers[0], ("grpc-status".to_owned(), "8".to_owned()));
            assert!(request.rejection().body.contains("within the first 8192 bytes"));
        }
    }
    let mut fixture = fixture(&json!({"limits": {"peekBytes": 1024}}));
    let mut request = request(&mut fixture);
    assert_eq!(
        request.body(&mut fixture, &body, false),
        Flow::Continue,
        "it is found behind the other field"
    );
}

#[test]
fn a_compressed_message_is_refused_or_left_to_the_proxy() {
    for (unread, flow) in [("Reject", Flow::Hold), ("Abstain", Flow::Continue)] {
        for is_last in [false, true] {
            let mut fixture = fixture(&json!({"limits": {"unreadBody": unread}}));
            let mut request = request(&mut fixture);
            let flows = request.body(&mut fixture, b"\x01\x00\x00\x00\x01x", is_last);
            assert_eq!(flows, flow);
            let is_rejected = unread == "Reject";
            assert_eq!(request.proxy.local_answer.is_some(), is_rejected);
            assert_eq!(fixture.counted("rejected|400"), u64::from(is_rejected));
            assert_eq!(fixture.counted("abstained|body_compressed"), u64::from(!is_rejected));
        }
    }
}

#[test]
fn a_malformed_message_is_refused_as_soon_as_it_has_come() {
    let mut fixture = fixture(&json!({}));
    for (body, message) in [
        (frame(b"\x1a\x05hi"), "unmarshaling GenerateRequest: a field is longer than its message"),
        (frame(b"\x28\x01"), "not supported request inputType"),
    ] {
        let mut request = request(&mut fixture);
        assert_eq!(request.body(&mut fixture, &body, false), Flow::Hold);
        let rejection = request.rejection();
        assert_eq!((rejection.status, rejection.body.as_str()), (400, message));
        assert_eq!(rejection.headers, [("grpc-status".to_owned(), "3".to_owned())]);
    }
    let mut request = request(&mut fixture);
    assert_eq!(request.body(&mut fixture, b"\x00\x00\x00\x00\x09abc", true), Flow::Hold);
    assert!(request.rejection().body.ends_with("it ends within its first message"));
}

#[test]
fn refusals_have_the_status_that_clients_of_grpc_read() {
    let mut empty = Fixture::without_snapshot(&json!({}));
    empty.adopt(topology(&[], policy()), &[]);
    let mut request = request(&mut empty);
    request.body(&mut empty, &generate(40), true);
    let rejection = request.rejection();
    assert_eq!(rejection.headers[0], ("grpc-status".to_owned(), "14".to_owned()));
    assert_eq!(rejection.headers[1].1, "rejected-no-endpoints");
    assert_eq!(rejection.headers[2], ("retry-after".to_owned(), "10".to_owned()));
    assert_eq!(rejection.body, "failed to find endpoint candidates for serving the request");

    let mut fixture = fixture(&json!({}));
    let mut other = fixture.request("/vllm.grpc.engine.VllmEngine/Abort", &[GRPC]);
    other.head(&mut fixture);
    assert_eq!(other.rejection().headers[0], ("grpc-status".to_owned(), "3".to_owned()));
    let mut withheld = fixture.request(GENERATE, &[GRPC]);
    refuse_withheld_body(&fixture.pool, &mut withheld.proxy).unwrap();
    assert_eq!(withheld.rejection().headers, [("grpc-status".to_owned(), "14".to_owned())]);
    let json = fixture.post(TEXT, &[("content-type", "application/json")], "{");
    assert_eq!(json.rejection().headers[0].1, "application/json");
}

#[test]
fn a_message_that_exceeds_the_proxys_buffer_gets_the_filters_status() {
    let mut fixture = fixture(&json!({}));
    let mut request = request(&mut fixture);
    request.body(&mut fixture, &generate(40)[..20], false);
    request.proxy.details = "request_payload_too_large";
    request.proxy.response_headers =
        [(":status", "200"), GRPC, ("grpc-status", "2"), ("grpc-message", "Payload Too Large")]
            .map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()))
            .to_vec();
    request.exchange.response_headers(&mut fixture.pool, &mut request.proxy, true);
    assert_eq!(request.proxy.response_header("grpc-status"), Some("8"));
    assert!(request.proxy.response_header("grpc-message").unwrap().contains("33554432 bytes"));
    assert_eq!(fixture.counted("rejected|413"), 1);
}

#[test]
fn only_a_header_names_the_model() {
    let mut fixture = fixture(&json!({"countTokens": true}));
    for headers in [&[GRPC][..], &[GRPC, ("x-llm-d-model-name-rewrite", "m")]] {
        let mut request = fixture.request(GENERATE, headers);
        request.head(&mut fixture);
        assert_eq!(request.body(&mut fixture, &generate(40), true), Flow::Continue);
        assert_eq!(request.proxy.request_body, generate(40), "the message stays as it is");
        request.served(&mut fixture);
    }
    assert_eq!(fixture.counted("model_requests|none|none"), 1);
    assert_eq!(fixture.counted("model_requests|none|m"), 1);
}

#[test]
fn a_server_is_judged_by_its_grpc_status() {
    for (status, details, is_blamed) in [
        ("14", "via_upstream", true),
        ("13", "via_upstream", true),
        ("2", "via_upstream", true),
        ("14", "upstream_reset_before_response_started{connection_refused}", true),
        ("14", "upstream_reset_before_response_started{overflow}", false),
        ("14", "no_healthy_upstream", false),
        ("0", "via_upstream", false),
        ("3", "via_upstream", false),
        ("4", "via_upstream", false),
        ("8", "via_upstream", false),
        ("12", "via_upstream", false),
        ("many", "via_upstream", false),
    ] {
        let expected: &[u8] = if is_blamed { &[1] } else { &[] };
        let mut fixture = fixture(&json!({}));
        let mut request = routed(&mut fixture);
        request.proxy.details = details;
        request.answer(&mut fixture, 1, &[(":status", "200"), GRPC, ("grpc-status", status)]);
        assert_eq!(fixture.avoided(), expected, "{status} {details} without a message");
    }
    for (status, expected) in [("14", &[1][..]), ("0", &[]), ("8", &[]), ("x", &[])] {
        let mut fixture = fixture(&json!({}));
        let mut request = routed(&mut fixture);
        request.answer(&mut fixture, 1, OK);
        chunk(&mut request, &mut fixture, b"x");
        assert_eq!(fixture.avoided(), [0; 0]);
        trailers(&mut request, &mut fixture, status);
        assert_eq!(fixture.avoided(), expected, "{status} behind messages");
        assert_eq!(fixture.in_flight(), [0, 0, 0]);
    }
}

#[test]
fn a_status_of_success_ends_the_avoidance_and_a_head_without_a_status_does_not() {
    let mut fixture = fixture(&json!({}));
    let mut requests = [routed(&mut fixture), routed(&mut fixture)];
    requests[0].answer(&mut fixture, 1, &[(":status", "200"), GRPC, ("grpc-status", "14")]);
    requests[1].answer(&mut fixture, 1, OK);
    assert_eq!(fixture.avoided(), [1]);
    trailers(&mut requests[1], &mut fixture, "0");
    assert_eq!(fixture.avoided(), [0; 0]);
}

#[test]
fn a_status_outside_of_grpc_does_not_count() {
    let mut fixture = fixture(&json!({}));
    let mut request = fixture.routed();
    request.answer(&mut fixture, 1, &[(":status", "200"), ("grpc-status", "14")]);
    chunk(&mut request, &mut fixture, b"x");
    trailers(&mut request, &mut fixture, "14");
    assert_eq!(fixture.avoided(), [0; 0]);
}

#[test]
fn tokens_and_times_are_counted_from_the_messages() {
    let mut fixture = fixture(&json!({"countTokens": true}));
    let mut request = routed(&mut fixture);
    request.answer(&mut fixture, 1, OK);
    request.proxy.now.set(START + Duration::from_millis(10));
    let first = frame(b"\x0a\x07\x0a\x01\x05\x10\x09\x18\x01");
    let complete = frame(b"\x12\x06\x18\x09\x20\x03\x28\x04");
    chunk(&mut request, &mut fixture, &first[..6]);
    request.proxy.now.set(START + Duration::from_millis(30));
    chunk(&mut request, &mut fixture, &[&first[6..], &complete[..3]].concat());
    request.proxy.now.set(START + Duration::from_millis(70));
    chunk(&mut request, &mut fixture, &complete[3..]);
    trailers(&mut request, &mut fixture, "0");
    let histograms = fixture.sink.values(MetricKind::Histogram);
    assert_eq!(histograms["first_byte_ms"], [30]);
    assert_eq!(histograms["input_tokens|none|none"], [9]);
    assert_eq!(histograms["output_tokens|none|none"], [3]);
    assert_eq!(histograms["cached_tokens|none|none"], [4]);
    assert_eq!(histograms["streaming_tpot_us|none|none"], [20_000], "40 ms for two further tokens");
}
