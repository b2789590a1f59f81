//! Data that plugins learn from the time to the first chunk of a response.

use core::time::Duration;
use std::collections::BTreeSet;

use endpoint_picker::plugin::Instance;
use endpoint_picker::state::latency::{LatencyState, Slopes};
use endpoint_picker_engine::proxy::headers::EXPLANATION;
use endpoint_picker_engine::testing::{picker_config, plugin};
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::statistics::MetricKind;
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, Request, START, TEXT, topology};

const STREAM: &[(&str, &str)] = &[(":status", "200"), ("content-type", "text/event-stream")];
const WHOLE: &[(&str, &str)] = &[(":status", "200"), ("content-type", "application/json")];

/// Has a client see explanations.
const SECRET: &str = "0123456789abcdef";

/// Milliseconds per token before the first response.
const PRIOR: f64 = 0.125;

fn fixture() -> Fixture {
    let picker_config = Some(picker_config(&[("expected-latency-scorer", None)]));
    Fixture::with_policy(&json!({}), v1::Policy { picker_config, ..v1::Policy::default() })
}

fn latency<T>(fixture: &Fixture, read: impl FnOnce(&LatencyState) -> T) -> T {
    let view = fixture.pool.view();
    let key = view.topology().pipeline.plugins().iter().map(Instance::key);
    let key: Vec<u64> = key.collect();
    fixture
        .pool
        .store()
        .read(|ledger| read(key.iter().find_map(|&key| ledger.states().of::<LatencyState>(key)).unwrap()))
}

pub(crate) fn slopes(fixture: &Fixture) -> Slopes {
    latency(fixture, |state| state.slopes(PRIOR))
}

/// A prompt of 1000 tokens that no server was sent, and the number of the endpoint that gets it.
fn send(fixture: &mut Fixture, number: usize) -> (Request, u8) {
    send_to("m", fixture, number)
}

/// The same for a model.
fn send_to(model: &str, fixture: &mut Fixture, number: usize) -> (Request, u8) {
    let prompt = format!("{number:05}").repeat(800);
    let request = fixture.post(TEXT, &[], &json!({"model": model, "prompt": prompt}).to_string());
    let endpoint = request.destination().unwrap().as_bytes()[7] - b'0';
    (request, endpoint)
}

/// Has a server respond after this time with two chunks, the second one 500 ms later.
fn respond(fixture: &mut Fixture, (mut request, from): (Request, u8), head: &[(&str, &str)], ms: u64) {
    request.answer(fixture, from, head);
    request.proxy.now.set(START + Duration::from_millis(ms));
    request.chunk(fixture, "data: a\n\n", false);
    request.proxy.now.set(START + Duration::from_millis(ms + 500));
    request.chunk(fixture, "data: b\n\n", true);
}

#[test]
fn streams_teach_how_fast_servers_read_and_how_long_responses_last() {
    let mut fixture = fixture();
    let before = slopes(&fixture);
    assert_eq!((before.per_token, before.intercept), (PRIOR, 0.0));
    for number in 0..200 {
        let sent = send(&mut fixture, number);
        respond(&mut fixture, sent, STREAM, 40);
    }
    assert!(slopes(&fixture).predict(1_000.0, 0.0) < 60.0, "{:?}", slopes(&fixture));
    assert!(latency(&fixture, LatencyState::rest) < 700.0);
    assert_eq!(latency(&fixture, |state| [0, 1, 2].map(|endpoint| state.at(endpoint).context())), [0; 3]);
}

#[test]
fn the_share_of_the_expected_time_is_recorded() {
    let mut fixture = fixture();
    let sent = send(&mut fixture, 0);
    respond(&mut fixture, sent, STREAM, 250);
    let histograms = fixture.sink.values(MetricKind::Histogram);
    // 16 blocks of 64 tokens, 1/8 ms for each token.
    assert_eq!(histograms["first_chunk_of_expected_percent"], [250 * 100 / 128]);
}

#[test]
fn other_responses_teach_nothing() {
    let mut fixture = fixture();
    let before = slopes(&fixture);
    let sent = send(&mut fixture, 0);
    respond(&mut fixture, sent, WHOLE, 40);
    let sent = send(&mut fixture, 1);
    respond(&mut fixture, sent, &[(":status", "500"), ("content-type", "text/event-stream")], 1);
    let (request, from) = send(&mut fixture, 2);
    respond(&mut fixture, (request, from % 3 + 1), STREAM, 40);
    let (mut request, _) = send(&mut fixture, 3);
    request.exchange.end(&mut fixture.pool);
    let (mut request, from) = send(&mut fixture, 4);
    request.answer(&mut fixture, from, STREAM);
    request.exchange.end(&mut fixture.pool);
    assert_eq!(slopes(&fixture), before);
    assert_eq!(latency(&fixture, |state| [0, 1, 2].map(|endpoint| state.at(endpoint).context())), [0; 3]);
}

