//! Filters.

use endpoint_picker::pool::reading::{Reading, ServedModel};
use endpoint_picker::request::body::Api;
use serde_json::json;

use super::{TOKEN, kept, load, near_decode, only, plain, waiting};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, destinations, fresh, pod, rejection};

#[test]
fn label_selector_filter() {
    let selector =
        json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "silver"]}]});
    let config = only("label-selector-filter", &selector);
    let mut fixture = Fixture::idle(&config, 4).label("tier", &["gold", "tin", "silver"]);
    assert_eq!(kept(&mut fixture, &[]), [0, 2]);
}

/// Form to which `by-label` is lowered.
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

/// Examples of `decode-filter`, `prefill-filter` and `encode-filter`.
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

/// As the default profile of v0.4 had it: the tree, then chance.
#[test]
fn legacy_filter_tree() {
    let plugins =
        json!([{"type": "legacy-filter-tree", "parameters": {"version": "v0.4"}}, {"type": "random-picker"}]);
    let config = json!({"plugins": plugins});
    assert_eq!(kept(&mut Fixture::new(&config, waiting(&[0, 3, 10])), &[]), [0, 1]);
    let usages = [0.0, 0.3, 1.0].map(|usage| pod(0, usage, &[]));
    assert_eq!(kept(&mut Fixture::new(&config, usages.to_vec()), &[]), [0, 1]);
    // A request of priority 0 is not critical.
    let shed = Fixture::new(&plain("legacy-filter-tree"), waiting(&[6, 7])).send("x", &[]);
    assert_eq!(rejection(&shed).0, 429);
    assert_eq!(kept(&mut Fixture::new(&plain("legacy-filter-tree"), waiting(&[6, 5])), &[]), [1]);
}

#[test]
fn header_based_testing_filter() {
    let addresses =
        ["10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.3:8000"].map(|address| address.parse().unwrap());
    let mut fixture = Fixture::idle(&plain("header-based-testing-filter"), 3).at(addresses.to_vec());
    assert_eq!(kept(&mut fixture, &[("test-epp-endpoint-selection", "10.0.0.1:8001, 10.0.0.2")]), [1]);
    assert_eq!(rejection(&fixture.send("x", &[])).0, 429);
}

#[test]
fn served_model_filter() {
    let list = |names: &[(&str, bool)]| {
        let served = |&(id, is_adapter): &(&str, bool)| ServedModel { id: id.to_owned(), is_adapter };
        Reading { models: Some(names.iter().map(served).collect()), ..fresh() }
    };
    let readings = vec![list(&[("base", false), ("tune", true)]), list(&[("base", false)]), fresh()];
    let kept = |model: &str, readings: &[Reading]| {
        let body = json!({"model": model, "prompt": "x"}).to_string();
        let mut fixture = Fixture::new(&plain("served-model-filter"), readings.to_vec());
        fixture.send_body(Api::Completions, &body, &[])
    };
    let scored = |model: &str| kept(model, &readings).primary_run().unwrap().scored.clone();
    assert_eq!((scored("base"), scored("tune")), (vec![0, 1, 2], vec![0]));
    let nowhere = rejection(&kept("other", &readings[..2]));
    assert_eq!((nowhere.0, nowhere.1), (503, Some("rejected-no-endpoints")));
}
