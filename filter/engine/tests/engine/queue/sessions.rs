//! Sessions that wait for room in the caches.

use std::sync::Arc;

use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_engine::proxy::headers::EXPLANATION;
use endpoint_picker_wire::v1;
use serde_json::json;

use super::{Queueing, SECRET, queueing_policy, resumes};
use crate::fixture::{Request, address, snapshot, topology};

/// Tokens of a prompt, at four bytes each. The caches have room for one such session each, because sixty
/// percent of them are for sessions.
const TOKENS: usize = 8_000;
const CACHE: u64 = 20_000;

fn plugin(name: &str) -> v1::Plugin {
    v1::Plugin { r#type: name.to_owned(), name: name.to_owned(), parameters: "{}".to_owned() }
}

/// Two servers with caches of this many tokens, and sessions that wait for room there.
fn limited(cache_tokens: Option<u64>) -> Queueing {
    let usage_limit_policy = "session-admission-policy".to_owned();
    let flow_control =
        v1::FlowControl { usage_limit_policy, default_request_ttl_ms: Some(0), ..v1::FlowControl::default() };
    let mut policy = queueing_policy(flow_control);
    let picker = policy.picker_config.as_mut().unwrap();
    picker.plugins.extend(["approx-prefix-cache-producer", "session-admission-policy"].map(plugin));
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    queueing.fixture.adopt(topology(&[1, 2], policy), &[0, 0]);
    read(&mut queueing, cache_tokens);
    queueing
}

fn read(queueing: &mut Queueing, cache_tokens: Option<u64>) {
    let mut snapshot = snapshot(&[0, 0]);
    snapshot.readings.iter_mut().for_each(|reading| {
        (reading.cache_tokens, reading.num_blocks) = (cache_tokens, None);
    });
    let topology = Arc::clone(queueing.fixture.pool.view().topology());
    queueing.fixture.pool.adopt(Arc::new(PoolView::new(topology, snapshot, queueing.now)));
}

/// A turn of a session: its prompts begin alike, and no other session's do.
fn turn(queueing: &mut Queueing, session: &str, tokens: usize) -> (Request, Flow) {
    turn_of(queueing, &[("x-session-id", session)], session, tokens)
}

/// A turn with these headers, whose prompt begins with this text.
fn turn_of(queueing: &mut Queueing, headers: &[(&str, &str)], text: &str, tokens: usize) -> (Request, Flow) {
    let body = json!({"model": "m", "prompt": format!("{text:.<4}").repeat(tokens)});
    let mut request = queueing.request(&[headers, &[("x-why", SECRET)]].concat());
    assert_eq!(request.head(&mut queueing.fixture), Flow::Hold);
    let flow = request.body(&mut queueing.fixture, body.to_string().as_bytes(), true);
    (request, flow)
}

#[test]
fn sessions_fill_the_caches_and_the_next_one_waits_until_one_is_idle() {
    let mut queueing = limited(Some(CACHE));
    let destinations = ["a", "b"].map(|session| {
        let (mut request, flow) = turn(&mut queueing, session, TOKENS);
        assert_eq!(flow, Flow::Continue);
        queueing.end(&mut request);
        request.destination().unwrap().to_owned()
    });
    let mut sorted = destinations.clone();
    sorted.sort();
    assert_eq!(sorted, [address(1), address(2)], "each where there is room");

    let (mut new, flow) = turn(&mut queueing, "c", TOKENS);
    assert_eq!((flow, queueing.waiting()), (Flow::Wait, 1));
    queueing.pass(120_000);
    read(&mut queueing, Some(CACHE));
    let (mut request, flow) = turn(&mut queueing, "a", TOKENS + 40);
    assert_eq!(flow, Flow::Continue, "its session is in work");
    assert_eq!(request.destination(), Some(destinations[0].as_str()));
    queueing.end(&mut request);
    assert_eq!(turn(&mut queueing, "short", 400).1, Flow::Continue);
    queueing.tick();
    assert_eq!(resumes(&new), 0);

    queueing.pass(120_001);
    read(&mut queueing, Some(CACHE));
    queueing.tick();
    assert_eq!(resumes(&new), 1);
    assert_eq!(queueing.resumed(&mut new), Some(Flow::Continue));
    assert_eq!(new.destination(), Some(destinations[1].as_str()), "the other was idle for four minutes");
}

#[test]
fn sub_agents_are_in_work_with_their_agent_and_another_user_is_not_by_its_name() {
    let mut queueing = limited(Some(CACHE));
    for session in ["a", "b"] {
        assert_eq!(turn(&mut queueing, session, TOKENS).1, Flow::Continue);
    }
    let sub_agent = [("x-session-id", "s"), ("x-parent-session-id", "a")];
    assert_eq!(turn_of(&mut queueing, &sub_agent, "s", TOKENS).1, Flow::Continue);
    let other_user = [("x-session-id", "a"), ("x-llm-d-inference-fairness-id", "other")];
    let (_waiting, flow) = turn_of(&mut queueing, &other_user, "o", TOKENS);
    assert_eq!(flow, Flow::Wait);
}

#[test]
fn an_explanation_has_the_room_of_each_server() {
    let mut queueing = limited(Some(CACHE));
    assert_eq!(turn(&mut queueing, "a", TOKENS).1, Flow::Continue);
    let (mut request, _) = turn(&mut queueing, "b", TOKENS);
    request.answer(&mut queueing.fixture, 1, &[(":status", "200")]);
    let explained = request.proxy.response_header(EXPLANATION).unwrap_or_default();
    for room in ["4000 of 12000", "12000 of 12000"] {
        let text = format!("session-admission-policy: {room} tokens free");
        assert!(explained.contains(&text), "{explained}");
    }
}

#[test]
fn where_no_server_reports_the_size_of_its_cache_no_session_waits() {
    let mut queueing = limited(None);
    for session in ["a", "b", "c", "d"] {
        assert_eq!(turn(&mut queueing, session, TOKENS).1, Flow::Continue);
    }
}