#[test]
fn without_readings_streams_show_which_server_has_loaded_an_adapter() {
    let mut fixture = fixture();
    let policy = v1::Policy {
        picker_config: Some(picker_config(&[("expected-latency-scorer", None)])),
        ..v1::Policy::default()
    };
    // Their readings do not show adapters.
    fixture.adopt(topology(&[1, 2, 3], policy), &[0, 0, 0]);
    let mut prompts = 0..;
    let mut send_new = |fixture: &mut Fixture, model| send_to(model, fixture, prompts.next().unwrap());
    for model in ["sql", "legal"].into_iter().cycle().take(100) {
        let sent = send_new(&mut fixture, model);
        respond(&mut fixture, sent, STREAM, 40);
    }
    let (sql, legal) = (send_new(&mut fixture, "sql"), send_new(&mut fixture, "legal"));
    respond(&mut fixture, sql, STREAM, 40);
    respond(&mut fixture, legal, STREAM, 40);
    // Both are loaded somewhere, and the servers are idle.
    let mut servers_of = |model| -> BTreeSet<u8> {
        let sent = (0..20).map(|_| {
            let sent = send_new(&mut fixture, model);
            let server = sent.1;
            respond(&mut fixture, sent, STREAM, 40);
            server
        });
        sent.collect()
    };
    let all = ["sql", "legal", "sql", "legal"].map(&mut servers_of);
    assert!(all[0].is_disjoint(&all[1]), "{all:?}");
    assert_eq!(all[..2], all[2..], "each model stays where it is loaded");
}

#[test]
fn a_stream_that_breaks_off_does_not_teach_how_long_responses_last() {
    let mut fixture = fixture();
    let before = latency(&fixture, LatencyState::rest);
    let (mut request, from) = send(&mut fixture, 0);
    request.answer(&mut fixture, from, STREAM);
    request.chunk(&mut fixture, "a", false);
    request.exchange.end(&mut fixture.pool);
    assert!((latency(&fixture, LatencyState::rest) - before).abs() < 1e-9);
}

#[test]
fn an_endpoint_that_computes_the_prompt_for_another_is_done_with_the_first_output() {
    let mut config = picker_config(&[("expected-latency-scorer", None)]);
    let rate = config.profiles.remove(0).plugins;
    config.plugins.extend([
        plugin("decode-filter", "{}"),
        plugin("prefill-filter", "{}"),
        plugin("always-disagg-pd-decider", "{}"),
        plugin("disagg-profile-handler", r#"{"deciders": {"prefill": "always-disagg-pd-decider"}}"#),
    ]);
    config.profiles = ["decode", "prefill"]
        .map(|name| {
            let filter = v1::PluginRef { name: format!("{name}-filter"), weight: None };
            let plugins = rate.iter().cloned().chain([filter]).collect();
            v1::Profile { name: name.to_owned(), plugins }
        })
        .to_vec();
    let policy = v1::Policy { picker_config: Some(config), ..v1::Policy::default() };
    let mut pool = topology(&[1, 2], policy);
    for (endpoint, role) in pool.endpoints.iter_mut().zip(["decode", "prefill"]) {
        endpoint.labels = vec![v1::Label { key: "llm-d.ai/role".to_owned(), value: role.to_owned() }];
    }
    let mut fixture = Fixture::without_snapshot(&json!({}));
    fixture.adopt(pool, &[0, 0]);
    let contexts = |fixture: &Fixture| latency(fixture, |state| [0, 1].map(|at| state.at(at).context()));

    let (mut request, from) = send(&mut fixture, 0);
    assert_eq!(request.proxy.request_header("x-prefiller-host-port"), Some("10.0.0.2:8000"));
    assert_eq!((from, contexts(&fixture)), (1, [1_000; 2]));
    request.answer(&mut fixture, from, STREAM);
    request.chunk(&mut fixture, "data: a\n\n", false);
    assert_eq!(contexts(&fixture), [1_000, 0]);
    request.chunk(&mut fixture, "data: b\n\n", true);
    assert_eq!(contexts(&fixture), [0; 2]);
}

#[test]
fn the_terms_of_a_score_are_explained() {
    let picker_config = Some(picker_config(&[("expected-latency-scorer", None)]));
    let policy = v1::Policy { picker_config, ..v1::Policy::default() };
    let explain = json!({"explain": {"header": "x-why", "secret": SECRET}});
    let mut fixture = Fixture::with_policy(&explain, policy);
    let body = json!({"model": "m", "prompt": "a".repeat(256)}).to_string();
    let mut request = fixture.post(TEXT, &[("x-why", SECRET)], &body);
    request.answer(&mut fixture, 1, STREAM);
    let text = request.proxy.response_header(EXPLANATION).unwrap();
    assert!(
        text.contains("ms: p 0 U 64 n 0.0 L 0 E 0 W 0 q 0.000 r 1.00 c 0.1250 b 0.100 M unknown"),
        "{text}"
    );
}
