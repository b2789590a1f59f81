//! Scorers.

use endpoint_picker::pool::reading::{Lora, Reading};
use endpoint_picker::request::body::Api;
use serde_json::{Value, json};

use super::{TOKEN, load, near_decode, only, plain, scores, waiting};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, assert_near, destinations, fresh, pod, totals};

#[test]
fn queue_scorer() {
    assert_near(&scores(&plain("queue-scorer"), &waiting(&[10, 5, 0])), &[0.0, 0.5, 1.0]);
}

#[test]
fn running_requests_size_scorer() {
    let readings = [8, 2, 0].map(|running| Reading { running: Some(running), ..fresh() });
    assert_near(&scores(&plain("running-requests-size-scorer"), &readings), &[0.0, 0.75, 1.0]);
}

#[test]
fn kv_cache_utilization_scorer() {
    let readings = [0.8, 0.5, 0.0].map(|kv_usage| pod(0, kv_usage, &[]));
    assert_near(&scores(&plain("kv-cache-utilization-scorer"), &readings), &[0.2, 0.5, 1.0]);
}

#[test]
fn load_aware_scorer() {
    assert_near(&scores(&plain("load-aware-scorer"), &waiting(&[0, 64, 200])), &[0.5, 0.25, 0.0]);
}

#[test]
fn prefix_cache_scorer() {
    let mut fixture = Fixture::idle(&plain("prefix-cache-scorer"), 2);
    let first = destinations(&fixture.send(&"a".repeat(1024), &[]))[0];
    let mut expected = [0.0; 2];
    expected[first] = 0.5;
    assert_near(&totals(&fixture.send(&("a".repeat(512) + &"b".repeat(512)), &[])), &expected);
}

#[test]
fn no_hit_lru_scorer() {
    let mut fixture = Fixture::idle(&plain("no-hit-lru-scorer"), 3);
    let first = fixture.send("one", &[]);
    assert_near(&totals(&first), &[1.0, 0.5, 0.0]);
    assert_eq!(destinations(&first), [0]);
    assert_near(&totals(&fixture.send("two", &[])), &[0.0, 1.0, 0.5]);
}

#[test]
fn lora_affinity_scorer() {
    let adapters = |running: &[&str], waiting: &[&str], max| {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        Reading { lora: Some(Lora { running: names(running), waiting: names(waiting), max }), ..fresh() }
    };
    let four = [
        adapters(&["m"], &[], 2),
        adapters(&["a"], &[], 2),
        adapters(&["a", "b"], &["m"], 2),
        adapters(&["a", "b"], &[], 2),
    ];
    assert_near(&scores(&plain("lora-affinity-scorer"), &four), &[1.0, 0.8, 0.6, 0.0]);
    let half_full = [adapters(&["a", "b"], &["a", "b"], 4)];
    assert_near(&scores(&plain("lora-affinity-scorer"), &half_full), &[0.8]);
    assert_near(&scores(&only("lora-affinity-scorer", &json!({"countTwice": true})), &half_full), &[0.0]);
    let fresh_one = [adapters(&["a"], &[], 2), fresh()];
    assert_near(&scores(&plain("lora-affinity-scorer"), &fresh_one), &[0.8, 0.8]);
    let as_the_epp = only("lora-affinity-scorer", &json!({"unreportedAsEmpty": false}));
    assert_near(&scores(&as_the_epp, &fresh_one), &[0.8, 0.0]);
}

#[test]
fn active_request_scorer() {
    let mut fixture = Fixture::idle(&plain("active-request-scorer"), 3);
    fixture.in_flight = [3, 0, 6].map(|requests| load(requests, 0)).to_vec();
    assert_near(&totals(&fixture.send("x", &[])), &[0.5, 1.0, 0.0]);
}

#[test]
fn token_load_scorer() {
    let mut fixture = Fixture::idle(&only("token-load-scorer", &json!({"queueThresholdTokens": 1000})), 2);
    fixture.in_flight = vec![load(1, 400), load(1, 5_000)];
    assert_near(&totals(&fixture.send(&"x".repeat(400), &[])), &[0.5, 0.0]);
}

