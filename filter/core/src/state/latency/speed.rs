//! How much longer one server takes to its first outputs than the others do.

use super::slopes::Sample;

/// Weight of the newest first output in the mean of an endpoint. The times of one server differ from the
/// expected ones by 35 to 60 %, so that this mean of the last hundred varies by 3.5 to 6 %. Half and double
/// of this and of the following: `docs/benchmarks/2026-11-28-servers-and-adapters.md`.
const WEIGHT: f64 = 0.02;

/// Bounds of one time as a part of the expected one, and of a factor. Beyond them a server is better
/// removed from the pool than avoided.
const BOUNDS: (f64, f64) = (0.25, 4.0);

/// A server within this factor of the others counts as equal to them: the means of equal servers rarely
/// differ by more.
const EQUAL: f64 = 1.1;

/// A shorter expected time counts as this many milliseconds: of less, the way to the server and back is the
/// greatest part.
const SHORTEST: f64 = 1.0;

/// The speed of one endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Mean of the times to first outputs as parts of the expected ones; `None` before the first one.
    mean: Option<f64>,
    /// The factor of its costs, kept here because decisions read it far more often than it changes.
    factor: f64,
}

impl Speed {
    /// The speed before the first output.
    pub(super) const NEW: Self = Self { mean: None, factor: 1.0 };

    /// Its times over the times of the other endpoints; 1 for an equal endpoint.
    pub(super) fn factor(&self) -> f64 {
        self.factor
    }
}

impl Default for Speed {
    fn default() -> Self {
        Self::NEW
    }
}

/// The mean speed of the endpoints that have one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MeanSpeed {
    sum: f64,
    endpoints: usize,
}

impl MeanSpeed {
    /// The mean of these endpoints.
    pub(super) fn of<'a>(speeds: impl Iterator<Item = &'a Speed>) -> Self {
        let means = speeds.filter_map(|speed| speed.mean);
        means.fold(Self::default(), |all, mean| Self { sum: all.sum + mean, endpoints: all.endpoints + 1 })
    }

    /// Takes in a first output of the endpoint with this speed, which was expected after this many
    /// milliseconds by the speed of all.
    pub(super) fn learn(&mut self, speed: &mut Speed, sample: &Sample, expected: f64) {
        let part = (sample.milliseconds / expected.max(SHORTEST)).clamp(BOUNDS.0, BOUNDS.1);
        let before = speed.mean.unwrap_or_else(|| {
            // A new endpoint is equal to the others until it has shown its speed.
            let mean = if self.endpoints > 0 { self.sum / self.endpoints as f64 } else { 1.0 };
            self.sum += mean;
            self.endpoints += 1;
            mean
        });
        let mean = before + WEIGHT * (part - before);
        self.sum += mean - before;
        let factor = (mean * self.endpoints as f64 / self.sum).clamp(BOUNDS.0, BOUNDS.1);
        let is_equal = (EQUAL.recip()..=EQUAL).contains(&factor);
        *speed = Speed { mean: Some(mean), factor: if is_equal { 1.0 } else { factor } };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Rng, SplitMix64};
    use crate::test;

    /// The factors of servers after responses in turn. Each takes its part of the expected time, ± 60 %.
    fn factors<const SERVERS: usize>(parts: [f64; SERVERS], rounds: usize, seed: u64) -> [f64; SERVERS] {
        let (mut all, mut speeds) = (MeanSpeed::default(), [Speed::NEW; SERVERS]);
        let mut rng = SplitMix64::new(seed);
        for _ in 0..rounds {
            for (speed, part) in speeds.iter_mut().zip(parts) {
                let expected = 10.0 + 100.0 * rng.unit();
                let milliseconds = expected * part * (0.4 + 1.2 * rng.unit());
                all.learn(speed, &Sample { tokens: 0.0, requests: 0.0, milliseconds }, expected);
            }
        }
        speeds.map(|speed| speed.factor())
    }

    #[test]
    fn a_servers_factor_is_its_part_of_the_mean_of_all() {
        for seed in 1..=9 {
            let [slow, second, third, fast] = factors([2.0, 1.0, 1.0, 0.5], 2_000, seed);
            assert!((1.5..2.0).contains(&slow) && (0.36..0.54).contains(&fast), "{slow} {fast}");
            assert!((0.7..=1.0).contains(&second) && (0.7..=1.0).contains(&third), "{second} {third}");
        }
    }

    #[test]
    fn equal_servers_stay_equal_though_their_times_vary() {
        let all = (1..=200).flat_map(|seed| factors([1.3; 8], 300, seed));
        let unequal = all.filter(|factor| (factor - 1.0).abs() > 0.0).count();
        assert!(unequal < 1_600 / 20, "{unequal} of 1600");
    }

    #[test]
    fn factors_are_bounded_whatever_the_times() {
        for (parts, expected) in
            [([0.0, 1e9], [0.25, 1.88]), ([1e9, 1e9], [1.0, 1.0]), ([0.0, 0.0], [1.0, 1.0])]
        {
            let factors = factors(parts, 2_000, 1);
            let is_near = factors.iter().zip(expected).all(|(factor, of)| (factor - of).abs() < 0.15);
            assert!(is_near, "{parts:?}: {factors:?}");
        }
    }

    #[test]
    fn a_new_server_is_equal_to_the_others() {
        let (mut all, mut old, mut new) = (MeanSpeed::default(), Speed::NEW, Speed::NEW);
        let sample = |milliseconds| Sample { tokens: 0.0, requests: 0.0, milliseconds };
        for _ in 0..500 {
            all.learn(&mut old, &sample(300.0), 100.0);
        }
        all.learn(&mut new, &sample(300.0), 100.0);
        assert!((new.factor() - 1.0).abs() < 1e-9 && (old.factor() - 1.0).abs() < 1e-9, "{new:?} {old:?}");
        let again = MeanSpeed::of([&old, &Speed::NEW].into_iter());
        assert!((again.sum - 3.0).abs() < 0.01 && again.endpoints == 1, "{again:?}");
    }
}
