//! Bodies of requests that wait: they stay with the proxy.

use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_wire::v1;

use super::{FREE, Queueing};
use crate::fixture::{TEXT, address, topology};

/// Has the queue dispatch all.
fn open(queueing: &mut Queueing) {
    queueing.read(&FREE);
    queueing.pass(1);
    queueing.tick();
}

fn renaming() -> v1::Policy {
    let target = v1::Target { model: "canary".to_owned(), weight: None };
    let rule =
        v1::RewriteRule { resource: "r".to_owned(), models: vec!["m".to_owned()], targets: vec![target] };
    v1::Policy { rewrite_rules: vec![rule], ..super::queueing_policy(v1::FlowControl::default()) }
}

#[test]
fn a_model_is_replaced_when_the_request_goes_on() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    queueing.fixture.adopt(topology(&[1, 2, 3], renaming()), &super::SATURATED);
    let mut request = queueing.waiting_request(&[("content-length", "30")]);
    assert_eq!(request.proxy.request_body, super::BODY.as_bytes(), "it waits unchanged");
    open(&mut queueing);
    assert_eq!(queueing.resumed(&mut request), Some(Flow::Continue));
    let renamed = r#"{"model": "canary", "prompt": "hi"}"#;
    assert_eq!(request.proxy.request_body, renamed.as_bytes());
    assert_eq!(request.proxy.request_header("content-length"), Some("35"));
}

#[test]
fn a_body_that_is_decided_by_its_beginning_may_grow_while_the_request_waits() {
    for ends in [false, true] {
        let mut queueing = Queueing::saturated(v1::FlowControl::default());
        let mut request = queueing.fixture.request(TEXT, &[]);
        assert_eq!(request.head(&mut queueing.fixture), Flow::Hold);
        let beginning = format!(r#"{{"model": "m", "prompt": "{}"#, "x".repeat(1 << 20));
        assert_eq!(request.body(&mut queueing.fixture, beginning.as_bytes(), false), Flow::Wait);
        assert_eq!(request.body(&mut queueing.fixture, b"more", false), Flow::Wait);
        if ends {
            assert_eq!(request.body(&mut queueing.fixture, b"\"}", true), Flow::Wait);
        }
        open(&mut queueing);
        assert_eq!(queueing.resumed(&mut request), Some(Flow::Continue));
        assert_eq!(request.destination(), Some(address(2).as_str()));
        assert_eq!(request.body(&mut queueing.fixture, b"rest", true), Flow::Continue);
    }
}

#[test]
fn a_body_whose_end_comes_as_trailers_is_whole() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let mut request = queueing.fixture.request(TEXT, &[]);
    request.head(&mut queueing.fixture);
    assert_eq!(request.body(&mut queueing.fixture, super::BODY.as_bytes(), false), Flow::Hold);
    assert_eq!(request.trailers(&mut queueing.fixture), Flow::Wait);
    open(&mut queueing);
    assert_eq!(queueing.resumed(&mut request), Some(Flow::Continue));
}

#[test]
fn a_request_whose_body_is_not_read_waits_with_its_head() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let mut request = queueing.fixture.request("/v1/audio/transcriptions", &[]);
    assert_eq!(request.head(&mut queueing.fixture), Flow::Wait);
    assert_eq!(request.body(&mut queueing.fixture, b"RIFF", false), Flow::Wait);
    open(&mut queueing);
    assert_eq!(queueing.resumed(&mut request), Some(Flow::Continue));
    assert_eq!(request.body(&mut queueing.fixture, b"more", true), Flow::Continue);
}

#[test]
fn a_policy_that_needs_the_body_may_come_while_a_request_waits_with_its_head() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let path = "/tokenize";
    let mut request = queueing.fixture.request(path, &[]);
    assert_eq!(request.head(&mut queueing.fixture), Flow::Wait);
    queueing.fixture.adopt(topology(&[1, 2, 3], renaming()), &super::SATURATED);
    open(&mut queueing);
    assert_eq!(queueing.resumed(&mut request), Some(Flow::Hold), "its model is not there yet");
    request.body(&mut queueing.fixture, super::BODY.as_bytes(), true);
    assert_eq!(queueing.waiting(), 0, "it does not wait twice");
}
