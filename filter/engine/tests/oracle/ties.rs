//! Equals are equal: whoever may be picked is picked some time.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::document::documents;
use crate::fixture::Fixture;
use crate::for_all;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::world::{odd_numbers, pools, steps};

/// The least likely of 12 equals stays away from this many draws once in 10¹⁰ times.
const DRAWS: u64 = 300;

#[test]
fn each_of_the_best_is_picked_sooner_or_later() {
    let inputs = (documents(), pools(), steps(odd_numbers()), any::<u32>());
    for_all(80, &inputs, |(mut document, pool, mut step, seed)| {
        // No request is refused by chance.
        step.spec.priority = 0;
        for plugin in document["plugins"].as_array_mut().into_iter().flatten() {
            if plugin["type"].as_str().unwrap().ends_with("-picker") {
                plugin["type"] = "max-score-picker".into();
            }
        }
        let mut fixture = Fixture::new(&document, pool);
        fixture.advance(&step);
        let decision = fixture.decide(&step.spec, u64::from(seed));
        let Some(run) = decision.runs.first() else { return Ok(()) };
        let best = run.totals.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let equals = run.scored.iter().zip(&run.totals).filter(|(_, total)| **total >= best);
        let equals: BTreeSet<usize> = equals.map(|(&endpoint, _)| endpoint).collect();
        let draws = (0..DRAWS).map(|draw| fixture.decide(&step.spec, u64::from(seed) + draw));
        let picked: BTreeSet<usize> =
            draws.filter_map(|decision| decision.runs.first()?.picked.first().copied()).collect();
        prop_assert_eq!(picked, equals);
        Ok(())
    });
}
