//! Decisions next to another picker, which acts.

use endpoint_picker::decision::shadow::Agreement;
use endpoint_picker::decision::shadow::OtherPick;
use endpoint_picker::decision::shadow::ShadowDecision;
use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::shadow::Acting;
use endpoint_picker::pool::load::{Load, Reservation};
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::rng::SplitMix64;
use serde_json::json;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, NOW, best, owned, pod};

/// Decides next to a pick, and applies what follows.
fn beside(fixture: &mut Fixture, pick: &OtherPick, prompt: &str, priority: i32) -> ShadowDecision {
    let json = json!({"model": "m", "prompt": prompt}).to_string();
    let headers = owned(&[]);
    let options = fixture.pipeline.body_options(Headers(&headers));
    let body = Body::read(&json, Api::Completions, &options).unwrap();
    let request = Request { model: "m", prompt: Some(&body.prompt), priority, ..Request::default() };
    let pool = fixture.pool();
    let input = fixture.input(&pool);
    let prepared = fixture.pipeline.prepare(&request, &input, NOW);
    let rng = &mut SplitMix64::new(1);
    let compared = fixture.pipeline.compare(&prepared, Acting::Other(pick), &input, rng);
    for change in &compared.decision.records.changes {
        fixture.states.apply(change, &pool);
    }
    compared
}

fn to(destinations: &[usize]) -> OtherPick {
    OtherPick { destinations: destinations.to_vec(), ..OtherPick::default() }
}

fn long() -> String {
    "the same beginning, sixty-four tokens of four bytes at least, ".repeat(12)
}

#[test]
fn the_best_endpoint_agrees_an_equal_one_too_and_a_worse_one_does_not() {
    let readings = vec![pod(0, 0.1, &[]), pod(0, 0.1, &[]), pod(9, 0.9, &[])];
    let mut fixture = Fixture::new(&json!({}), readings);
    let agreements: Vec<_> =
        [0, 1, 2].map(|n| beside(&mut fixture, &to(&[n]), &n.to_string(), 0).agreement).into();
    assert_eq!(agreements[2], Agreement::Different);
    let mut best: Vec<_> = agreements[..2].iter().map(|agreement| agreement.as_str()).collect();
    best.sort_unstable();
    assert_eq!(best, ["equal score", "same"]);
}

#[test]
fn prompts_and_loads_are_those_of_the_other_pick() {
    let mut fixture = Fixture::new(&json!({}), vec![pod(0, 0.1, &[]), pod(5, 0.9, &[])]);
    let compared = beside(&mut fixture, &to(&[1, 0]), &long(), 0);
    let load = |reservation: &Reservation| (reservation.endpoint, reservation.response);
    let loads: Vec<_> = compared.decision.reservations.iter().map(load).collect();
    assert_eq!(loads, [(1, Load { requests: 1, tokens: 0 })]);
    assert_eq!(compared.decision.prompt.matched, 0);
    let again = beside(&mut fixture, &to(&[1]), &long(), 0);
    assert_eq!(again.decision.prompt.matched, again.decision.prompt.total);
    assert!(again.decision.prompt.total > 0);
}

#[test]
fn a_prefill_endpoint_gets_its_part_of_the_load_and_the_prompt() {
    let mut fixture = Fixture::new(&json!({}), vec![pod(0, 0.1, &[]); 3]);
    let pick = OtherPick { prefill: Some(2), ..to(&[1]) };
    let compared = beside(&mut fixture, &pick, &long(), 0);
    let [decode, prefill] = compared.decision.reservations.as_slice() else { panic!("{compared:?}") };
    assert_eq!((decode.endpoint, prefill.endpoint), (1, 2));
    assert_eq!((decode.response.requests, prefill.prefill.requests), (1, 1));
    let mut scored = best(&beside(&mut fixture, &to(&[0]), &long(), 0).decision);
    scored.sort_unstable();
    assert_eq!(scored, [1, 2], "both have the prompt");
}

#[test]
fn a_request_that_the_rules_shed_is_recorded_where_it_went() {
    let config = json!({
        "plugins": [
            {"type": "prefix-cache-scorer"},
            {"type": "utilization-detector", "parameters": {"queueDepthThreshold": 1}},
        ],
        "saturationDetector": "utilization-detector",
    });
    let mut fixture = Fixture::new(&config, vec![pod(3, 0.1, &[]), pod(2, 0.1, &[])]);
    let shed = beside(&mut fixture, &to(&[1]), &long(), -1);
    assert_eq!((shed.agreement, shed.decision.reservations.len()), (Agreement::Rejected, 1));
    let next = beside(&mut fixture, &to(&[1]), &long(), 0);
    assert_eq!((best(&next.decision), next.agreement), (vec![1], Agreement::Same));
}

#[test]
fn an_endpoint_that_the_pool_lacks_changes_nothing() {
    let mut fixture = Fixture::new(&json!({}), vec![pod(0, 0.1, &[]); 2]);
    let compared = beside(&mut fixture, &OtherPick::default(), &long(), 0);
    assert_eq!(compared.agreement, Agreement::UnknownEndpoint);
    assert!(compared.decision.records.changes.is_empty() && compared.decision.reservations.is_empty());
}
