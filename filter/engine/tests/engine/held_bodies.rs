//! The room for all bodies that are held at the same time.

use std::sync::Arc;

use endpoint_picker_engine::budget::UsedBytes;
use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::proxy::ProxyError;
use endpoint_picker_engine::proxy::headers::DESTINATION;
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use crate::fixture::{CHAT, Fixture, Request, TEXT, address};
use crate::queue::queueing_policy;

const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;

/// Bytes of a body that has arrived, and lacks its model.
const PART: usize = 3_000;

/// Three such bodies have room, and a body of up to 8 192 bytes.
fn limits() -> Value {
    json!({"limits": {"peekBytes": 1024, "maxHeldBytes": 8192, "maxHeldBytesInAll": 10_000}})
}

/// A pool with these fields in its configuration, and the bytes that it holds.
fn pool(fields: &Value) -> (Fixture, Arc<UsedBytes>) {
    let mut config = limits();
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    counted(Fixture::with_config(&config))
}

fn counted(mut fixture: Fixture) -> (Fixture, Arc<UsedBytes>) {
    let used = Arc::<UsedBytes>::default();
    fixture.pool = fixture.pool.with_held_bodies(&used);
    (fixture, used)
}

fn part() -> String {
    format!(r#"{{"prompt": "{}"#, "x".repeat(PART - 12))
}

/// A request of whose body this part has arrived.
fn begun(fixture: &mut Fixture, headers: &[(&str, &str)]) -> (Request, Flow) {
    let mut request = fixture.request(TEXT, headers);
    request.head(fixture);
    let flow = request.body(fixture, part().as_bytes(), false);
    (request, flow)
}

/// A request that is held with this part of its body.
fn held(fixture: &mut Fixture) -> Request {
    let (request, flow) = begun(fixture, &[]);
    assert_eq!((flow, request.proxy.local_answer.is_some()), (Flow::Hold, false));
    request
}

#[test]
fn a_body_beyond_the_room_for_all_is_rejected_and_others_are_not() {
    let (mut fixture, used) = pool(&json!({}));
    let mut requests: Vec<Request> = (0..3).map(|_| held(&mut fixture)).collect();
    assert_eq!(used.get(), 3 * PART);
    let (mut rejected, flow) = begun(&mut fixture, &[]);
    assert_eq!(flow, Flow::Hold);
    let answer = rejected.rejection();
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("too many request bodies"), "{}", answer.body);
    let header = |name: &str| answer.headers.iter().find(|(other, _)| other == name).map(|(_, it)| &**it);
    assert_eq!(header("x-llm-d-request-dropped-reason"), Some("rejected-held-bodies"));
    assert_eq!(header("retry-after"), Some("1"));
    assert_eq!(used.get(), 3 * PART);
    assert_eq!(rejected.body(&mut fixture, b"more", true), Flow::Continue, "it is answered once");
    assert_eq!(fixture.counted("rejected_held_bodies"), 1);
    assert_eq!(fixture.counted("rejected|503"), 1);
    // A body that arrives at once is not held, and needs no room.
    let whole = fixture.post(TEXT, &[], BODY);
    assert_eq!(whole.destination(), Some(address(1).as_str()));
    // One that is held grows within the room that is left, and no further.
    assert_eq!(requests[0].body(&mut fixture, &[b'x'; 1_000], false), Flow::Hold);
    assert_eq!((used.get(), requests[0].proxy.local_answer.is_some()), (10_000, false));
    assert_eq!(requests[1].body(&mut fixture, b"x", false), Flow::Hold);
    assert_eq!(requests[1].rejection().status, 503);
    drop(requests.remove(0));
    assert_eq!(used.get(), PART);
    held(&mut fixture);
}

/// An end of a request that is held.
type End = fn(&mut Fixture, Request);

