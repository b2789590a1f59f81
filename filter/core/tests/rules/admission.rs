//! Requests that are turned away.

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::pool::load::Load;
use endpoint_picker::request::Request;
use serde_json::json;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, destinations, pod, rejection};

fn sheddable() -> Request<'static> {
    Request { priority: -1, ..Request::default() }
}

#[test]
fn a_probabilistic_refusal_is_a_real_429() {
    let config = json!({"plugins": [{"type": "queue-scorer"}, {"type": "probabilistic-admitter"}]});
    let mut fixture = Fixture::new(&config, vec![pod(4, 0.1, &[])]);
    let (status, reason, message) = rejection(&fixture.decide(&sheddable(), 1));
    let words = "request cannot be admitted: probabilistic-admitter: rejected, saturation=0.800 prob=1.00";
    assert_eq!((status, reason, message.as_str()), (429, None, words));
    assert_eq!(destinations(&fixture.decide(&Request::default(), 1)), [0]);
}

#[test]
fn the_concurrency_detector_sheds_by_this_proxys_own_count() {
    let detector = json!({"type": "concurrency-detector", "parameters": {"maxConcurrency": 2}});
    let config = json!({
        "plugins": [{"type": "queue-scorer"}, detector],
        "schedulingProfiles": [{"name": "default", "plugins": [{"pluginRef": "queue-scorer"}]}],
        "saturationDetector": "concurrency-detector",
    });
    let mut fixture = Fixture::new(&config, vec![pod(50, 1.0, &[]), pod(50, 1.0, &[])]);
    fixture.in_flight = vec![Load { requests: 3, tokens: 0 }, Load { requests: 0, tokens: 0 }];
    assert_eq!(destinations(&fixture.decide(&sheddable(), 1)).len(), 1);
    fixture.in_flight[1].requests = 1;
    let message = "system saturated, sheddable request dropped".to_owned();
    assert_eq!(rejection(&fixture.decide(&sheddable(), 1)), (429, None, message));
}

#[test]
fn filters_that_leave_nothing_are_a_429_with_its_reason() {
    let config = json!({"plugins": [{"type": "concurrency-detector", "parameters": {"maxConcurrency": 1}}]});
    let mut fixture = Fixture::idle(&config, 1);
    fixture.in_flight = vec![Load { requests: 1, tokens: 0 }];
    let message = "no endpoints available for the given request".to_owned();
    let rejected = rejection(&fixture.decide(&Request::default(), 1));
    assert_eq!(rejected, (429, Some("rejected-saturated"), message));
}

/// Example of `Versions of the EPP`.
#[test]
fn by_the_rules_of_v0_11_a_request_that_no_endpoint_could_serve_is_503() {
    let config = json!({
        "plugins": [
            {"type": "prefill-filter"},
            {"type": "utilization-filter", "parameters": {"conditions": [{"metric": "waiting-queue", "maxValue": 3}]}},
        ],
    });
    let status = |rules, role: &str, queue| {
        let fixture = Fixture::by(rules, &config, vec![pod(queue, 0.0, &[])]);
        let mut fixture = fixture.label("llm-d.ai/role", &[role]);
        let (status, reason, _) = rejection(&fixture.send("x", &[]));
        (status, reason.unwrap())
    };
    let (saturated, ineligible) = ((429, "rejected-saturated"), (503, "rejected-no-endpoints"));
    for rules in EppRules::NAMED {
        assert_eq!(status(rules, "prefill", 9), saturated);
    }
    assert_eq!(status(EppRules::V010, "decode", 0), saturated);
    assert_eq!(status(EppRules::V011, "decode", 9), ineligible);
}
