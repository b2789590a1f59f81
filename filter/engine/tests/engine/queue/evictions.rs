//! Requests in flight that make room.

use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::v1;

use super::{FREE, Queueing, SATURATED, of, resumes};

fn evicting() -> Queueing {
    let flow_control = v1::FlowControl { enable_eviction: true, ..v1::FlowControl::default() };
    Queueing::saturated(flow_control)
}

#[test]
fn a_sheddable_request_in_flight_is_answered_for_one_that_waits() {
    let mut queueing = evicting();
    queueing.read(&FREE);
    let (mut batch, flow) = queueing.post(&of("batch"));
    assert_eq!((flow, queueing.left_over()), (Flow::Continue, (1, 1)));
    let (normal, _) = queueing.post(&[]);
    assert_eq!(queueing.left_over(), (2, 1), "only sheddable ones may be evicted");
    queueing.read(&SATURATED);
    let mut urgent = queueing.waiting_request(&of("urgent"));
    assert_eq!((resumes(&batch), resumes(&normal)), (1, 0));
    assert_eq!(queueing.resumed(&mut batch), Some(Flow::Hold));
    let answer = batch.rejection();
    assert_eq!(answer.status, 429);
    assert!(answer.headers.contains(&("x-llm-d-request-dropped-reason".to_owned(), "evicted".to_owned())));
    assert!(answer.body.contains("request evicted by flow control"), "{}", answer.body);
    queueing.end(&mut batch);
    assert_eq!(queueing.fixture.in_flight().iter().sum::<u64>(), 1);
    queueing.end(&mut urgent);
    let store = queueing.fixture.pool.store();
    let report = store.with_queue(|queue| store.read(|ledger| queue.report(ledger, queueing.now)));
    assert_eq!(report.flatten().unwrap().evicted, 1);
}

#[test]
fn a_client_of_grpc_gets_the_error_of_an_eviction_as_one_of_grpc() {
    let mut queueing = evicting();
    queueing.read(&FREE);
    let headers = [of("batch")[0], ("content-type", "application/grpc")];
    let (mut batch, flow) = queueing.post(&headers);
    assert_eq!(flow, Flow::Continue);
    queueing.read(&SATURATED);
    let _urgent = queueing.waiting_request(&of("urgent"));
    assert_eq!(queueing.resumed(&mut batch), Some(Flow::Hold));
    assert!(batch.rejection().headers.contains(&("grpc-status".to_owned(), "8".to_owned())));
}

#[test]
fn a_request_that_ends_before_it_is_evicted_is_left_alone() {
    let mut queueing = evicting();
    queueing.read(&FREE);
    let (mut batch, _) = queueing.post(&of("batch"));
    queueing.read(&SATURATED);
    queueing.end(&mut batch);
    let _urgent = queueing.waiting_request(&of("urgent"));
    assert_eq!((resumes(&batch), queueing.resumed(&mut batch)), (0, None));
}

#[test]
fn a_sheddable_request_that_waited_may_be_evicted_too() {
    let mut queueing = evicting();
    let mut batch = queueing.waiting_request(&of("batch"));
    queueing.read(&FREE);
    queueing.pass(1);
    queueing.tick();
    assert_eq!(queueing.resumed(&mut batch), Some(Flow::Continue));
    queueing.read(&SATURATED);
    let _urgent = queueing.waiting_request(&of("urgent"));
    assert_eq!(resumes(&batch), 2);
    assert_eq!(queueing.resumed(&mut batch), Some(Flow::Hold));
    assert_eq!(batch.rejection().status, 429);
}
