//! How long a server takes to its first output, learnt from the chunks that came.
//!
//! The constants were chosen on 2026-11-24 in simulated time, by 13 workloads at loads of 0.5 to 0.95 with
//! one to three seeds, together with the rule of
//! [`expected_latency_scorer`](crate::plugin::ExpectedLatencyScorer). Two slopes predicted as well there as
//! 200 regression trees: median errors of 11 to 27 and of 11 to 30 %.

/// Time constant of the weights: a sample of this many milliseconds counts half. Errors grow with the time,
/// so that long times count by their relative errors, and short ones by the errors themselves.
const HALF_WEIGHT: f64 = 50.0;

/// Factor of the weight of older samples with each new one. A sample counts half after 693 later ones of
/// the pool, which take some seconds to minutes.
const KEPT: f64 = 0.999;

/// Weight of the prior for the milliseconds per token, in tokens², and for the milliseconds per request, in
/// requests².
///
/// A sample adds the square of its distance from the mean. The prior is as much as one sample 671 tokens
/// from the mean, and one 11 requests from it. So a few responses that differ in the tokens to read
/// outweigh the prior, and equal ones, which show no slope, do not.
const PRIOR: (f64, f64) = (450_000.0, 125.0);

/// Milliseconds per request in flight before the first sample: so few that they decide only between
/// endpoints that are otherwise nearly equal.
const PER_REQUEST: f64 = 0.1;

/// Factor by which the milliseconds per token differ from the prior at most. With the default prior these
/// are servers that read 400 to 160 000 tokens a second.
const MAX_CHANGE: f64 = 20.0;

/// Milliseconds per request in flight, at most: a quarter of a second for 50 requests. Queues for a place
/// and for memory have terms of their own.
const MAX_PER_REQUEST: f64 = 5.0;

/// Limit of a time, in predicted times; a shorter prediction than [`SHORT`] counts as that. One response
/// that something else held up, such as a preemption, would move a fit of least squares by much.
const MAX_FACTOR: f64 = 4.0;

/// A prediction in milliseconds below which times are cut as if it was this. So times up to 80 ms are never
/// cut: some steps of a server, for which a request may wait by chance.
const SHORT: f64 = 20.0;

/// One response: what was in its way, and how long its first output took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Tokens to read, including the request's own.
    pub tokens: f64,
    /// Other requests in flight.
    pub requests: f64,
    /// Milliseconds from the choice of the endpoint to the first output.
    pub milliseconds: f64,
}

/// Weighted sums over samples: all that a regression needs of them.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    weight: f64,
    x: f64,
    n: f64,
    y: f64,
    xx: f64,
    xn: f64,
    nn: f64,
    xy: f64,
    ny: f64,
}

/// Milliseconds to the first output: `intercept` + `per_token` · tokens to read + `per_request` · requests in
/// flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slopes {
    /// Milliseconds for each token to read.
    pub per_token: f64,
    /// Milliseconds for each other request in flight.
    pub per_request: f64,
    /// The rest, milliseconds; it may be negative.
    pub intercept: f64,
}

impl Slopes {
    /// The predicted milliseconds, 0 or more.
    pub fn predict(&self, tokens: f64, requests: f64) -> f64 {
        (self.intercept + self.per_token * tokens + self.per_request * requests).max(0.0)
    }
}

/// Slopes that are learnt from samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Regression {
    /// Milliseconds per token before the first sample.
    prior_per_token: f64,
    moments: Moments,
    slopes: Slopes,
}

impl Regression {
    /// The slopes before the first sample.
    pub(super) fn new(prior_per_token: f64) -> Self {
        let slopes = Slopes { per_token: prior_per_token, per_request: PER_REQUEST, intercept: 0.0 };
        Self { prior_per_token, moments: Moments::default(), slopes }
    }

    /// The slopes that were learnt.
    pub(super) fn slopes(&self) -> &Slopes {
        &self.slopes
    }

    /// The slopes that would have been learnt from another prior.
    pub(super) fn slopes_from(&self, prior_per_token: f64) -> Slopes {
        let is_same = prior_per_token.to_bits() == self.prior_per_token.to_bits();
        if is_same { self.slopes } else { self.moments.slopes(prior_per_token) }
    }

    /// Whether a server can have read the sample's tokens in its time, at most [`MAX_CHANGE`] times as fast
    /// as the prior. Otherwise it has read fewer: it had them cached, or refused other requests whose prompts
    /// were too long.
    pub(super) fn is_plausible(&self, sample: &Sample) -> bool {
        sample.milliseconds >= sample.tokens * self.prior_per_token / MAX_CHANGE
    }

    /// Takes in a response. Its weight is 1 for a short predicted time and falls with the square of a long
    /// one.
    pub(super) fn learn(&mut self, sample: &Sample) {
        let &Sample { tokens: x, requests: n, milliseconds } = sample;
        let predicted = self.slopes.predict(x, n);
        let y = milliseconds.min(MAX_FACTOR * predicted.max(SHORT));
        let w = (predicted / HALF_WEIGHT).mul_add(predicted / HALF_WEIGHT, 1.0).recip();
        let Moments { weight, x: sum_x, n: sum_n, y: sum_y, xx, xn, nn, xy, ny } = &mut self.moments;
        let sums = [
            (weight, 1.0),
            (sum_x, x),
            (sum_n, n),
            (sum_y, y),
            (xx, x * x),
            (xn, x * n),
            (nn, n * n),
            (xy, x * y),
            (ny, n * y),
        ];
        for (sum, value) in sums {
            *sum = *sum * KEPT + w * value;
        }
        self.slopes = self.moments.slopes(self.prior_per_token);
    }
}

