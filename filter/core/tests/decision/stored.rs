//! Decisions for requests that name a stored response.

use endpoint_picker::decision::Outcome;
use endpoint_picker::decision::explanation::Verdict;
use endpoint_picker::input::Exclusion;
use endpoint_picker::request::Request;
use endpoint_picker::request::stored::StoredId;
use endpoint_picker::rng::SplitMix64;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, NOW, subset};

/// A pool whose busy second endpoint stores a response, and the request that names it.
fn fixture() -> (Fixture, Request<'static>) {
    let mut fixture = Fixture::new(&[(0, 0.0), (50, 0.9), (0, 0.0)]);
    let stored = StoredId::of("resp_a").unwrap();
    let change = stored.stored_at(fixture.pool.as_slice()[1].key(), NOW);
    fixture.states.apply(&change, &fixture.pool);
    (fixture, Request { model: "m", stored: Some(stored), ..Request::default() })
}

fn first(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Route(endpoints) => endpoints[0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_endpoint_that_stores_it_is_picked_however_busy_and_the_explanation_says_why() {
    let (mut fixture, request) = fixture();
    let decision = fixture.decide(&request);
    assert_eq!(first(&decision.outcome), 1);
    let explanation = fixture.pipeline.explain(&decision, &request, &fixture.input(), NOW);
    assert_eq!(explanation.endpoints[0].verdict, Verdict::Excluded(Exclusion::StoredElsewhere));
    assert!(explanation.to_string().contains("does not store the response"), "{explanation}");
}

#[test]
fn it_is_not_picked_where_it_may_not_or_has_failed_the_request() {
    let (mut fixture, request) = fixture();
    let failed = [fixture.pool.as_slice()[1].address()];
    let others = [0, 2];
    let again = Request { failed: &failed, ..request.clone() };
    assert!(others.contains(&first(&fixture.decide(&again).outcome)), "it has failed this request");
    let hint = subset(&["192.168.1.1:8000", "192.168.1.3:8000"]).subset;
    let hinted = Request { subset: hint, ..request.clone() };
    assert!(others.contains(&first(&fixture.decide(&hinted).outcome)), "the hint leaves it out");
    fixture.readings[1].ready = false;
    assert!(others.contains(&first(&fixture.decide(&request).outcome)), "it is not ready");
}

#[test]
fn a_request_without_a_body_goes_there_and_keeps_the_rest_of_its_hint_for_retries() {
    let (fixture, request) = fixture();
    let decide = |request: &Request<'_>| {
        let mut rng = SplitMix64::new(1);
        fixture.pipeline.decide_without_body(request, &fixture.input(), NOW, &mut rng).outcome
    };
    assert_eq!(decide(&request), Outcome::Route(vec![1].into()));
    let hint = subset(&["192.168.1.1:8000", "192.168.1.2:8000"]).subset;
    assert_eq!(decide(&Request { subset: hint, ..request }), Outcome::Route(vec![1, 0].into()));
}