#[test]
fn every_end_of_a_request_gives_its_bytes_back() {
    let ends: [(&str, End); 10] = [
        ("the whole body", |fixture, mut request| {
            request.body(fixture, br#"", "model": "m"}"#, true);
            assert_eq!(request.destination(), Some(address(1).as_str()));
        }),
        ("trailers", |fixture, mut request| {
            request.proxy.request_body.extend_from_slice(br#"", "model": "m"}"#);
            request.trailers(fixture);
            assert_eq!(request.destination(), Some(address(1).as_str()));
        }),
        ("the model, before the rest of the body", |fixture, mut request| {
            let rest = format!(r#"", "model": "m", "user": "{}"#, "u".repeat(2_000));
            assert_eq!(request.body(fixture, rest.as_bytes(), false), Flow::Continue);
        }),
        ("400", |fixture, mut request| {
            request.body(fixture, b"}", true);
            assert_eq!(request.rejection().status, 400);
        }),
        ("413", |fixture, mut request| {
            request.body(fixture, &[b'x'; 6_000], false);
            assert_eq!(request.rejection().status, 413);
        }),
        ("the client is gone", |_, request| drop(request)),
        ("the end of the exchange", |fixture, mut request| {
            request.exchange.end(&mut fixture.pool);
            core::mem::forget(request);
        }),
        ("a body that will not arrive", |fixture, mut request| {
            request.exchange.request_body_withheld(&mut fixture.pool, &mut request.proxy);
            core::mem::forget(request);
        }),
        ("a call that the proxy refuses", |fixture, mut request| {
            request.proxy.refused = vec!["request_body"];
            assert_eq!(request.body(fixture, b"xx", true), Flow::Continue);
            core::mem::forget(request);
        }),
        ("a fault of the shell", |fixture, mut request| {
            let error = ProxyError { call: "a hook", status: "it panicked".to_owned() };
            request.exchange.fail(&mut fixture.pool, &mut request.proxy, error);
            core::mem::forget(request);
        }),
    ];
    for (name, end) in ends {
        let (mut fixture, used) = pool(&json!({}));
        let request = held(&mut fixture);
        assert_eq!(used.get(), PART, "{name}");
        end(&mut fixture, request);
        assert_eq!(used.get(), 0, "{name}");
    }
}

#[test]
fn requests_that_wait_in_the_queue_hold_their_bodies() {
    let mut fixture = Fixture::without_snapshot(&limits());
    let policy = queueing_policy(v1::FlowControl::default());
    fixture.adopt(crate::fixture::topology(&[1, 2, 3], policy), &[10, 10, 10]);
    let (mut fixture, used) = counted(fixture);
    let body = format!(r#"{{"model": "m", "prompt": "{}"}}"#, "x".repeat(4_000));
    let wait = |fixture: &mut Fixture| {
        let mut request = fixture.request(TEXT, &[]);
        request.head(fixture);
        let flow = request.body(fixture, body.as_bytes(), true);
        (request, flow)
    };
    let (mut first, flow) = wait(&mut fixture);
    assert_eq!((flow, used.get()), (Flow::Wait, body.len()));
    let (_second, _) = wait(&mut fixture);
    let (third, flow) = wait(&mut fixture);
    assert_eq!((flow, third.rejection().status), (Flow::Hold, 503));
    let waiting = |fixture: &Fixture| fixture.pool.store().with_queue(|queue| queue.waiting());
    assert_eq!((used.get(), waiting(&fixture)), (2 * body.len(), Some(2)), "it has left the queue");
    assert_eq!(first.body(&mut fixture, &[b' '; 5_000], false), Flow::Hold);
    assert_eq!((first.rejection().status, waiting(&fixture)), (503, Some(1)));
}

#[test]
fn a_shadow_copies_no_more_than_there_is_room_for() {
    let (mut fixture, used) = pool(&json!({"mode": "shadow"}));
    let routed = address(1);
    let copied: Vec<_> = (0..3).map(|_| begun(&mut fixture, &[(DESTINATION, &routed)])).collect();
    assert_eq!(used.get(), 3 * PART);
    let (request, flow) = begun(&mut fixture, &[(DESTINATION, &routed)]);
    assert_eq!((flow, request.proxy.local_answer), (Flow::Continue, None), "it passes");
    assert_eq!((fixture.counted("shadow_not_compared"), fixture.counted("rejected_held_bodies")), (1, 0));
    drop(copied);
    assert_eq!(used.get(), 0);
}

#[test]
fn a_length_that_a_client_only_claims_takes_no_more_of_the_queue_than_can_be_held() {
    let mut fixture = Fixture::without_snapshot(&limits());
    let band = v1::FlowControl { max_bytes: 20_000, ..v1::FlowControl::default() };
    fixture.adopt(crate::fixture::topology(&[1, 2, 3], queueing_policy(band)), &[10, 10, 10]);
    let mut claim = fixture.request(TEXT, &[("content-length", "19000")]);
    claim.head(&mut fixture);
    let body = format!(r#"{{"model": "m", "prompt": "{}"#, "x".repeat(2_000));
    assert_eq!(claim.body(&mut fixture, body.as_bytes(), false), Flow::Wait);
    let mut other = fixture.request(CHAT, &[]);
    other.head(&mut fixture);
    let body =
        r#"{"model": "m", "messages": [{"role": "user", "content": "hi, there is room for this, too"}]}"#;
    let body = body.replace("too", &"t".repeat(3_000));
    assert_eq!(other.body(&mut fixture, body.as_bytes(), true), Flow::Wait);
}
