//! Requests to which the queue responds, before or after they waited.

use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_wire::v1;

use super::{BODY, FREE, Queueing, SECRET, of, resumes};
use crate::fixture::{Request, topology};

fn at_most(requests: u64) -> v1::FlowControl {
    let band = v1::PriorityBand { max_requests: requests, max_bytes: 1_000, ..v1::PriorityBand::default() };
    v1::FlowControl {
        default_priority_band: Some(band),
        default_request_ttl_ms: Some(5_000),
        no_endpoint_request_ttl_ms: Some(2_000),
        ..v1::FlowControl::default()
    }
}

/// Status, reason and message.
fn answer(request: &Request) -> (u16, Option<&str>, String) {
    let answer = request.rejection();
    let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    let reason = header(request, "x-llm-d-request-dropped-reason");
    (answer.status, reason, body["error"]["message"].as_str().unwrap().to_owned())
}

fn header<'a>(request: &'a Request, name: &str) -> Option<&'a str> {
    let headers = request.rejection().headers.iter();
    headers.filter(|(header, _)| header == name).map(|(_, value)| value.as_str()).next()
}

const FULL: (u16, Option<&str>, &str) =
    (429, Some("rejected-saturated"), "request rejected pre-queue: queue at capacity");

fn assert_answered(request: &Request, (status, reason, message): (u16, Option<&str>, &str)) {
    assert_eq!(answer(request), (status, reason, message.to_owned()));
}

#[test]
fn a_request_that_would_be_rejected_is_answered_before_its_body_is_read() {
    let mut queueing = Queueing::saturated(at_most(1));
    let _waiting = queueing.waiting_request(&[]);
    let mut request = queueing.request(&[("expect", "100-continue")]);
    assert_eq!(request.head(&mut queueing.fixture), Flow::Hold);
    assert_answered(&request, FULL);
    assert_eq!(request.proxy.body_reads.take(), Vec::<usize>::new());
    // Another band has room, but not for that number of bytes.
    let mut request = queueing.request(&[of("urgent")[0], ("content-length", "1001")]);
    assert_eq!(request.head(&mut queueing.fixture), Flow::Hold);
    assert_answered(&request, FULL);
    assert_eq!(queueing.fixture.counted("rejected|429"), 2);
    queueing.waiting_request(&of("urgent"));
}

#[test]
fn a_request_is_answered_when_the_queue_has_filled_while_its_body_came() {
    let mut queueing = Queueing::saturated(at_most(1));
    let mut request = queueing.request(&[]);
    assert_eq!(request.head(&mut queueing.fixture), Flow::Hold);
    let _waiting = queueing.waiting_request(&[]);
    assert_eq!(request.body(&mut queueing.fixture, BODY.as_bytes(), true), Flow::Hold);
    assert_answered(&request, FULL);
    queueing.end(&mut request);
    assert_eq!(queueing.waiting(), 1);
}

#[test]
fn a_request_that_waited_for_too_long_is_answered() {
    let mut queueing = Queueing::saturated(at_most(10));
    let mut request = queueing.waiting_request(&[]);
    queueing.pass(4_999);
    queueing.tick();
    assert_eq!(resumes(&request), 0);
    queueing.pass(1);
    queueing.tick();
    assert_eq!(resumes(&request), 1);
    assert_eq!(queueing.resumed(&mut request), Some(Flow::Hold));
    let message = "request timed out in queue: request evicted from queue: request TTL expired";
    assert_answered(&request, (429, Some("rejected-ttl-expired"), message));
    assert_eq!(header(&request, "retry-after"), None, "no request has gone on yet");
    assert_eq!(queueing.left_over(), (0, 0));
}

#[test]
fn without_endpoints_a_request_waits_for_its_own_time_and_is_503() {
    let mut queueing = Queueing::saturated(at_most(1));
    queueing.fixture.adopt(topology(&[], super::queueing_policy(at_most(1))), &[]);
    let mut request = queueing.waiting_request(&[]);
    let mut full = queueing.request(&[]);
    assert_eq!(full.head(&mut queueing.fixture), Flow::Hold);
    let message = "no endpoints available: request rejected pre-queue: no endpoints available";
    assert_answered(&full, (503, Some("rejected-no-endpoints"), message));
    assert_eq!(header(&full, "retry-after"), Some("10"));
    queueing.pass(2_000);
    queueing.tick();
    assert_eq!(queueing.resumed(&mut request), Some(Flow::Hold));
    let message = "request timed out in queue and no endpoints are available: request evicted from queue: request TTL expired";
    assert_answered(&request, (503, Some("rejected-no-endpoints"), message));
    assert_eq!(header(&request, "retry-after"), Some("10"));
}

#[test]
fn a_client_that_is_turned_away_learns_when_to_come_again() {
    let mut queueing = Queueing::saturated(at_most(12));
    // Twelve wait; one is dispatched every 500 ms.
    let mut requests: Vec<_> = (0..12).map(|_| queueing.waiting_request(&[])).collect();
    for request in requests.iter_mut().take(4) {
        queueing.pass(500);
        queueing.read(&FREE);
        queueing.tick();
        queueing.read(&super::SATURATED);
        assert_eq!(queueing.resumed(request), Some(Flow::Continue));
    }
    requests.extend((0..4).map(|_| queueing.waiting_request(&[])));
    // Twelve wait again: six seconds for those, and two places for each that was turned away before.
    for expected in ["6", "7", "8", "9"] {
        let mut request = queueing.request(&[]);
        request.head(&mut queueing.fixture);
        assert_eq!(header(&request, "retry-after"), Some(expected));
    }
}

#[test]
fn who_has_the_secret_learns_how_long_the_request_waited() {
    let mut queueing = Queueing::saturated(at_most(10));
    let mut waits = queueing.waiting_request(&[("x-why", SECRET)]);
    let mut expires = queueing.waiting_request(&[("x-why", SECRET)]);
    let mut other = queueing.waiting_request(&[]);
    queueing.pass(120);
    queueing.read(&FREE);
    queueing.tick();
    assert_eq!(queueing.resumed(&mut waits), Some(Flow::Continue));
    queueing.read(&super::SATURATED);
    let forged = ("x-llm-d-queue-wait-ms", "1");
    waits.answer(&mut queueing.fixture, 1, &[(":status", "200"), forged]);
    assert_eq!(waits.proxy.response_header("x-llm-d-queue-wait-ms"), Some("120"));
    queueing.pass(4_880);
    queueing.tick();
    assert_eq!(queueing.resumed(&mut expires), Some(Flow::Hold));
    assert_eq!(header(&expires, "x-llm-d-queue-wait-ms"), Some("5000"));
    queueing.resumed(&mut other);
    assert_eq!(header(&other, "x-llm-d-queue-wait-ms"), None);
    let mut routed = {
        queueing.read(&FREE);
        queueing.post(&[]).0
    };
    routed.answer(&mut queueing.fixture, 1, &[(":status", "200"), forged]);
    assert_eq!(routed.proxy.response_header("x-llm-d-queue-wait-ms"), None, "a server cannot set it");
}
