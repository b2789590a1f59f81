//! Order in which waiting requests continue.

use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::proxy::ProxyError;
use endpoint_picker_wire::v1;

use super::{FREE, Queueing, SATURATED, of, queueing_policy, resumes};
use crate::fixture::{TEXT, address, fewest_waiting, topology};

#[test]
fn while_nothing_waits_a_request_goes_on_at_once() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    queueing.read(&FREE);
    let (mut request, flow) = queueing.post(&[]);
    assert_eq!((flow, resumes(&request)), (Flow::Continue, 0));
    assert_eq!(request.destination(), Some(address(2).as_str()));
    assert_eq!(queueing.left_over(), (1, 0));
    queueing.end(&mut request);
    assert_eq!(queueing.left_over(), (0, 0));
}

#[test]
fn a_request_waits_for_capacity_and_goes_where_the_readings_of_that_moment_say() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let mut request = queueing.waiting_request(&[]);
    queueing.pass(1);
    queueing.tick();
    assert_eq!((resumes(&request), queueing.waiting()), (0, 1));
    assert_eq!(queueing.resumed(&mut request), None, "a hook without a reason");
    queueing.read(&[4, 4, 0]);
    queueing.pass(1);
    queueing.tick();
    assert_eq!((resumes(&request), queueing.waiting()), (1, 0));
    assert_eq!(queueing.fixture.in_flight(), [0, 0, 0]);
    assert_eq!(queueing.resumed(&mut request), Some(Flow::Continue));
    assert_eq!(request.destination(), Some(address(3).as_str()));
    assert_eq!(queueing.fixture.in_flight(), [0, 0, 1]);
    assert_eq!(queueing.resumed(&mut request), None, "it went on already");
    queueing.end(&mut request);
    assert_eq!((queueing.left_over(), queueing.fixture.in_flight()), ((0, 0), vec![0, 0, 0]));
    assert_eq!(queueing.fixture.counted("routed"), 1);
}

#[test]
fn the_highest_priority_goes_first_and_one_in_a_millisecond() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let objectives = ["batch", "none", "urgent", "none", "urgent"];
    let requests = objectives.map(|objective| queueing.waiting_request(&of(objective)));
    queueing.read(&FREE);
    let mut order = Vec::new();
    for _ in 0..5 {
        queueing.pass(1);
        queueing.tick();
        order
            .extend((0..5).filter(|n| resumes(&requests[*n]) == 1 && !order.contains(n)).collect::<Vec<_>>());
    }
    assert_eq!(order, [2, 4, 1, 3, 0]);
}

#[test]
fn a_request_that_goes_on_counts_before_its_endpoint_is_chosen() {
    let mut queueing = Queueing::two_at_once();
    let [mut first, mut second] = [(); 2].map(|()| queueing.post(&[]).0);
    let mut waits = [(); 3].map(|()| queueing.waiting_request(&[]));
    queueing.end(&mut first);
    for _ in 0..5 {
        queueing.pass(1);
        queueing.tick();
    }
    assert_eq!(waits.each_ref().map(resumes), [1, 0, 0], "its worker has not gone on with it");
    assert_eq!(queueing.resumed(&mut waits[0]), Some(Flow::Continue));
    queueing.end(&mut second);
    queueing.pass(1);
    queueing.tick();
    // This request leaves before its worker continues with it.
    assert_eq!(waits.each_ref().map(resumes), [1, 1, 0]);
    queueing.end(&mut waits[1]);
    queueing.pass(1);
    queueing.tick();
    assert_eq!(waits.each_ref().map(resumes), [1, 1, 1]);
}

#[test]
fn a_client_that_leaves_is_never_resumed() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let mut leaving = queueing.waiting_request(&[]);
    let mut resumed = queueing.waiting_request(&[]);
    queueing.end(&mut leaving);
    assert_eq!(queueing.waiting(), 1);
    queueing.read(&FREE);
    queueing.pass(1);
    queueing.tick();
    assert_eq!((resumes(&leaving), resumes(&resumed)), (0, 1));
    // This request leaves after it was resumed, and before the proxy has continued with it.
    queueing.end(&mut resumed);
    assert_eq!(queueing.left_over(), (0, 0));
    assert_eq!(queueing.resumed(&mut resumed), None);
    assert_eq!(queueing.fixture.in_flight(), [0, 0, 0]);
}

#[test]
fn requests_without_a_body_do_not_wait() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let mut request = queueing.request(&[]);
    assert_eq!(request.head_only(&mut queueing.fixture), Flow::Continue);
    assert_eq!(queueing.waiting(), 0);
}

#[test]
fn when_flow_control_is_turned_off_all_that_wait_go_on() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let mut requests = [queueing.waiting_request(&[]), queueing.waiting_request(&of("batch"))];
    queueing.fixture.adopt(topology(&[1, 2, 3], fewest_waiting()), &SATURATED);
    queueing.tick();
    assert_eq!(queueing.resumed(&mut requests[0]), Some(Flow::Continue));
    assert_eq!(queueing.resumed(&mut requests[1]), Some(Flow::Continue));
    let (_, flow) = queueing.post(&[]);
    assert_eq!(flow, Flow::Continue);
    // And on again: what was in flight before is not counted twice.
    queueing.fixture.adopt(topology(&[1, 2, 3], queueing_policy(v1::FlowControl::default())), &SATURATED);
    let mut third = queueing.waiting_request(&[]);
    requests.iter_mut().chain([&mut third]).for_each(|request| queueing.end(request));
    assert_eq!((queueing.waiting(), queueing.left_over()), (0, (0, 0)));
}

#[test]
fn a_change_of_the_endpoints_keeps_those_that_wait() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let mut request = queueing.waiting_request(&[]);
    let policy = queueing_policy(v1::FlowControl::default());
    queueing.fixture.adopt(topology(&[3, 7], policy), &[9, 0]);
    queueing.pass(1);
    queueing.tick();
    assert_eq!(queueing.resumed(&mut request), Some(Flow::Continue));
    assert_eq!(request.destination(), Some(address(7).as_str()));
}

#[test]
fn behind_an_agent_that_is_gone_nothing_waits_for_more_than_10_seconds() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let request = queueing.waiting_request(&[]);
    queueing.pass(9_999);
    queueing.tick();
    assert_eq!(resumes(&request), 0);
    queueing.pass(2);
    queueing.tick();
    assert_eq!(resumes(&request), 1);
}

#[test]
fn a_failure_leaves_a_waiting_request_to_the_failure_mode() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let mut request = queueing.waiting_request(&[]);
    let error = ProxyError { call: "a hook", status: "it panicked".to_owned() };
    let flow = request.exchange.fail(&mut queueing.fixture.pool, &mut request.proxy, error);
    assert_eq!((flow, queueing.waiting()), (Flow::Continue, 0));
    assert_eq!(request.body(&mut queueing.fixture, b"", true), Flow::Continue);
    queueing.read(&FREE);
    queueing.tick();
    assert_eq!((resumes(&request), queueing.resumed(&mut request)), (0, None));
}

#[test]
fn a_proxy_that_cannot_resume_a_request_does_not_hold_it() {
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    let mut request = queueing.fixture.request(TEXT, &[]);
    request.proxy.refused = vec!["resume"];
    assert_eq!(request.head(&mut queueing.fixture), Flow::Hold);
    assert_eq!(request.body(&mut queueing.fixture, super::BODY.as_bytes(), true), Flow::Continue);
    assert_eq!((queueing.waiting(), queueing.left_over()), (0, (0, 0)));
}
