//! Filters.

use serde_json::json;

use super::{TOKEN, kept, load, near_decode, only, plain, waiting};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, destinations};

#[test]
fn label_selector_filter() {
    let selector =
        json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "silver"]}]});
    let config = only("label-selector-filter", &selector);
    let mut fixture = Fixture::idle(&config, 4).label("tier", &["gold", "tin", "silver"]);
    assert_eq!(kept(&mut fixture, &[]), [0, 2]);
}

/// What `by-label` is lowered to.
#[test]
fn label_selector_filter_of_one_of_some_values() {
    let parameters = json!({"oneOf": {"label": "tier", "values": ["gold"], "allowsNoLabel": true}});
    let config = only("label-selector-filter", &parameters);
    let mut fixture = Fixture::idle(&config, 3).label("tier", &["gold", "tin"]);
    assert_eq!(kept(&mut fixture, &[]), [0, 2]);
}

fn kept_by_role(filter: &str, roles: &[&str]) -> Vec<usize> {
    kept(&mut Fixture::idle(&plain(filter), roles.len()).label("llm-d.ai/role", roles), &[])
}

#[test]
fn decode_prefill_and_encode_filter() {
    assert_eq!(kept_by_role("decode-filter", &["decode", "prefill", "both", ""]), [0, 2, 3]);
    assert_eq!(kept_by_role("prefill-filter", &["decode", "prefill", "both", ""]), [1, 2]);
    assert_eq!(kept_by_role("encode-filter", &["encode", "prefill", ""]), [0]);
}

#[test]
fn utilization_filter() {
    let parameters = json!({"conditions": [{"metric": "waiting-queue", "maxValue": 1}]});
    let mut fixture = Fixture::new(&only("utilization-filter", &parameters), waiting(&[0, 1, 9]));
    assert_eq!(kept(&mut fixture, &[]), [0, 1]);
}

#[test]
fn prefix_cache_affinity_filter() {
    let mut fixture = Fixture::idle(&plain("prefix-cache-affinity-filter"), 2);
    let prompt = "x".repeat(1024);
    let first = destinations(&fixture.send(&prompt, &[]))[0];
    let mut kept_with = |tokens| {
        fixture.in_flight = vec![load(0, 0); 2];
        fixture.in_flight[first].tokens = tokens;
        let mut copy = Fixture::idle(&plain("prefix-cache-affinity-filter"), 2);
        copy.in_flight.clone_from(&fixture.in_flight);
        core::mem::swap(&mut copy.states, &mut fixture.states);
        let kept = copy.send(&prompt, &[]).primary_run().unwrap().scored.clone();
        core::mem::swap(&mut copy.states, &mut fixture.states);
        kept
    };
    assert_eq!(kept_with(280_000), [first]);
    assert_eq!(kept_with(300_000), [0, 1]);
}

#[test]
fn session_affinity_filter() {
    assert_eq!(kept(&mut Fixture::idle(&plain("session-affinity-filter"), 3), &[TOKEN]), [1]);
}

#[test]
fn active_request_filter() {
    let mut fixture = Fixture::idle(&only("active-request-filter", &json!({"maxRequests": 3})), 3);
    fixture.in_flight = vec![load(2, 0), load(3, 0), load(4, 0)];
    assert_eq!(kept(&mut fixture, &[]), [0, 1]);
}

#[test]
fn endpoint_attribute_filter() {
    let threshold = json!({"operator": "LessThanOrEqual", "value": 1});
    let algorithm = json!({"type": "threshold", "threshold": threshold});
    let parameters = json!({"attribute": "WaitingQueueSize", "algorithm": algorithm});
    let mut fixture = Fixture::new(&only("endpoint-attribute-filter", &parameters), waiting(&[0, 1, 9]));
    assert_eq!(kept(&mut fixture, &[]), [0, 1]);
}

#[test]
fn topology_affinity_filter() {
    let kept = |level: &str| {
        let near = json!({"type": "topology-affinity-filter", "parameters": {"minAffinity": level}});
        let decision = near_decode(&near).send("x", &[]);
        let prefill = &decision.runs[1];
        prefill.scored.clone()
    };
    assert_eq!(kept("host"), [1]);
    assert_eq!(kept("zone"), [1, 2]);
}
