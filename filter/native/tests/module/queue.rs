//! Requests that wait in the queue in front of the pool, and threads that resume them.

use std::time::Instant;

use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use crate::envoy::{Config, Next, Panic, Request, late_commits, live_schedulers};
use crate::pool::{DEADLINE, Pool, address, fewest_waiting, turn, with_policy};

const CHAT: &[u8] = br#"{"model": "n", "messages": [{"role": "user", "content": "hi"}]}"#;
const RENAMED: &[u8] = br#"{"model": "m", "messages": [{"role": "user", "content": "hi"}]}"#;

/// A pool of two servers that take one request each.
fn two_at_once(pool: &str, flow_control: v1::FlowControl) -> Pool {
    two_at_once_with(pool, flow_control, &json!({}))
}

/// The same with these fields of the configuration.
fn two_at_once_with(pool: &str, flow_control: v1::FlowControl, fields: &Value) -> Pool {
    let mut policy = fewest_waiting();
    let picker = policy.picker_config.as_mut().unwrap();
    let detector = "concurrency-detector".to_owned();
    picker.plugins.push(v1::Plugin {
        name: detector.clone(),
        r#type: detector.clone(),
        parameters: json!({"maxConcurrency": 1}).to_string(),
    });
    picker.saturation_detector = Some(detector);
    picker.flow_control = Some(flow_control);
    policy.objectives = vec![v1::Objective { name: "urgent".to_owned(), priority: 5 }];
    with_policy(pool, fields, policy, &[0, 0])
}

/// A request that is dispatched at once.
fn running(config: &Config) -> Request {
    let request = Request::chat(config, 0);
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(CHAT, true), Next::Continue);
    request
}

/// A request that waits.
fn waiting(config: &Config, worker: u32, headers: &[(&str, &str)]) -> Request {
    let mut all = vec![(":method", "POST"), (":path", "/v1/chat/completions")];
    all.extend(headers);
    let request = Request::new(config, worker, &all);
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(CHAT, true), Next::Wait);
    request
}

/// Waits until another thread has done something.
fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {DEADLINE:?}");
        std::thread::yield_now();
    }
}

/// Waits until the queue has resumed a request, and dispatches it.
fn goes_on(request: &Request) {
    wait_until("the request is resumed", || request.has_scheduled());
    assert_eq!(request.run_scheduled(), 1);
    assert!(request.destinations().is_some());
}

#[test]
fn a_request_that_waits_is_resumed_by_another_thread_when_one_has_ended() {
    let _turn = turn();
    let config = two_at_once("queue-1", v1::FlowControl::default());
    let (first, _second) = (running(&config), running(&config));
    let third = waiting(&config, 1, &[]);
    let urgent = waiting(&config, 2, &[("x-llm-d-inference-objective", "urgent")]);
    config.wait_for("endpoint_picker.queued", &[("pool", "queue-1")], 2);
    assert_eq!((third.has_scheduled(), urgent.has_scheduled()), (false, false));
    first.answer_headers(&address(1), &[(":status", "200")], true);
    goes_on(&urgent);
    assert!(!third.has_scheduled());
    drop(urgent);
    goes_on(&third);
    assert_eq!(third.run_scheduled(), 0);
    drop(third);
    config.wait_for("endpoint_picker.queued", &[("pool", "queue-1")], 0);
    config.wait_for("endpoint_picker.routed", &[("pool", "queue-1")], 4);
    assert_eq!((late_commits(), live_schedulers()), (0, 0));
}

#[test]
fn the_model_of_a_body_that_envoy_has_kept_is_replaced_when_the_request_goes_on() {
    let _turn = turn();
    let config = two_at_once("queue-2", v1::FlowControl::default());
    let running = [running(&config), running(&config)];
    let request = Request::chat(&config, 0);
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(&RENAMED[..20], false), Next::Hold);
    assert_eq!(request.body(&RENAMED[20..], true), Next::Wait);
    drop(running);
    goes_on(&request);
    assert_eq!(request.sent_body(), String::from_utf8_lossy(RENAMED).replace("\"m\"", "\"canary\""));
    assert_eq!(request.header("content-length"), Some((RENAMED.len() + 5).to_string()));
}

