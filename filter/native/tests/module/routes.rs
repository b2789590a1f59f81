//! The configuration of the route that a request has when it is decided.

use serde_json::{Value, json};

use crate::envoy::{Config, Next, Request, Route};
use crate::pool::{Agent, address, fewest_waiting, ready, snapshot, turn};

const DESTINATION: &str = "x-gateway-destination-endpoint";
const CHAT: &[u8] = br#"{"model": "n", "messages": [{"role": "user", "content": "hi"}]}"#;

/// A filter configuration that is off.
fn off() -> Config {
    Config::new(&json!({"pool": null})).unwrap()
}

/// A route to a pool of its own, whose agent is the test.
struct PoolRoute {
    route: Route,
    _agent: Agent,
}

/// A route to a pool with this many waiting requests at its endpoints.
fn route_to(pool: &str, fields: &Value, waiting: &[u64]) -> PoolRoute {
    let agent = Agent::start();
    agent.publish(snapshot(pool, fewest_waiting(), waiting));
    let mut config = json!({"pool": pool, "agent": agent.access()});
    config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let route = Route::new(&config).unwrap();
    agent.wait_until_taken();
    PoolRoute { route, _agent: agent }
}

/// A chat over a route.
fn chat_over(config: &Config, route: Option<&PoolRoute>) -> Request {
    let request = Request::chat(config, 0);
    request.set_route(route.map(|route| &route.route));
    request
}

fn threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
    let names = names.filter_map(|path| std::fs::read_to_string(path).ok());
    names.filter(|name| name.starts_with("epp-")).count()
}

#[test]
fn a_configuration_that_is_off_starts_no_thread_and_touches_no_request() {
    let _turn = turn();
    let config = off();
    assert_eq!(threads(), 0);
    let request = Request::chat(&config, 0);
    request.set_header(DESTINATION, "10.9.9.9:1");
    assert_eq!(request.headers(false), Next::Continue);
    assert_eq!(request.body(CHAT, false), Next::Continue);
    assert_eq!(request.trailers(), Next::Continue);
    assert_eq!(request.header(DESTINATION).as_deref(), Some("10.9.9.9:1"));
    assert_eq!((request.destinations(), request.sent_body().as_bytes()), (None, CHAT));
    request.answer_headers(&address(1), &[(":status", "200"), (DESTINATION, "kept")], false);
    assert_eq!(request.answer_header(DESTINATION).as_deref(), Some("kept"));
    assert_eq!(request.answer_body(b"hello", false), "hello");
    request.answer_trailers();
    assert_eq!(config.written(), Vec::<String>::new());
}

#[test]
fn a_route_turns_the_picker_on_and_its_requests_are_counted() {
    let _turn = turn();
    let config = off();
    let route = route_to("routes-1", &json!({}), &[10, 0, 20]);
    let request = chat_over(&config, Some(&route));
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(CHAT, true), Next::Continue);
    assert_eq!(request.destinations(), Some(address(2)));
    let pool = ("pool", "routes-1");
    config.wait_for("endpoint_picker.routed", &[pool], 1);
    config.wait_for("endpoint_picker.in_flight", &[pool], 1);
    request.answer_headers(&address(2), &[(":status", "200")], true);
    config.wait_for("endpoint_picker.in_flight", &[pool], 0);

    let other = chat_over(&config, None);
    assert_eq!(other.headers(false), Next::Continue);
    assert_eq!(other.destinations(), None);
}

#[test]
fn a_route_takes_another_pool_or_none() {
    let _turn = turn();
    let config = ready("routes-2", &json!({}));
    // No agent listens there, so the pool has no snapshot, and its failure mode decides.
    let route = json!({"pool": "of-route", "agent": {"addresses": ["http://127.0.0.1:9"]}, "failureMode": "FailClose"});
    let route = Route::new(&route).unwrap();
    let request = Request::chat(&config, 0);
    request.set_route(Some(&route));
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(CHAT, true), Next::Drop);
    assert_eq!(request.reply().unwrap().status, 503);
    config.wait_for("endpoint_picker.rejected", &[("pool", "of-route"), ("status", "503")], 1);

    let route_without = Route::new(&json!({"pool": null})).unwrap();
    let request = Request::chat(&config, 0);
    request.set_route(Some(&route_without));
    assert_eq!(request.headers(false), Next::Continue);
    let request = Request::chat(&config, 0);
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(CHAT, true), Next::Continue);
    assert_eq!(request.destinations(), Some(address(2)));
}

#[test]
fn a_route_that_changes_while_the_body_is_read_brings_the_pool_of_the_last_route() {
    let _turn = turn();
    let config = off();
    let first = route_to("routes-3", &json!({}), &[10, 0, 20]);
    let second = route_to("routes-4", &json!({"limits": {"maxHeldBytes": 64 << 20}}), &[0, 10, 20]);
    let request = chat_over(&config, Some(&first));
    request.replace_header("content-length", &[]);
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(&CHAT[..20], false), Next::Hold);
    request.set_route(Some(&second.route));
    assert_eq!(request.body(&CHAT[20..], true), Next::Continue);
    assert_eq!(request.destinations(), Some(address(1)));
    assert!(request.buffer_limit() > 64 << 20, "the limit of the last route's pool");
    // The decision stays when the route changes after it.
    request.set_route(None);
    request.answer_headers(&address(1), &[(":status", "200")], true);
    let second_pool = ("pool", "routes-4");
    config.wait_for("endpoint_picker.routed", &[second_pool], 1);
    config.wait_for("endpoint_picker.in_flight", &[second_pool], 0);
    config.wait_for("endpoint_picker.routed", &[("pool", "routes-3")], 0);

    let request = chat_over(&config, Some(&first));
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(CHAT, false), Next::Hold);
    request.set_route(None);
    assert_eq!(request.trailers(), Next::Continue, "the last route has no picker");
    assert_eq!(request.destinations(), None);
    assert_eq!(request.sent_body().as_bytes(), CHAT);
}

#[test]
fn a_route_has_its_requests_marked_where_the_process_has_a_second_filter() {
    let _turn = turn();
    let config = off();
    let route = route_to("routes-7", &json!({}), &[10, 0, 20]);
    let marks = || {
        let request = chat_over(&config, Some(&route));
        assert_eq!((request.headers(false), request.body(CHAT, true)), (Next::Hold, Next::Continue));
        request.filter_state()
    };
    assert_eq!(marks(), 0);
    let second = off();
    assert_eq!(marks(), 1);
    drop(second);
    assert_eq!(marks(), 0);
}

#[test]
fn a_changed_route_to_a_pool_that_decides_without_the_body_decides_at_once() {
    let _turn = turn();
    let config = off();
    let first = route_to("routes-5", &json!({}), &[10, 0, 20]);
    for (failure_mode, next) in [("FailOpen", Next::Continue), ("FailClose", Next::Drop)] {
        // No agent listens there, so the pool has no snapshot, and its failure mode decides.
        let agent = json!({"addresses": ["http://127.0.0.1:9"]});
        let second = json!({"pool": "routes-6", "agent": agent, "failureMode": failure_mode});
        let second = Route::new(&second).unwrap();
        let request = chat_over(&config, Some(&first));
        assert_eq!(request.headers(false), Next::Hold);
        request.set_route(Some(&second));
        assert_eq!(request.body(&CHAT[..20], false), next);
        assert_eq!(request.destinations(), None);
        assert_eq!(request.reply().map(|reply| reply.status), (next == Next::Drop).then_some(503));
    }
}
