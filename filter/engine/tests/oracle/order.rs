//! Scores do not depend on the order in which discovery lists the endpoints.
//!
//! Two rules depend on the order, and are left out: the first candidate's block size counts for all, and
//! `no-hit-lru-scorer` ranks endpoints that were never used as they are listed.

use endpoint_picker::decision::{Decision, Outcome};
use endpoint_picker::pool::Endpoints;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestCaseResult};
use serde_json::{Value, json};

use crate::agreement::near;
use crate::document::documents;
use crate::fixture::Fixture;
use crate::for_all;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::world::{odd_numbers, pools, steps};

#[test]
fn the_order_of_the_pool_does_not_matter_for_scores() {
    let inputs = (documents(), pools(), vec(steps(odd_numbers()), 1..8), vec(any::<u32>(), 12), any::<u64>());
    for_all(150, &inputs, |(document, pool, mut steps, keys, seed)| {
        let document = without_order(document);
        // At each place of the reordered pool, the place in the first one.
        let mut order: Vec<usize> = (0..pool.as_slice().len()).collect();
        order.sort_by_key(|&endpoint| keys[endpoint]);
        let reordered = order.iter().map(|&endpoint| pool.as_slice()[endpoint].clone()).collect();
        let mut other = Fixture::new(&document, Endpoints::new("default".to_owned(), reordered).unwrap());
        let mut one = Fixture::new(&document, pool);
        for (step, seed) in steps.iter_mut().zip(seed..) {
            // Admission sums up readings, and rounding may go either way.
            step.spec.priority = 0;
            step.updates.iter_mut().for_each(|(_, reading, _)| reading.block_size = None);
            other.apply(one.advance(step).into());
            other.look_like(&one, &order);
            let decision = one.decide(&step.spec, seed);
            same_scores(&decision, &other.decide(&step.spec, seed), &order)?;
            other.apply(one.send(&decision));
        }
        Ok(())
    });
}

fn without_order(mut document: Value) -> Value {
    for plugin in document["plugins"].as_array_mut().into_iter().flatten() {
        if plugin["type"] == "no-hit-lru-scorer" {
            plugin["type"] = json!("queue-scorer");
            plugin["parameters"] = json!({});
        }
    }
    document
}

/// The first run's, as later ones depend on what was picked in it.
fn same_scores(one: &Decision, other: &Decision, order: &[usize]) -> TestCaseResult {
    let kind = |decision: &Decision| match &decision.outcome {
        Outcome::Reject(rejection) => Some(rejection.clone()),
        _ => None,
    };
    if one.runs.len() < 2 && other.runs.len() < 2 {
        prop_assert_eq!(kind(one), kind(other));
    }
    let (Some(one), Some(other)) = (one.runs.first(), other.runs.first()) else {
        prop_assert_eq!(one.runs.len(), other.runs.len());
        return Ok(());
    };
    let place = |endpoint: &usize| other.scored.iter().position(|&scored| order[scored] == *endpoint);
    prop_assert_eq!(one.scored.len(), other.scored.len());
    let places: Option<Vec<usize>> = one.scored.iter().map(place).collect();
    let Some(places) = places else {
        return Err(TestCaseError::fail(format!("{:?} is not {:?} in {order:?}", one.scored, other.scored)));
    };
    let rows = |scores: &[f64]| -> Vec<Vec<f64>> {
        scores.chunks(places.len().max(1)).map(<[f64]>::to_vec).collect()
    };
    let (scores, others) = (rows(&one.scores), rows(&other.scores));
    prop_assert_eq!(scores.len(), others.len());
    for (scores, others) in scores.iter().zip(&others).chain([(&one.totals, &other.totals)]) {
        let others: Vec<f64> = places.iter().map(|&place| others[place]).collect();
        near(scores, &others, "reordered")?;
    }
    Ok(())
}
