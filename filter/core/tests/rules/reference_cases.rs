//! The scheduling cases of the EPP's integration tests: the same pods, metrics and requests, the same best
//! endpoints. All scorers have weight 1; where several endpoints are equal any of them is right.

use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::subset::Subset;
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, assert_near, best, destinations, pod, rejection, totals};

const ADAPTER: &str = "sql-lora-1fdg2";

fn config() -> Value {
    let scorers =
        ["queue-scorer", "kv-cache-utilization-scorer", "prefix-cache-scorer", "lora-affinity-scorer"];
    let plugins: Vec<Value> = scorers.iter().map(|scorer| json!({"type": scorer})).collect();
    let refs: Vec<Value> = scorers.iter().map(|scorer| json!({"pluginRef": scorer})).collect();
    json!({"plugins": plugins, "schedulingProfiles": [{"name": "default", "plugins": refs}]})
}

#[track_caller]
fn assert_best(pods: &[Reading], request: &Request<'_>, expected: &[usize]) {
    for seed in 0..20 {
        let decision = Fixture::new(&config(), pods.to_vec()).decide(request, seed);
        assert_eq!(best(&decision), expected, "seed {seed}");
        assert!(expected.contains(&destinations(&decision)[0]), "seed {seed}");
    }
}

fn asks_for(model: &str) -> Request<'_> {
    Request { model, priority: 2, ..Request::default() }
}

#[test]
fn select_lower_queue_and_kv_cache() {
    let pods = [pod(3, 0.2, &[]), pod(0, 0.1, &[]), pod(10, 0.2, &[])];
    assert_best(&pods, &asks_for("my-model-12345"), &[1]);
}

#[test]
fn select_active_lora_with_a_low_queue() {
    let pods = [pod(0, 0.2, &["foo", "bar"]), pod(0, 0.1, &["foo", ADAPTER]), pod(10, 0.2, &["foo", "bar"])];
    assert_best(&pods, &asks_for(ADAPTER), &[1]);
}

#[test]
fn select_active_lora_despite_higher_kv_cache() {
    let pods = [pod(10, 0.2, &["foo", "bar"]), pod(10, 0.4, &["foo", ADAPTER]), pod(10, 0.3, &["foo"])];
    assert_best(&pods, &asks_for(ADAPTER), &[1]);
}

#[test]
fn do_not_shed_by_default() {
    let pods = [pod(6, 0.2, &["foo", "bar", ADAPTER]), pod(0, 0.85, &["foo"]), pod(10, 0.9, &["foo"])];
    assert_best(&pods, &asks_for(ADAPTER), &[0]);
    let decision = Fixture::new(&config(), pods.to_vec()).decide(&asks_for(ADAPTER), 1);
    assert_near(&totals(&decision), &[2.2, 1.15, 0.1]);
}

#[test]
fn equal_queues_and_adapters_leave_it_to_the_kv_cache() {
    let pods = [pod(4, 0.2, &["foo", "bar", ADAPTER]), pod(4, 0.85, &["foo", ADAPTER])];
    assert_best(&pods, &Request { priority: 0, ..asks_for(ADAPTER) }, &[0]);
}

fn subset_pods() -> [Reading; 3] {
    [pod(0, 0.2, &["foo"]), pod(0, 0.1, &["foo", ADAPTER]), pod(10, 0.2, &["foo"])]
}

fn hinted(addresses: &[&str]) -> Request<'static> {
    Request { subset: Subset::from_items(addresses.iter().copied()), ..asks_for(ADAPTER) }
}

#[test]
fn a_subset_of_all_leaves_the_best_of_three() {
    let all = ["192.168.1.1:8000", "192.168.1.2:8000", "192.168.1.3:8000"];
    assert_best(&subset_pods(), &hinted(&all), &[1]);
}

#[test]
fn a_subset_of_one_decides() {
    assert_best(&subset_pods(), &hinted(&["192.168.1.3:8000"]), &[2]);
}

#[test]
fn a_subset_of_unknown_endpoints_is_refused() {
    let decision = Fixture::new(&config(), subset_pods().to_vec()).decide(&hinted(&["192.168.1.99:8000"]), 1);
    let message = "failed to find endpoint candidates for serving the request".to_owned();
    assert_eq!(rejection(&decision), (503, Some("rejected-no-endpoints"), message));
}

#[test]
fn a_single_pod_is_picked_whatever_the_model() {
    assert_best(&[pod(0, 0.1, &["foo"])], &asks_for("direct-model"), &[0]);
}

#[test]
fn a_body_that_is_not_read_is_placed_by_queue_and_kv_cache() {
    let pods = [pod(3, 0.2, &[]), pod(0, 0.1, &[]), pod(10, 0.2, &[])];
    assert_best(&pods, &asks_for(""), &[1]);
}

#[test]
fn every_candidate_of_the_primary_profile_has_a_score() {
    let decision =
        Fixture::new(&config(), vec![pod(0, 0.1, &[]), pod(5, 0.5, &[])]).decide(&asks_for("m"), 1);
    let run = decision.primary_run().unwrap();
    assert_eq!((run.scored.as_slice(), run.totals.len()), (&[0, 1][..], 2));
    assert_near(&run.totals, &[1.9, 0.5]);
}
