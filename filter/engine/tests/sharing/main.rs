//! Several proxies that share their changes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::unchecked_time_subtraction, reason = "the tests begin long after the epoch")]

mod fixture;
mod proxies;
mod shuffled;
mod syncs;

use proptest::prelude::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseResult, TestRng, TestRunner};

/// Tries `cases` inputs; `PROPERTY_SEED` at build time gives others than usual.
fn for_all<S: Strategy>(cases: u32, inputs: &S, holds: impl Fn(S::Value) -> TestCaseResult) {
    const SEED: u64 = 0x5eed_5a4e;
    let seed = option_env!("PROPERTY_SEED").map_or(SEED, |seed| seed.parse().unwrap());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
    let mut runner = TestRunner::new_with_rng(Config::with_cases(cases), rng);
    runner.run(inputs, holds).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}
