//! One state for all workers, filters and configurations of a pool.

use serde_json::json;

use crate::envoy::{Next, Request, WORKERS};
use crate::pool::{address, ready, turn, with_agent};

/// Requests of each worker.
const EACH: u64 = 300;

const CHAT: &[u8] = br#"{"model": "n", "messages": [{"role": "user", "content": "hi"}]}"#;

#[test]
fn workers_decide_at_the_same_time_and_every_request_is_counted_once() {
    let _turn = turn();
    let config = ready("sharing-1", &json!({}));
    std::thread::scope(|scope| {
        for worker in 0..WORKERS {
            let config = &config;
            scope.spawn(move || {
                for number in 0..EACH {
                    let request = Request::chat(config, worker);
                    assert_eq!(request.headers(false), Next::Hold);
                    assert_eq!(request.body(CHAT, true), Next::Continue);
                    let served = request.destinations().unwrap();
                    if number % 3 > 0 {
                        request.answer_headers(&served, &[(":status", "200")], number % 3 == 1);
                    }
                }
            });
        }
    });
    let pool = ("pool", "sharing-1");
    config.wait_for("endpoint_picker.routed", &[pool], EACH * u64::from(WORKERS));
    config.wait_for("endpoint_picker.decision_us", &[pool], EACH * u64::from(WORKERS));
    config.wait_for("endpoint_picker.in_flight", &[pool], 0);
}

#[test]
fn a_second_configuration_has_the_snapshot_of_the_first_and_keeps_it() {
    let _turn = turn();
    let first = ready("sharing-2", &json!({}));
    let second = with_agent("sharing-2", &json!({}), &first.agent);
    for config in [&first, &second] {
        let request = Request::chat(config, 0);
        request.headers(false);
        assert_eq!(request.body(CHAT, true), Next::Continue);
        assert_eq!(request.destinations(), Some(address(2)));
    }
    drop(first);
    let request = Request::chat(&second, 0);
    request.headers(false);
    assert_eq!(request.body(CHAT, true), Next::Continue);
    assert_eq!(request.destinations(), Some(address(2)));
    let polls = second.agent.polls();
    second.run_until("another poll", |_| (second.agent.polls() > polls).then_some(()));
}

#[test]
fn reports_have_the_counts_of_all_workers() {
    let _turn = turn();
    let config = ready("sharing-3", &json!({}));
    for worker in 0..WORKERS {
        let request = Request::chat(&config, worker);
        request.headers(false);
        assert_eq!(request.body(CHAT, true), Next::Continue);
    }
    config.wait_for("endpoint_picker.routed", &[("pool", "sharing-3")], u64::from(WORKERS));
    config.run_until("report of all requests", |_| {
        let reports = config.agent.take_reports();
        reports.iter().any(|report| report.routed == u64::from(WORKERS)).then_some(())
    });
}
