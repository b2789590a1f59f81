//! The scores of many endpoints: over endpoints that follow each other in the pool, the formula is a loop
//! over plain arrays, which the compiler vectorizes.

use core::mem::take;
use core::ops::Range;

use super::cost::Costs;
use super::formula::CostInputs;
use crate::pool::load::{FractionalLoad, Load};
use crate::state::latency::CostRows;

/// Maximum number of endpoints of a run, whose inputs are on the stack.
const MAX_RUN: usize = 64;

/// A value for each endpoint of a run.
type Values = [f64; MAX_RUN];

impl Costs<'_> {
    /// Writes the scores of the candidates.
    pub(super) fn score(&mut self, candidates: &[usize], scores: &mut [f64]) {
        debug_assert!(candidates.is_sorted(), "candidates are in the pool's order");
        // The slots of the scores hold the requests until their mean is known.
        for_each_run(candidates, scores, |first, slots| self.write_requests(first, slots));
        self.compare(scores);
        for_each_run(candidates, scores, |first, slots| self.write_scores(first, slots));
    }

    /// Writes the requests in flight at the endpoints of a run.
    fn write_requests(&self, first: usize, slots: &mut [f64]) {
        let run = first..first + slots.len();
        let Some((rows, loads)) = self.inputs_of(run.clone()) else {
            slots.iter_mut().zip(run).for_each(|(slot, endpoint)| *slot = self.requests(endpoint));
            return;
        };
        // Loads are at most [`Load::MAX`], and a signed number becomes a float by fewer instructions.
        let counted = values(loads.iter().map(|load| load.requests.cast_signed() as f64));
        let mut known = counted;
        self.subtract_deferred(first, &mut known, |load| load.requests);
        for (at, ((slot, &counted), &known)) in slots.iter_mut().zip(&counted).zip(&known).enumerate() {
            *slot = self.formula.requests(&rows.row(at), counted, known);
        }
    }

    /// Writes the scores of the endpoints of a run, whose slots hold the requests in flight there.
    fn write_scores(&self, first: usize, slots: &mut [f64]) {
        let run = first..first + slots.len();
        let Some((rows, loads)) = self.inputs_of(run.clone()) else {
            slots
                .iter_mut()
                .zip(run)
                .for_each(|(slot, endpoint)| *slot = self.terms(endpoint, *slot).score());
            return;
        };
        let mut tokens = values(loads.iter().map(|load| load.tokens.cast_signed() as f64));
        self.subtract_deferred(first, &mut tokens, |load| load.tokens);
        let (uncached, adapter) = (self.uncached_of(run.clone()), self.adapter_costs_of(run));
        let inputs = tokens.iter().zip(&uncached).zip(&adapter);
        for (at, (slot, ((&tokens, &uncached), &adapter))) in slots.iter_mut().zip(inputs).enumerate() {
            let inputs = CostInputs { requests: *slot, tokens, uncached, adapter };
            *slot = self.formula.terms(&rows.row(at), &inputs).score();
        }
    }

    /// The rows of a run and the loads in flight; `None`: some are missing.
    #[inline]
    fn inputs_of(&self, run: Range<usize>) -> Option<(CostRows<'_>, &[Load])> {
        Some((self.columns?.rows(run.clone())?, self.cycle.input.in_flight.get(run)?))
    }

    /// Subtracts the [deferred](crate::state::deferred_load) part from loads of `first` and the endpoints
    /// behind it.
    #[inline]
    fn subtract_deferred(&self, first: usize, loads: &mut Values, part: impl Fn(&FractionalLoad) -> f64) {
        let deferred = self.cycle.input.deferred.get(first..).unwrap_or_default();
        for (load, deferred) in loads.iter_mut().zip(deferred) {
            *load = (*load - part(deferred)).max(0.0);
        }
    }

    /// Tokens of the request that the endpoints of a run have not cached.
    #[inline]
    fn uncached_of(&self, run: Range<usize>) -> Values {
        let Some(matched) = self.prefix.matched.get(run.clone()) else {
            return values(run.map(|endpoint| self.uncached(endpoint)));
        };
        // Endpoints that follow each other mostly have the same number of blocks of a prompt: none.
        let (mut last, mut uncached) = (self.prefix.blocks(run.start), self.uncached(run.start));
        values(matched.iter().zip(run).map(|(&blocks, endpoint)| {
            if blocks != last {
                (last, uncached) = (blocks, self.uncached(endpoint));
            }
            uncached
        }))
    }

    /// The costs of the model at the endpoints of a run, if it is an adapter.
    #[inline]
    fn adapter_costs_of(&self, run: Range<usize>) -> Values {
        let adapters = self.adapter.map_or(0..0, |_| run);
        values(adapters.map(|endpoint| self.adapter_cost(endpoint)))
    }
}

/// These values, and 0 behind them.
#[inline]
fn values(of_run: impl Iterator<Item = f64>) -> Values {
    let mut values = [0.0; MAX_RUN];
    values.iter_mut().zip(of_run).for_each(|(slot, value)| *slot = value);
    values
}

/// Calls `write` with the first endpoint of each run of candidates that follow each other in the pool, and
/// with their slots.
fn for_each_run(mut candidates: &[usize], mut slots: &mut [f64], write: impl Fn(usize, &mut [f64])) {
    while let Some(&first) = candidates.first() {
        let next = candidates.get(..MAX_RUN).unwrap_or(candidates);
        // In the pool's order, so that the last one shows whether all follow each other: nearly always.
        let run = if next.last() == Some(&(first + next.len() - 1)) {
            next.len()
        } else {
            next.iter().zip(first..).take_while(|&(&endpoint, expected)| endpoint == expected).count()
        };
        let Some((part, later)) = take(&mut slots).split_at_mut_checked(run) else { return };
        write(first, part);
        (candidates, slots) = (candidates.get(run..).unwrap_or_default(), later);
    }
}
