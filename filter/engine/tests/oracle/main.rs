//! A slow and obvious second implementation of the whole decision must agree with the core.
//!
//! Random choices, ties and draws, are not predicted: the oracle gets the choice and checks whether it is one
//! of those the rules allow.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agreement;
mod catalog;
mod document;
mod fixture;
mod invariants;
mod order;
mod rules;
mod ties;
mod world;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) use wasm_bindgen_test::wasm_bindgen_test as test;

use proptest::prelude::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestRng, TestRunner};

/// Tries `cases` inputs; `PROPERTY_SEED` at build time gives others than usual.
pub(crate) fn for_all<S: Strategy>(cases: u32, inputs: &S, holds: impl Fn(S::Value) -> TestCaseResult) {
    const SEED: u64 = 0x5eed_dec1;
    let seed = option_env!("PROPERTY_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
    let mut runner = TestRunner::new_with_rng(Config::with_cases(cases), rng);
    runner.run(inputs, holds).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}
