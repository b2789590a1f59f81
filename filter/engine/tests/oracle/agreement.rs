//! Decision for decision, over histories of requests.

use std::cell::RefCell;
use std::collections::BTreeMap;

use endpoint_picker::decision::rejection::DroppedReason;
use endpoint_picker::decision::{Decision, Outcome};
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};

use crate::document::documents;
use crate::fixture::Fixture;
use crate::for_all;
use crate::rules::{Expected, Oracle};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::world::{odd_numbers, pools, steps};

#[test]
fn every_decision_is_one_that_the_oracle_allows() {
    let outcomes = RefCell::new(BTreeMap::new());
    let inputs = (documents(), pools(), prop::collection::vec(steps(odd_numbers()), 1..12), any::<u64>());
    for_all(600, &inputs, |(document, pool, steps, seed)| {
        let mut oracle = Oracle::new(&document);
        let mut fixture = Fixture::new(&document, pool);
        for (step, seed) in steps.iter().zip(seed..) {
            if oracle.may_differ() {
                break;
            }
            fixture.advance(step);
            oracle.advance(step, &fixture.situation());
            let decision = fixture.decide(&step.spec, seed);
            let picks: Vec<Vec<usize>> = decision.runs.iter().map(|run| run.picked.to_vec()).collect();
            let routed = match &decision.outcome {
                Outcome::Route(endpoints) => Some(&endpoints[..]),
                _ => None,
            };
            let expected = oracle.decide(&fixture.situation(), &step.spec, &picks, routed);
            let expected = expected.map_err(TestCaseError::fail)?;
            agree(&decision, &expected)?;
            *outcomes.borrow_mut().entry(kind(&decision)).or_insert(0) += 1;
            fixture.send(&decision);
        }
        Ok(())
    });
    // None of what can come out may have been tested with next to nothing.
    let outcomes = outcomes.into_inner();
    let is_common = |kind: &str| outcomes.get(kind).is_some_and(|&count| count > 20);
    let kinds = [
        "routed",
        "routed by 2",
        "routed by 3",
        "503 rejected-no-endpoints",
        "429 rejected-saturated",
        "429",
        "412",
    ];
    assert!(kinds.into_iter().all(is_common), "{outcomes:?}");
}

fn agree(decision: &Decision, expected: &Expected) -> TestCaseResult {
    match (&decision.outcome, &expected.outcome) {
        (Outcome::Route(endpoints), Ok(picked)) => prop_assert_eq!(&endpoints[..], picked),
        (Outcome::Reject(rejection), Err(expected)) => {
            prop_assert_eq!(rejection.code.status(), expected.status, "{}", rejection);
            prop_assert_eq!(rejection.reason.map(DroppedReason::as_str), expected.reason, "{}", rejection);
        }
        (outcome, expected) => prop_assert!(false, "{outcome:?} is not {expected:?}"),
    }
    prop_assert_eq!(decision.runs.len(), expected.runs.len());
    for (run, expected) in decision.runs.iter().zip(&expected.runs) {
        prop_assert_eq!(&run.scored, &expected.kept, "{}", expected.profile);
        prop_assert_eq!(&*run.picked, &*expected.picked);
        near(&run.totals, &expected.totals, &expected.profile)?;
        near(&run.scores, &expected.scores.concat(), &expected.profile)?;
    }
    let headers: Vec<(String, String)> =
        decision.headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    prop_assert_eq!(&headers, &expected.headers);
    prop_assert_eq!(&decision.reservations[..], &expected.reservations[..]);
    Ok(())
}

/// `near` is false for all that is not a number.
pub(crate) fn near(numbers: &[f64], expected: &[f64], what: &str) -> TestCaseResult {
    let all = numbers.iter().zip(expected).all(|(number, expected)| (number - expected).abs() < 1e-9);
    prop_assert!(all && numbers.len() == expected.len(), "{what}: {numbers:?} is not {expected:?}");
    Ok(())
}

fn kind(decision: &Decision) -> String {
    match &decision.outcome {
        Outcome::Reject(rejection) => {
            let reason = rejection.reason.map(DroppedReason::as_str).unwrap_or_default();
            format!("{} {reason}", rejection.code.status()).trim().to_owned()
        }
        _ if decision.runs.len() > 1 => format!("routed by {}", decision.runs.len()),
        _ => "routed".to_owned(),
    }
}
