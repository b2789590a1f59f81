//! Data that flow control takes from a pipeline: the saturation of the whole pool, and the admission.

use core::time::Duration;

use endpoint_picker::flow_control::{DetectorSaturation, StageSaturation};
use endpoint_picker::pool::load::Load;
use endpoint_picker::request::Request;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, NOW, assert_near, destinations, fresh, pod};

fn queueing(detector: &Value) -> Value {
    json!({
        "plugins": [{"type": "queue-scorer"}, detector],
        "saturationDetector": detector["type"],
        "flowControl": true,
    })
}

fn by_utilization() -> Value {
    queueing(&json!({"type": "utilization-detector"}))
}

/// The saturation when the readings have this age.
fn saturation(fixture: &Fixture, age: Duration) -> StageSaturation {
    let pool = fixture.pool();
    let input = fixture.input(&pool);
    let stages = fixture.pipeline.endpoints_by_stage(&input);
    fixture.pipeline.saturation(&stages, &input, 0, NOW + age)
}

#[test]
fn a_sheddable_request_that_was_let_go_on_is_not_shed() {
    let mut fixture = Fixture::new(&by_utilization(), vec![pod(50, 1.0, &[])]);
    let sheddable = Request { priority: -1, ..Request::default() };
    assert_eq!(destinations(&fixture.decide(&sheddable, 1)), [0]);
}

#[test]
fn the_saturation_is_of_all_ready_endpoints() {
    let mut fixture = Fixture::new(&by_utilization(), vec![pod(10, 0.0, &[]), pod(5, 0.0, &[]), fresh()]);
    assert_near(&[saturation(&fixture, Duration::ZERO).effective], &[1.0]);
    fixture.readings[2].ready = false;
    assert_near(&[saturation(&fixture, Duration::ZERO).effective], &[1.5]);
}

#[test]
fn the_more_saturated_stage_counts() {
    let roles = ["prefill", "decode", "encode"];
    let readings = vec![pod(1, 0.0, &[]), pod(2, 0.0, &[]), pod(50, 0.0, &[])];
    let fixture = Fixture::new(&by_utilization(), readings).label("llm-d.ai/role", &roles);
    let expected = StageSaturation { prefill: Some(0.2), decode: Some(0.4), effective: 0.4 };
    assert_eq!(saturation(&fixture, Duration::ZERO), expected);
}

#[test]
fn the_saturation_is_known_by_each_detector_that_is_combined() {
    let detectors = ["load", "queue"];
    let config = json!({
        "plugins": [
            {"type": "queue-scorer"},
            {"name": "load", "type": "concurrency-detector", "parameters": {"maxConcurrency": 10}},
            {"name": "queue", "type": "utilization-detector"},
            {"name": "both", "type": "max-saturation-detector",
             "parameters": {"detectors": detectors, "stages": {"load": ["prefill"]}}},
        ],
        "saturationDetector": "both",
        "flowControl": true,
    });
    let readings = vec![pod(1, 0.0, &[]), pod(2, 0.0, &[])];
    let mut fixture = Fixture::new(&config, readings).label("llm-d.ai/role", &["prefill", "decode"]);
    fixture.in_flight = [7, 9].map(|requests| Load { requests, tokens: 0 }).into();
    let pool = fixture.pool();
    let input = fixture.input(&pool);
    let stages = fixture.pipeline.endpoints_by_stage(&input);
    let by_detector = |age| fixture.pipeline.saturation_by_detector(&stages, &input, 0, NOW + age);
    let load = DetectorSaturation { detector: "load", prefill: Some(0.7), decode: None };
    let queue = DetectorSaturation { detector: "queue", prefill: Some(0.2), decode: Some(0.4) };
    assert_eq!(by_detector(Duration::ZERO), [load, queue]);
    assert_eq!(by_detector(Duration::from_secs(11)), [], "the agent is gone");
    assert!((saturation(&fixture, Duration::ZERO).effective - 0.7).abs() < 1e-9);
}

#[test]
fn servers_that_are_not_scraped_are_saturated_and_those_of_an_agent_that_is_gone_are_not() {
    let mut fixture = Fixture::new(&by_utilization(), vec![fresh(), fresh()]);
    assert_near(&[saturation(&fixture, Duration::from_millis(201)).effective], &[1.0]);
    assert_eq!(saturation(&fixture, Duration::from_secs(11)), StageSaturation::NONE);
    fixture.readings.clear();
    assert_near(&[saturation(&fixture, Duration::ZERO).effective], &[1.0]);
}

#[test]
fn the_proxys_own_counts_need_no_agent() {
    let detector = json!({"type": "concurrency-detector", "parameters": {"maxConcurrency": 2}});
    let mut fixture = Fixture::new(&queueing(&detector), vec![fresh(), fresh()]);
    fixture.in_flight = vec![Load { requests: 3, tokens: 0 }];
    assert_near(&[saturation(&fixture, Duration::from_secs(11)).effective], &[0.75]);
}
