//! Figures of a queue that metrics show.

mod tenants;

use core::time::Duration;

use super::outcome::Outcome;
pub use tenants::{MAX_TENANTS, OTHER_TENANTS, TenantStatus};
pub(super) use tenants::{TenantSlot, Tenants};

/// Requests that wait in a band, and how waits have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BandStatus {
    /// Its priority.
    pub priority: i32,
    /// Waiting requests.
    pub requests: u64,
    /// The lengths of their bodies.
    pub bytes: u64,
    /// Maximum number of requests that may wait.
    pub max_requests: u64,
    /// Maximum number of bytes that may wait.
    pub max_bytes: u64,
    /// Waits that have ended, in the order of [`Outcome::ALL`].
    pub ends: [Waits; Outcome::ALL.len()],
}

/// Upper bounds of the EPP's histogram of waits.
pub const WAIT_BOUNDS: [Duration; 16] = [
    Duration::from_micros(100),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
];

/// Times that requests waited, by their length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    counts: [u64; WAIT_BOUNDS.len() + 1],
    total: Duration,
    longest: Duration,
}

impl Waits {
    /// Counts a wait with this end among those in the order of [`Outcome::ALL`].
    pub(super) fn count(ends: &mut [Self; Outcome::ALL.len()], outcome: Outcome, waited: Duration) {
        if let Some(waits) = ends.get_mut(outcome as usize) {
            waits.add(waited);
        }
    }

    /// Adds a time.
    pub fn add(&mut self, waited: Duration) {
        // Most requests do not wait.
        let bucket = if waited.is_zero() { 0 } else { WAIT_BOUNDS.partition_point(|bound| *bound < waited) };
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.total = self.total.saturating_add(waited);
        self.longest = self.longest.max(waited);
    }

    /// Counts of requests by their wait: up to each of [`WAIT_BOUNDS`] and longer than the bound before; the
    /// last longer than all bounds.
    pub fn counts(&self) -> &[u64] {
        &self.counts
    }

    /// The same without zeros at the end.
    pub fn used_counts(&self) -> &[u64] {
        let used = self.counts.iter().rposition(|&count| count > 0).map_or(0, |last| last + 1);
        self.counts.get(..used).unwrap_or_default()
    }

    /// All requests.
    pub fn requests(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of the waits.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The longest wait.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn a_wait_counts_below_the_first_bound_that_it_does_not_exceed() {
        let mut waits = Waits::default();
        let waited =
            [Duration::ZERO, WAIT_BOUNDS[0], WAIT_BOUNDS[0] + Duration::from_nanos(1), WAIT_BOUNDS[15]];
        waited.into_iter().chain([Duration::from_secs(61)]).for_each(|waited| waits.add(waited));
        let mut expected = [0; 17];
        (expected[0], expected[1], expected[15], expected[16]) = (2, 1, 1, 1);
        assert_eq!(waits.counts(), expected);
        assert_eq!(waits.requests(), 5);
        assert_eq!(waits.total(), Duration::from_nanos(121_000_200_001));
        assert_eq!(waits.longest(), Duration::from_secs(61));
    }
}
