//! Random choices of cases and configurations, from a seed.

use endpoint_picker::rng::{Rng, SplitMix64};

/// A generator of random choices. Equal seeds give equal choices.
#[derive(Clone, Debug)]
pub(super) struct Draw {
    rng: SplitMix64,
    /// Bad bodies and the less common APIs come in turn, so that none is left out: this many were drawn.
    pub(super) bad_bodies: usize,
    pub(super) other_apis: usize,
}

impl Draw {
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: SplitMix64::new(seed), bad_bodies: 0, other_apis: 0 }
    }

    pub(super) fn below(&mut self, bound: usize) -> u64 {
        self.rng.below(bound) as u64
    }

    pub(super) fn index(&mut self, length: usize) -> usize {
        self.rng.below(length)
    }

    pub(super) fn chance(&mut self, percent: usize) -> bool {
        self.rng.below(100) < percent
    }

    pub(super) fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.rng.below(items.len())]
    }

    pub(super) fn some_of(&mut self, items: &[&str], at_most: usize) -> Vec<String> {
        let mut some: Vec<String> =
            (0..self.rng.below(at_most + 1)).map(|_| (*self.one_of(items)).to_owned()).collect();
        some.sort_unstable();
        some.dedup();
        some
    }
}
