//! The part of a latency state that only predictors need: times per token, the factors that make nine of ten
//! predictions hold, and the token limits that an endpoint has to keep.

use core::time::Duration;

use super::slopes::{Regression, Sample};

/// Share of the predictions that hold when they are multiplied with a [`Margin`]: nine of ten admitted
/// requests are meant to keep their limits (measured: `docs/benchmarks/2026-11-24-simulation.md`).
const QUANTILE: f64 = 0.9;

/// Step of the logarithm of a margin: a time above the prediction raises it by 1.8 %, a time below lowers it
/// by 0.2 %. So a margin doubles with 39 late responses in a row, and is halved by 347 early ones.
const STEP: f64 = 0.02;

/// Bounds of a margin: beyond them the prediction itself is wrong, and after a disturbance the way back
/// would be long.
const MARGINS: (f64, f64) = (0.25, 16.0);

/// A shorter prediction counts as this many milliseconds: of less, the way to the server and back is the
/// greatest part.
const SHORTEST: f64 = 1.0;

/// Maximum number of different token limits that are counted for an endpoint. Beyond it, a request with
/// another limit counts as a request without one.
const MAX_LIMITS: usize = 64;

/// A predicted time, and the time that it took, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Outcome {
    pub(super) actual: f64,
    pub(super) predicted: f64,
}

/// Times per token, and the factors by which predictions have to be multiplied so that nine of ten hold.
#[derive(Debug)]
pub struct Calibration {
    /// The times of a token after the first, over the requests in flight.
    tokens: Regression,
    /// The margin of predicted times to the first output, or to the end of the response.
    margin: Margin,
    /// The margin of predicted times of a token.
    token_margin: Margin,
}

impl Calibration {
    /// The values before the first response.
    pub(super) fn new() -> Self {
        Self {
            tokens: Regression::new(NO_TOKENS),
            margin: Margin::default(),
            token_margin: Margin::default(),
        }
    }

    /// Milliseconds for each token after the first at an endpoint with this many other requests in flight, in
    /// the mean: the regression of the time to the first output, with nothing to read.
    pub fn token_time(&self, requests: f64) -> f64 {
        self.tokens.slopes().predict(0.0, requests)
    }

    /// The factor of predicted times to the first output, or to the end of the response, whichever is
    /// predicted; 0.25..=16.
    pub fn margin(&self) -> f64 {
        self.margin.0
    }

    /// The factor of predicted times of a token, 0.25..=16.
    pub fn token_margin(&self) -> f64 {
        self.token_margin.0
    }

    pub(super) fn learn(&mut self, outcome: Outcome) {
        self.margin.learn(outcome);
    }

    /// Takes in the time of a token, with the requests that were in flight when its request was sent.
    pub(super) fn learn_token(&mut self, token: &Sample) {
        let predicted = self.token_time(token.requests);
        self.token_margin.learn(Outcome { actual: token.milliseconds, predicted });
        self.tokens.learn(token);
    }
}

/// Prior of the milliseconds for each token to read. It has no effect, because samples of the times of tokens
/// have none to read.
const NO_TOKENS: f64 = 1.0;

/// The factor by which predictions have to be multiplied so that nine of ten hold, learnt by stochastic
/// approximation of this quantile of actual / predicted times (Robbins and Monro, 1951).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Margin(f64);

impl Default for Margin {
    fn default() -> Self {
        Self(1.0)
    }
}

impl Margin {
    fn learn(&mut self, outcome: Outcome) {
        let Outcome { actual, predicted } = outcome;
        let is_above = actual > self.0 * predicted.max(SHORTEST);
        let step = STEP * (QUANTILE - if is_above { 0.0 } else { 1.0 });
        self.0 = (self.0 * step.exp()).clamp(MARGINS.0, MARGINS.1);
    }
}