impl Moments {
    /// The ridge regression with an intercept: the slopes that fit the samples best, drawn towards the prior
    /// as much as if it had been seen with the weight of [`PRIOR`].
    fn slopes(&self, prior_per_token: f64) -> Slopes {
        let Self { weight, x, n, y, xx, xn, nn, xy, ny } = *self;
        let share = if weight > 0.0 { weight.recip() } else { 0.0 };
        // Sums around the means: the intercept takes those.
        let xx = (xx - x * x * share).max(0.0) + PRIOR.0;
        let nn = (nn - n * n * share).max(0.0) + PRIOR.1;
        let xn = xn - x * n * share;
        let xy = xy - x * y * share + PRIOR.0 * prior_per_token;
        let ny = ny - n * y * share + PRIOR.1 * PER_REQUEST;
        // Positive without rounding errors, by the inequality of Cauchy and Schwarz.
        let determinant = xx * nn - xn * xn;
        let solved = |numerator: f64, otherwise: f64| {
            let solved = numerator / determinant;
            if determinant > 0.0 && solved.is_finite() { solved } else { otherwise }
        };
        let per_token = solved(xy * nn - ny * xn, prior_per_token)
            .clamp(prior_per_token / MAX_CHANGE, prior_per_token * MAX_CHANGE);
        let per_request = solved(ny * xx - xy * xn, PER_REQUEST).clamp(0.0, MAX_PER_REQUEST);
        let intercept = (y - per_token * x - per_request * n) * share;
        Slopes { per_token, per_request, intercept: if intercept.is_finite() { intercept } else { 0.0 } }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::plugin::fixture::assert_near;
    use crate::rng::{Rng, SplitMix64};
    #[cfg(all(target_family = "wasm", target_os = "unknown"))]
    use crate::test;

    const PRIOR_PER_TOKEN: f64 = 0.125;

    fn sample(tokens: f64, requests: f64, milliseconds: f64) -> Sample {
        Sample { tokens, requests, milliseconds }
    }

    #[test]
    fn the_prior_is_the_first_prediction() {
        let slopes = Moments::default().slopes(PRIOR_PER_TOKEN);
        assert_eq!(slopes, *Regression::new(PRIOR_PER_TOKEN).slopes());
        assert_eq!(slopes, Slopes { per_token: 0.125, per_request: 0.1, intercept: 0.0 });
        assert_near(&[slopes.predict(800.0, 10.0)], &[101.0]);
    }

    /// The slopes after this many responses of servers that take 8 ms, 0.053 ms a token and 0.4 ms a request.
    fn learn(prior: f64, count: usize) -> Slopes {
        let mut regression = Regression::new(prior);
        let mut rng = SplitMix64::new(7);
        for _ in 0..count {
            let (x, n) = (rng.unit() * 1_500.0, rng.unit() * 12.0);
            regression.learn(&sample(x, n, 8.0 + 0.053 * x + 0.4 * n));
        }
        *regression.slopes()
    }

    #[test]
    fn slopes_are_learnt_from_a_prior_that_is_too_high_or_too_low() {
        for prior in [1_000.0 / 8_000.0, 1_000.0 / 100_000.0] {
            let Slopes { per_token, per_request, intercept } = learn(prior, 3_000);
            assert!((0.050..0.056).contains(&per_token), "{prior}: {per_token}");
            assert!((0.2..0.6).contains(&per_request), "{prior}: {per_request}");
            assert!((6.0..11.0).contains(&intercept), "{prior}: {intercept}");
        }
    }

    #[test]
    fn slopes_stay_within_their_bounds() {
        let mut regression = Regression::new(PRIOR_PER_TOKEN);
        for n in 0..2_000 {
            regression.learn(&sample(f64::from(n % 100), 0.0, 0.0));
        }
        assert!(regression.slopes().per_token >= PRIOR_PER_TOKEN / 20.0);
        assert!(regression.slopes().per_request >= 0.0);
        let mut regression = Regression::new(1e-6);
        for n in 0..20_000 {
            regression.learn(&sample(f64::from(n % 10), f64::from(n % 7), 1e9 * f64::from(n % 7)));
        }
        let Slopes { per_token, per_request, .. } = *regression.slopes();
        assert!(per_token <= 20e-6 && per_request <= 5.0, "{per_token} {per_request}");
    }

    #[test]
    fn one_response_that_took_a_minute_changes_little() {
        let mut regression = Regression::new(PRIOR_PER_TOKEN);
        for n in 0..500 {
            let x = f64::from(n % 50) * 20.0;
            regression.learn(&sample(x, 3.0, 0.125 * x));
        }
        let before = regression.slopes().predict(500.0, 3.0);
        regression.learn(&sample(500.0, 3.0, 60_000.0));
        let after = regression.slopes().predict(500.0, 3.0);
        assert!((after - before).abs() < 1.0, "{before} {after}");
    }

    proptest! {
        #[test]
        fn slopes_are_finite_and_bounded_whatever_the_samples(
            samples in vec((0.0..1e7_f64, 0.0..1e5_f64, 0.0..1e7_f64), 0..200),
        ) {
            let mut regression = Regression::new(PRIOR_PER_TOKEN);
            for (tokens, requests, milliseconds) in samples {
                regression.learn(&sample(tokens, requests, milliseconds));
            }
            let slopes = regression.slopes();
            prop_assert!((PRIOR_PER_TOKEN / 20.0..=PRIOR_PER_TOKEN * 20.0).contains(&slopes.per_token));
            prop_assert!((0.0..=5.0).contains(&slopes.per_request));
            prop_assert!(slopes.intercept.is_finite());
        }
    }
}
