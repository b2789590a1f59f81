//! How long requests waited.

use core::time::Duration;

use endpoint_picker::flow_control::WAIT_BOUNDS;

use crate::report::ReportError;

/// Waits up to each of [`WAIT_BOUNDS`], and waits above the last.
const BUCKETS: usize = WAIT_BOUNDS.len() + 1;

/// Waits by their length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waits {
    counts: [u64; BUCKETS],
    seconds: f64,
    /// The longest wait in seconds, of these or earlier waits; infinite if it was not reported.
    longest: f64,
}

impl Waits {
    /// Reads reported waits. Their sum fits into 64 bits.
    pub fn read(reported: &[u64], seconds: f64) -> Result<Self, ReportError> {
        let mut counts = [0; BUCKETS];
        let sum = reported.iter().try_fold(0_u64, |sum, count| sum.checked_add(*count));
        let fits = reported.len() <= BUCKETS && sum.is_some();
        if !fits || !seconds.is_finite() || seconds < 0.0 {
            return Err(ReportError::InvalidWaits);
        }
        counts.iter_mut().zip(reported).for_each(|(own, count)| *own = *count);
        Ok(Self { counts, seconds, longest: f64::INFINITY })
    }

    /// The same waits, none of which is longer than this time.
    pub(crate) fn up_to(self, seconds: f64) -> Result<Self, ReportError> {
        if seconds >= 0.0 { Ok(Self { longest: seconds, ..self }) } else { Err(ReportError::InvalidWaits) }
    }

    /// Requests that waited.
    pub fn requests(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Seconds that they waited in all.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Upper bounds in seconds, the last infinite, each with the number of waits up to it and above the bound
    /// before.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = WAIT_BOUNDS.iter().map(Duration::as_secs_f64).chain([f64::INFINITY]);
        bounds.zip(self.counts).collect()
    }

    /// These waits without the waits of an earlier report.
    #[must_use]
    pub fn without(&self, earlier: &Self) -> Self {
        let mut counts = self.counts;
        counts.iter_mut().zip(&earlier.counts).for_each(|(own, count)| *own = own.saturating_sub(*count));
        Self { counts, seconds: (self.seconds - earlier.seconds).max(0.0), longest: self.longest }
    }

    /// Adds other waits.
    pub fn add(&mut self, other: &Self) {
        let counts = self.counts.iter_mut().zip(&other.counts);
        counts.for_each(|(own, count)| *own = own.saturating_add(*count));
        self.seconds += other.seconds;
        self.longest = self.longest.max(other.longest);
    }

    /// Milliseconds within which this share of the waits ended; between two bounds it is estimated as in
    /// Prometheus. At most the last bound and the longest wait. `None` without waits.
    pub fn percentile_ms(&self, share: f64) -> Option<f64> {
        let all = self.requests();
        if all == 0 {
            return None;
        }
        let rank = share * all as f64;
        let (mut below, mut lower) = (0.0, 0.0);
        for (bound, count) in WAIT_BOUNDS.iter().zip(self.counts) {
            let (count, upper) = (count as f64, bound.as_secs_f64().min(self.longest) * 1e3);
            if count > 0.0 && below + count >= rank {
                return Some(lower + (upper - lower) * ((rank - below) / count).clamp(0.0, 1.0));
            }
            (below, lower) = (below + count, upper);
        }
        Some(lower)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(counts: &[u64]) -> Waits {
        Waits::read(counts, 1.5).unwrap()
    }

    #[test]
    fn a_percentile_lies_between_the_bounds_of_its_bucket() {
        // Ten waits of 10 to 25 ms, ten of 50 to 100.
        let some = waits(&[0, 0, 0, 0, 0, 10, 0, 10]);
        let found = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| some.percentile_ms(share));
        assert_eq!(found, [10.0, 17.5, 25.0, 75.0, 100.0].map(Some));
        let above: Vec<u64> = [0; 16].into_iter().chain([3]).collect();
        assert_eq!(waits(&above).percentile_ms(0.5), Some(60_000.0));
        assert_eq!(Waits::default().percentile_ms(0.5), None);
    }

    #[test]
    fn no_percentile_is_longer_than_the_longest_wait() {
        // A time to live of 12 s: five waits of 5 to 10 s, five of 10 to 12 s.
        let counts = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 5];
        let some = waits(&counts).up_to(12.0).unwrap();
        let found = [0.5, 0.75, 1.0].map(|share| some.percentile_ms(share));
        assert_eq!(found, [10_000.0, 11_000.0, 12_000.0].map(Some));
        assert_eq!(waits(&counts).percentile_ms(1.0), Some(30_000.0), "it is not known");

        let mut sum = Waits::default();
        sum.add(&some);
        sum.add(&waits(&[7]).up_to(0.000_05).unwrap());
        assert_eq!(sum.percentile_ms(1.0), Some(12_000.0));
        assert_eq!(sum.without(&waits(&[7])).percentile_ms(1.0), Some(12_000.0));
        sum.add(&waits(&counts));
        assert_eq!(sum.percentile_ms(1.0), Some(30_000.0));
        // A proxy's figures may contradict each other.
        assert_eq!(waits(&counts).up_to(0.0).unwrap().percentile_ms(0.5), Some(0.0));
        assert!([-1.0, f64::NAN].into_iter().all(|longest| waits(&counts).up_to(longest).is_err()));
    }

    #[test]
    fn waits_are_added_and_taken_away() {
        let mut sum = waits(&[1, 2]);
        sum.add(&waits(&[0, 1, 5]));
        assert_eq!((sum.requests(), sum.seconds()), (9, 3.0));
        assert_eq!(sum.without(&waits(&[1, 3])).buckets()[..3], [(0.0001, 0), (0.0005, 0), (0.001, 5)]);
        assert_eq!(waits(&[1]).without(&waits(&[2])).requests(), 0);
    }

    #[test]
    fn waits_that_cannot_be_are_refused() {
        let refused = |waits: &[u64], seconds: f64| Waits::read(waits, seconds).is_err();
        assert!(!refused(&[u64::MAX; 1], 0.0));
        assert!(refused(&[u64::MAX, 1], 0.0));
        assert!(refused(&[0; 18], 0.0));
        for seconds in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(refused(&[1], seconds), "{seconds}");
        }
    }
}
