//! Numbers with the quantiles of a published trace.

use endpoint_picker::rng::{Rng, SplitMix64};

/// Quantiles of lengths or times: the least, 10 %, 25 %, 50 %, 75 %, 90 %, 99 % and the most. Between two of
/// them the logarithm of a number grows evenly.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quantiles(pub(super) [f64; 8]);

const SHARES: [f64; 8] = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0];

impl Quantiles {
    /// A number of this distribution.
    pub(super) fn draw(&self, rng: &mut SplitMix64) -> f64 {
        let share = rng.unit();
        let upper = SHARES.partition_point(|known| *known <= share).clamp(1, SHARES.len() - 1);
        let part = (share - SHARES[upper - 1]) / (SHARES[upper] - SHARES[upper - 1]);
        let [low, high] = [upper - 1, upper].map(|place| self.0[place].ln());
        (low + (high - low) * part).exp()
    }

    /// The same as a whole number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "quantiles are in range")]
    pub(super) fn whole(&self, rng: &mut SplitMix64) -> u32 {
        self.draw(rng).round() as u32
    }
}

/// A lognormal number with this median and standard deviation of its logarithm (Box and Muller).
pub(super) fn lognormal(median: f64, deviation: f64, rng: &mut SplitMix64) -> f64 {
    let radius = (-2.0 * (1.0 - rng.unit()).ln()).sqrt();
    median * (deviation * radius * (core::f64::consts::TAU * rng.unit()).cos()).exp()
}

/// An exponential number with this mean.
pub(super) fn exponential(mean: f64, rng: &mut SplitMix64) -> f64 {
    -mean * (1.0 - rng.unit()).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_numbers_have_the_quantiles() {
        let quantiles = Quantiles([1.0, 2.0, 4.0, 10.0, 30.0, 100.0, 500.0, 1_000.0]);
        let mut rng = SplitMix64::new(1);
        let mut numbers: Vec<f64> = (0..20_000).map(|_| quantiles.draw(&mut rng)).collect();
        numbers.sort_by(f64::total_cmp);
        for (share, expected) in [(0.1, 2.0), (0.5, 10.0), (0.9, 100.0), (0.99, 500.0)] {
            let found = numbers[whole_place(share, numbers.len())];
            assert!((found / expected - 1.0).abs() < 0.15, "{share}: {found} of {expected}");
        }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a place")]
    fn whole_place(share: f64, length: usize) -> usize {
        (share * length as f64) as usize
    }
}
