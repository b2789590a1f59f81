//! The queue in the report to the agent.

use core::time::Duration;

use endpoint_picker_engine::agent::Reporter;
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::report::{Band, BandOutcome, BandTenant, DetectorSaturation, FlowControl, Report};
use endpoint_picker_wire::{Message, v1};
use serde_json::json;

use super::{FREE, Queueing, SATURATED, of, queueing_policy};
use crate::fixture::{Fixture, START, topology};

fn report(fixture: &Fixture) -> Report {
    let mut reporter = Reporter::new("p", "envoy-1".to_owned(), Form::Wasm, 7);
    let totals = || fixture.pool.totals();
    let request = reporter.next_report(fixture.pool.store(), totals, START).unwrap();
    Report::decode(&request.body.unwrap()[..]).unwrap()
}

#[test]
fn the_report_has_what_waits_and_how_waits_ended() {
    let mut queueing =
        Queueing::saturated(v1::FlowControl { max_requests: 50, ..v1::FlowControl::default() });
    let _urgent = queueing.waiting_request(&of("urgent"));
    let _waits = [(); 2].map(|()| queueing.waiting_request(&[]));
    let mut leaves = queueing.waiting_request(&of("batch"));
    queueing.pass(3);
    queueing.end(&mut leaves);
    queueing.read(&FREE);
    queueing.tick();
    let queue = report(&queueing.fixture).flow_control.unwrap();
    let tenant = |fairness_id: &str, requests, outcomes| BandTenant {
        fairness_id: fairness_id.to_owned(),
        requests,
        bytes: requests * 30,
        outcomes,
    };
    // All requests are of one tenant; the others are there once a wait has ended.
    let band = |priority, requests, outcomes: Vec<BandOutcome>| Band {
        priority,
        requests,
        bytes: requests * 30,
        max_requests: 5_000,
        max_bytes: 1_000_000_000,
        tenants: [tenant("default-flow", requests, outcomes.clone())]
            .into_iter()
            .chain((!outcomes.is_empty()).then(|| tenant("other", 0, vec![])))
            .collect(),
        outcomes,
    };
    let outcome = |outcome: &str, waits, wait_seconds| {
        let longest_wait_seconds = Some(wait_seconds);
        vec![BandOutcome { outcome: outcome.to_owned(), waits, wait_seconds, longest_wait_seconds }]
    };
    let expected = FlowControl {
        prefill_saturation: None,
        decode_saturation: Some(queue.saturation),
        saturation: queue.saturation,
        max_requests: 50,
        max_bytes: 0,
        in_flight: 1,
        evicted: 0,
        bands: vec![
            band(5, 0, outcome("Dispatched", vec![0, 0, 0, 1], 0.003)),
            band(0, 2, vec![]),
            // The end of a stream counts as the last time that the queue has.
            band(-1, 0, outcome("EvictedContextCancelled", vec![1], 0.0)),
        ],
        detectors: vec![],
    };
    assert_eq!(queue, expected);
    assert!((queue.saturation - 2.0 / 15.0).abs() < 1e-9, "{}", queue.saturation);
}

#[test]
fn the_report_has_the_saturation_by_each_detector_that_is_combined() {
    let mut policy = queueing_policy(v1::FlowControl::default());
    let picker = policy.picker_config.as_mut().unwrap();
    for (name, kind, parameters) in [
        ("load", "concurrency-detector", json!({"maxConcurrency": 10})),
        ("queue", "utilization-detector", json!({})),
        ("both", "max-saturation-detector", json!({"detectors": ["load", "queue"]})),
    ] {
        let (name, r#type, parameters) = (name.to_owned(), kind.to_owned(), parameters.to_string());
        picker.plugins.push(v1::Plugin { name, r#type, parameters });
    }
    picker.saturation_detector = Some("both".to_owned());
    let mut queueing = Queueing::saturated(v1::FlowControl::default());
    queueing.fixture.adopt(topology(&[1, 2, 3], policy), &SATURATED);
    let queue = report(&queueing.fixture).flow_control.unwrap();
    let of = |detector: &str, decode| DetectorSaturation {
        detector: detector.to_owned(),
        prefill: None,
        decode: Some(decode),
    };
    assert_eq!(queue.detectors, [of("load", 0.0), of("queue", queue.saturation)]);
    assert!(queue.saturation >= 1.0, "{}", queue.saturation);
}

#[test]
fn the_report_has_the_tenants_of_each_band() {
    let flow_control = v1::FlowControl { max_requests: 3, ..v1::FlowControl::default() };
    let mut queueing = Queueing::saturated(flow_control);
    let tenant = |id: &'static str| [("x-llm-d-inference-fairness-id", id)];
    let _waits = ["b", "a", "b"].map(|id| queueing.waiting_request(&tenant(id)));
    let mut refused = queueing.request(&tenant("a"));
    refused.head(&mut queueing.fixture);
    assert_eq!(refused.rejection().status, 429);
    let queue = report(&queueing.fixture).flow_control.unwrap();
    let band = queue.bands.into_iter().find(|band| band.priority == 0).unwrap();
    let mut tenants: Vec<_> = band
        .tenants
        .into_iter()
        .map(|it| {
            (it.fairness_id, it.requests, it.bytes, it.outcomes.into_iter().map(|it| it.outcome).collect())
        })
        .collect();
    tenants.sort();
    let tenant = |id: &str, requests, outcomes: Vec<&str>| {
        let outcomes: Vec<_> = outcomes.into_iter().map(str::to_owned).collect();
        (id.to_owned(), requests, requests * 30, outcomes)
    };
    assert_eq!(
        tenants,
        [tenant("a", 1, vec!["RejectedCapacity"]), tenant("b", 2, vec![]), tenant("other", 0, vec![])]
    );
}

#[test]
fn a_request_without_a_fairness_id_is_a_tenant_by_its_agent_session() {
    let flow_control = v1::FlowControl { max_requests: 1, ..v1::FlowControl::default() };
    let mut queueing = Queueing::saturated(flow_control);
    let _waits = queueing.waiting_request(&[("session-id", "s")]);
    let mut refused = queueing.request(&[("x-claude-code-session-id", "c")]);
    refused.head(&mut queueing.fixture);
    assert_eq!(refused.rejection().status, 429);
    let queue = report(&queueing.fixture).flow_control.unwrap();
    let bands = queue.bands.into_iter().flat_map(|band| band.tenants);
    let mut ids: Vec<_> = bands.map(|tenant| tenant.fairness_id).filter(|id| id != "other").collect();
    ids.sort();
    assert_eq!(ids, ["c", "s"]);
}

#[test]
fn without_flow_control_there_is_no_queue_in_the_report() {
    assert_eq!(report(&Fixture::new()).flow_control, None);
    let queueing = Queueing::saturated(v1::FlowControl::default());
    queueing.fixture.pool.store().with_current_queue(START + Duration::from_millis(1), |queue| {
        assert_eq!(queue.wake_at(), None);
    });
    assert!(report(&queueing.fixture).flow_control.is_some());
}