/// The limits for each further token that the requests in flight at an endpoint have, in microseconds, with
/// the number of these requests; 0 for requests without a limit.
#[derive(Debug, Default)]
pub(super) struct TokenLimits(Vec<(u32, u64)>);

impl TokenLimits {
    /// Limits of no request.
    pub(super) const NONE: Self = Self(Vec::new());

    /// The lowest limit; `None` if no request is in flight, or one of them has no limit.
    pub(super) fn least(&self) -> Option<Duration> {
        let least = self.0.iter().map(|&(limit, _)| limit).min()?;
        (least > 0).then(|| Duration::from_micros(least.into()))
    }

    pub(super) fn add(&mut self, limit: u32) {
        let counted = if self.0.len() < MAX_LIMITS || self.has(limit) { limit } else { 0 };
        match self.0.iter_mut().find(|(known, _)| *known == counted) {
            Some((_, requests)) => *requests = requests.saturating_add(1),
            None => self.0.push((counted, 1)),
        }
    }

    pub(super) fn remove(&mut self, limit: u32) {
        // A limit beyond the maximum was counted as none.
        let counted = if self.has(limit) { limit } else { 0 };
        if let Some((_, requests)) = self.0.iter_mut().find(|(known, _)| *known == counted) {
            *requests -= 1;
        }
        self.0.retain(|&(_, requests)| requests > 0);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn has(&self, limit: u32) -> bool {
        self.0.iter().any(|&(known, _)| known == limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Rng, SplitMix64};
    use crate::test;

    #[test]
    fn nine_of_ten_times_are_below_the_prediction_with_the_margin() {
        for (factor, seed) in [(0.5, 1), (1.0, 2), (4.0, 3)] {
            let (mut margin, mut rng, mut kept) = (Margin::default(), SplitMix64::new(seed), 0);
            for number in 0..6_000 {
                let predicted = 10.0 + 500.0 * rng.unit();
                // Uniform between half and one and a half of the true time: the quantile is 1.4 of it.
                let actual = predicted * factor * (0.5 + rng.unit());
                kept += u32::from(number >= 1_000 && actual <= margin.0 * predicted);
                margin.learn(Outcome { actual, predicted });
            }
            assert!((4_400..4_600).contains(&kept), "{factor}: {kept} of 5000");
            assert!((margin.0 / (1.4 * factor) - 1.0).abs() < 0.1, "{factor}: {margin:?}");
        }
    }

    #[test]
    fn a_margin_is_bounded_whatever_the_times() {
        for actual in [0.0, 1e7] {
            let mut margin = Margin::default();
            for _ in 0..10_000 {
                margin.learn(Outcome { actual, predicted: 0.0 });
            }
            assert!([MARGINS.0, MARGINS.1].contains(&margin.0), "{margin:?}");
        }
    }

    #[test]
    fn the_least_token_limit_counts_unless_a_request_has_none() {
        let milliseconds = |limits: &TokenLimits| limits.least().map(|least| least.as_millis());
        let mut limits = TokenLimits::default();
        assert_eq!(milliseconds(&limits), None);
        for limit in [30_000, 20_000, 20_000] {
            limits.add(limit);
        }
        assert_eq!(milliseconds(&limits), Some(20));
        limits.add(0);
        assert_eq!(milliseconds(&limits), None);
        for limit in [0, 20_000, 20_000] {
            limits.remove(limit);
        }
        assert_eq!(milliseconds(&limits), Some(30));
    }

    #[test]
    fn limits_beyond_the_maximum_count_as_none() {
        let mut limits = TokenLimits::default();
        let all = 1..=u32::try_from(MAX_LIMITS).unwrap() + 10;
        for limit in all.clone() {
            limits.add(limit);
        }
        assert_eq!((limits.least(), limits.0.len()), (None, MAX_LIMITS + 1));
        for limit in all {
            limits.remove(limit);
        }
        assert_eq!(limits.0, []);
        limits.remove(7);
    }
}
