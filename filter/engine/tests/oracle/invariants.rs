//! Properties that hold for any values that servers report.

use endpoint_picker::decision::{Decision, Outcome};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use crate::document::documents;
use crate::fixture::Fixture;
use crate::for_all;
use crate::rules::Oracle;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::world::{odd_numbers, pools, steps};

/// Numbers that no comparison and no sum is made for.
fn absurd_numbers() -> Vec<f64> {
    [odd_numbers(), vec![f64::NAN, -f64::NAN, f64::MIN, f64::MAX, f64::MIN_POSITIVE, -0.0]].concat()
}

#[test]
fn only_candidates_are_picked_and_scores_are_shares_for_any_readings() {
    let inputs = (documents(), pools(), vec(steps(absurd_numbers()), 1..8), any::<u64>());
    for_all(150, &inputs, |(document, pool, steps, seed)| {
        let mut fixture = Fixture::new(&document, pool);
        for (step, seed) in steps.iter().zip(seed..) {
            fixture.advance(step);
            let candidates = Oracle::candidates(&fixture.situation(), &step.spec);
            let decision = fixture.decide(&step.spec, seed);
            assert_valid(&decision, &candidates)?;
            assert_valid(&fixture.decide_without_body(&step.spec, seed), &candidates)?;
            fixture.send(&decision);
        }
        Ok(())
    });
}

fn assert_valid(decision: &Decision, candidates: &[usize]) -> TestCaseResult {
    match &decision.outcome {
        Outcome::Route(endpoints) => prop_assert!(!endpoints.is_empty()),
        Outcome::Reject(rejection) => {
            prop_assert!([412, 429, 503].contains(&rejection.code.status()), "{rejection}");
        }
        other @ Outcome::Abstain { .. } => prop_assert!(false, "{other:?}"),
    }
    for run in &decision.runs {
        let named =
            run.picked.iter().chain(&run.scored).chain(run.dropped.iter().map(|(endpoint, _)| endpoint));
        for endpoint in named {
            prop_assert!(candidates.contains(endpoint), "{endpoint} is not one of {candidates:?}: {run:?}");
        }
        prop_assert!(run.scored.len() + run.dropped.len() <= candidates.len());
        prop_assert!(run.scores.iter().all(|score| (0.0..=1.0).contains(score)), "{run:?}");
        prop_assert!(run.totals.iter().all(|total| total.is_finite()), "{run:?}");
    }
    let reserved = decision.reservations.iter().map(|reservation| &reservation.endpoint);
    for endpoint in decision.destination().iter().chain(reserved) {
        prop_assert!(candidates.contains(endpoint), "{endpoint} is not one of {candidates:?}");
    }
    if candidates.is_empty() {
        prop_assert!(matches!(decision.outcome, Outcome::Reject(_)));
    }
    Ok(())
}

#[test]
fn the_same_random_numbers_give_the_same_decision() {
    let inputs = (documents(), pools(), vec(steps(odd_numbers()), 1..6), any::<u64>());
    for_all(60, &inputs, |(document, pool, steps, seed)| {
        let mut fixtures = [0, 1].map(|_| Fixture::new(&document, pool.clone()));
        for (step, seed) in steps.iter().zip(seed..) {
            let [one, other] = fixtures.each_mut().map(|fixture| {
                fixture.advance(step);
                let decision = fixture.decide(&step.spec, seed);
                fixture.send(&decision);
                format!("{decision:?}")
            });
            prop_assert_eq!(one, other);
        }
        Ok(())
    });
}
