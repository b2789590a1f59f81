//! One state for all workers, filters and configurations of a pool.

use serde_json::json;

use crate::envoy::{Next, Request, WORKERS};
use crate::pool::{address, ready, turn, unready};

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
    let second = unready("sharing-2", &json!({}));
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
    // Now it polls.
    let poll = second.callout("/v1/pools/sharing-2/snapshot");
    second.answer(&poll, None, b"");
    second.wait_for("endpoint_picker.snapshot_failures", &[("pool", "sharing-2")], 1);
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
    let routed = |body: &[u8]| {
        let report: endpoint_picker_wire::report::Report =
            endpoint_picker_wire::Message::decode(body).unwrap();
        report.routed
    };
    config.run_until("report of all requests", |config| {
        let report = config.callout("/v1/pools/sharing-3/report");
        config.answer(&report, Some(204), b"");
        assert_eq!(report.headers[":method"], "POST");
        (routed(&report.body) == u64::from(WORKERS)).then_some(())
    });
}