#[test]
fn lmetric_scorer() {
    let lmetric = |parameters: &Value| {
        let mut fixture = Fixture::idle(&only("lmetric-scorer", parameters), 3);
        fixture.in_flight = vec![load(0, 0), load(2, 400), load(9, 0)];
        totals(&fixture.send(&"x".repeat(512), &[]))
    };
    assert_near(&lmetric(&json!({})), &[1.0, 0.0, 304.0 / 1456.0]);
    assert_near(&lmetric(&json!({"countTokensInFlight": false})), &[1.0, 7.0 / 9.0, 0.0]);
}

#[test]
fn expected_latency_scorer() {
    let mut fixture = Fixture::idle(&plain("expected-latency-scorer"), 2);
    fixture.in_flight = vec![load(3, 400), load(0, 0)];
    let scores = totals(&fixture.send(&"x".repeat(512), &[]));
    assert_near(&scores, &[1.0 / 1.0575, 1.0 / 1.016]);
}

#[test]
fn session_affinity_scorer() {
    let decision = Fixture::idle(&plain("session-affinity-scorer"), 3).send("x", &[TOKEN]);
    assert_near(&totals(&decision), &[0.0, 1.0, 0.0]);
}

#[test]
fn context_length_aware() {
    let fixture = |parameters: &Value| {
        Fixture::idle(&only("context-length-aware", parameters), 3)
            .label("llm-d.ai/context-length-range", &["0-10000", "3000-9000", ""])
    };
    let prompt = "x".repeat(8_000);
    assert_near(&totals(&fixture(&json!({})).send(&prompt, &[])), &[0.713, 0.15, 0.5]);
    let filtered = fixture(&json!({"enableFiltering": true})).send(&prompt, &[]);
    assert_eq!(filtered.primary_run().unwrap().scored, [0, 2]);
}

#[test]
fn header_label_affinity_scorer() {
    let parameters = json!({"headerName": "X-Zone", "labelKey": "zone"});
    let mut fixture =
        Fixture::idle(&only("header-label-affinity-scorer", &parameters), 3).label("zone", &["a", "b"]);
    assert_near(&totals(&fixture.send("x", &[("x-zone", "b")])), &[0.0, 1.0, 0.0]);
}

#[test]
fn endpoint_attribute_scorer() {
    let algorithm = json!({"type": "linear_lower_is_better"});
    let parameters = json!({"attributeKey": "WaitingQueueSize", "algorithm": algorithm});
    let config = only("endpoint-attribute-scorer", &parameters);
    assert_near(&scores(&config, &waiting(&[10, 4, 0])), &[0.0, 0.6, 1.0]);
}

#[test]
fn topology_affinity_scorer() {
    let decision = near_decode(&json!({"type": "topology-affinity-scorer"})).send("x", &[]);
    assert_near(&decision.runs[1].totals, &[1.0, 0.05, 0.0]);
}

#[test]
fn mm_embeddings_cache_scorer_and_producer() {
    let config = json!({
        "plugins": [{"type": "mm-embeddings-cache-scorer"}, {"type": "active-request-scorer"}],
        "schedulingProfiles": [{"name": "default", "plugins": [
            {"pluginRef": "mm-embeddings-cache-scorer"}, {"pluginRef": "active-request-scorer", "weight": 9}]}],
    });
    let mut fixture = Fixture::idle(&config, 2);
    let mut send = |loads: [u64; 2], images: &[&str]| {
        let image = |name: &&str| json!({"type": "image_url", "image_url": {"url": format!("https://example.com/{name}")}});
        let content: Vec<Value> =
            images.iter().map(image).chain([json!({"type": "text", "text": "?"})]).collect();
        let body = json!({"model": "m", "messages": [{"role": "user", "content": content}]});
        fixture.in_flight = loads.map(|requests| load(requests, 0)).to_vec();
        fixture.send_body(Api::Chat, &body.to_string(), &[]).primary_run().unwrap().scores[..2].to_vec()
    };
    // A and B go to the first endpoint, B to the second.
    assert_near(&send([0, 9], &["a.png", "b.png"]), &[0.0, 0.0]);
    assert_near(&send([9, 0], &["b.png"]), &[1.0, 0.0]);
    assert_near(&send([0, 9], &["a.png", "b.png"]), &[1.0, 0.5]);
    assert_near(&send([0, 9], &["a.png", "a.png", "c.png"]), &[0.5, 0.0]);
    assert_near(&send([0, 9], &[]), &[0.0, 0.0]);
}
