//! Subset hints.

use core::time::Duration;
use endpoint_picker::decision::Outcome;
use endpoint_picker::decision::rejection::DroppedReason;
use endpoint_picker::period::Period;
use endpoint_picker::request::Request;
use endpoint_picker::rng::SplitMix64;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, NOW, rejection, subset};

#[test]
fn the_choice_stays_inside_the_subset_hint() {
    let mut fixture = Fixture::new(&[(0, 0.2), (0, 0.1), (10, 0.2)]);
    let all = ["192.168.1.1:8000", "192.168.1.2:8000", "192.168.1.3:8000"];
    assert_eq!(fixture.decide(&subset(&all)).outcome, Outcome::Route(vec![1, 0, 2].into()));
    assert_eq!(fixture.decide(&subset(&all[2..])).outcome, Outcome::Route(vec![2].into()));
}

#[test]
fn the_list_of_a_hint_names_all_of_its_endpoints_best_first() {
    let mut fixture = Fixture::new(&[(3, 0.2), (0, 0.1), (10, 0.2), (5, 0.2), (0, 0.0)]);
    let all = ["192.168.1.1:8000", "192.168.1.2:8000", "192.168.1.3:8000", "192.168.1.4:8000"];
    assert_eq!(fixture.decide(&subset(&all)).outcome, Outcome::Route(vec![1, 0, 3, 2].into()));
    fixture.readings[0].ready = false;
    assert_eq!(fixture.decide(&subset(&all)).outcome, Outcome::Route(vec![1, 3, 2].into()), "no candidate");
    fixture.avoided = vec![Period::default(), Period::new(NOW, Duration::from_millis(250))];
    assert_eq!(
        fixture.decide(&subset(&all)).outcome,
        Outcome::Route(vec![3, 2, 1].into()),
        "failed a moment ago"
    );
    assert_eq!(fixture.decide(&Request::default()).outcome, Outcome::Route(vec![4].into()), "without a hint");
}

#[test]
fn without_a_body_a_hint_gives_all_of_its_endpoints_in_random_order() {
    let mut fixture = Fixture::new(&[(0, 0.0), (50, 0.9), (0, 0.0), (0, 0.0)]);
    fixture.avoided = vec![Period::new(NOW, Duration::from_millis(250))];
    let hint = subset(&["192.168.1.1:8000", "192.168.1.2:8000", "192.168.1.3:8000"]);
    let mut first = [0; 4];
    for seed in 0..200 {
        let rng = &mut SplitMix64::new(seed);
        let decision = fixture.pipeline.decide_without_body(&hint, &fixture.input(), NOW, rng);
        let Outcome::Route(endpoints) = &decision.outcome else { panic!("{decision:?}") };
        assert!(endpoints.len() == 3 && endpoints.ends_with(&[0]), "{endpoints:?}");
        first[endpoints[0]] += 1;
    }
    assert!(first[1] > 50 && first[2] > 50, "{first:?}");
}

#[test]
fn a_subset_hint_that_names_no_endpoint_is_503() {
    let mut fixture = Fixture::new(&[(0, 0.2), (0, 0.1)]);
    for hint in [&["192.168.1.99:8000"][..], &["192.168.1.1:9999"], &[]] {
        assert_eq!(
            rejection(fixture.decide(&subset(hint))),
            (503, Some(DroppedReason::NoEndpoints)),
            "{hint:?}"
        );
    }
}