#[test]
fn a_request_that_waits_for_too_long_is_answered_on_its_worker() {
    let _turn = turn();
    let flow_control = v1::FlowControl { default_request_ttl_ms: Some(20), ..v1::FlowControl::default() };
    let config = two_at_once("queue-3", flow_control);
    let _running = [running(&config), running(&config)];
    for is_destroyed in [false, true] {
        let request = waiting(&config, 0, &[]);
        if is_destroyed {
            request.destroy_by_reply();
        }
        wait_until("the request is resumed", || request.has_scheduled());
        assert_eq!((request.reply(), request.run_scheduled()), (None, 0));
        let reply = request.reply().unwrap();
        assert_eq!(
            (reply.status, reply.headers["x-llm-d-request-dropped-reason"].as_str()),
            (429, "rejected-ttl-expired")
        );
    }
    config.wait_for("endpoint_picker.rejected", &[("pool", "queue-3"), ("status", "429")], 2);
    assert_eq!((late_commits(), live_schedulers()), (0, 0));
}

#[test]
fn a_full_queue_answers_at_the_head() {
    let _turn = turn();
    let flow_control = v1::FlowControl { max_requests: 1, ..v1::FlowControl::default() };
    let config = two_at_once("queue-4", flow_control);
    let _running = [running(&config), running(&config)];
    let _waits = waiting(&config, 0, &[]);
    let request = Request::chat(&config, 0);
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.reply().unwrap().headers["x-llm-d-request-dropped-reason"], "rejected-saturated");
    assert_eq!(request.body(CHAT, true), Next::Drop);
}

#[test]
fn a_panic_when_a_request_goes_on_leaves_it_to_the_failure_mode() {
    let _turn = turn();
    let config = two_at_once("queue-5", v1::FlowControl::default());
    let first = [running(&config), running(&config)];
    let request = waiting(&config, 0, &[]);
    request.set_panics(&[Panic::RequestBody]);
    drop(first);
    wait_until("the request is resumed", || request.has_scheduled());
    assert_eq!(request.run_scheduled(), 1);
    assert_eq!(request.destinations(), None);
    drop(request);
    config.wait_for("endpoint_picker.panics", &[("pool", "queue-5")], 1);
    config.wait_for("endpoint_picker.queued", &[("pool", "queue-5")], 0);
    // The request that failed is not in flight any more: two are dispatched at once.
    let _two = [running(&config), running(&config)];
}

#[test]
fn of_4000_requests_that_wait_1000_leave_and_nothing_of_them_is_left() {
    let _turn = turn();
    let config = two_at_once("queue-6", v1::FlowControl::default());
    let pool = [("pool", "queue-6")];
    let first = [running(&config), running(&config)];
    let mut requests: Vec<_> = (0..4_000).map(|n| waiting(&config, n % 4, &[])).collect();
    config.wait_for("endpoint_picker.queued", &pool, 4_000);
    assert_eq!(live_schedulers(), 4_000);
    // Every fourth leaves while others are dispatched.
    drop(first);
    let mut number = 0;
    requests.retain(|_| {
        number += 1;
        number % 4 != 0
    });
    wait_until("all others have gone on", || {
        requests.retain(|request| !request.has_scheduled() || request.run_scheduled() == 0);
        requests.is_empty()
    });
    config.wait_for("endpoint_picker.queued", &pool, 0);
    config.wait_for("endpoint_picker.in_flight", &pool, 0);
    assert_eq!((late_commits(), live_schedulers()), (0, 0));
    let routed = config.metric("endpoint_picker.routed", &pool).unwrap();
    assert!((3_002..=3_004).contains(&routed), "{routed}: two may have gone on before they left");
}

#[test]
fn the_body_of_a_stream_that_waits_counts_in_the_budget_of_all_streams() {
    let _turn = turn();
    let resumed =
        json!({"resumeStreams": {"cluster": "servers", "maxKeptBytes": 1024, "maxKeptBytesInAll": 1024}});
    let config = two_at_once_with("queue-budget", v1::FlowControl::default(), &resumed);
    let (first, second) = (running(&config), running(&config));
    let stream =
        json!({"model": "n", "stream": true, "messages": [{"role": "user", "content": "a".repeat(800)}]});
    let [third, fourth] = [0, 1].map(|worker| {
        let request = Request::chat(&config, worker);
        assert_eq!(request.headers(false), Next::Hold);
        assert_eq!(request.body(stream.to_string().as_bytes(), true), Next::Wait);
        request
    });
    first.answer_headers(&address(1), &[(":status", "200")], true);
    wait_until("the third is resumed", || third.has_scheduled());
    third.run_scheduled();
    assert_eq!(third.own().calls.len(), 1, "the picker sends it");
    second.answer_headers(&address(2), &[(":status", "200")], true);
    goes_on(&fourth);
    assert_eq!(fourth.own().calls.len(), 0, "the router sends it");
    let reason = [("pool", "queue-budget"), ("reason", "too_large")];
    config.wait_for("endpoint_picker.unresumable_streams", &reason, 1);
}
