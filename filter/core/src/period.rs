//! Spans of time by a clock that may be set back.

use core::time::Duration;

/// A time span: a start and a length.
///
/// The shell's clock may be the wall clock, and that may be set back by any amount. A start that lies further
/// ahead than the period is long can only come from there, and the period counts as over; so none lasts
/// longer than twice its length. A start that is ahead by less may come from a thread that read the clock
/// slightly later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Period {
    start: Duration,
    length: Duration,
}

impl Period {
    /// A period of this length from this time on.
    pub const fn new(start: Duration, length: Duration) -> Self {
        Self { start, length }
    }

    /// Whether the period lasts at this time.
    pub fn contains(&self, now: Duration) -> bool {
        self.start.abs_diff(now) < self.length
    }

    /// The time that is left of the period; zero if it is over.
    pub fn left(&self, now: Duration) -> Duration {
        if self.contains(now) { (self.start + self.length).saturating_sub(now) } else { Duration::ZERO }
    }

    /// Whether this time is before the start, though by less than the period is long.
    pub fn begins_soon_after(&self, time: Duration) -> bool {
        time < self.start && self.contains(time)
    }

    /// The same length from another time on.
    #[must_use]
    pub fn from(self, start: Duration) -> Self {
        Self { start, ..self }
    }
}

#[cfg(test)]
#[expect(clippy::unchecked_time_subtraction, reason = "the tests begin long after the epoch")]
mod tests {
    use super::*;
    use crate::test;

    const START: Duration = Duration::from_secs(1_000_000);
    const SECOND: Duration = Duration::from_secs(1);
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_period_ends_after_its_length() {
        let period = Period::new(START, SECOND);
        assert!(period.contains(START));
        assert!(period.contains(START + SECOND - Duration::from_nanos(1)));
        assert!(!period.contains(START + SECOND));
        assert!(!Period::default().contains(Duration::ZERO));
        assert_eq!(
            [START, START + SECOND / 4, START + HOUR].map(|now| period.left(now)),
            [SECOND, SECOND * 3 / 4, Duration::ZERO]
        );
    }

    #[test]
    fn a_period_is_over_when_the_clock_is_set_back_by_its_length_or_more() {
        let period = Period::new(START, SECOND);
        assert!(!period.contains(START - SECOND));
        assert!(!period.contains(START - HOUR));
    }

    #[test]
    fn no_period_lasts_longer_than_twice_its_length_however_the_clock_is_set_back() {
        let period = Period::new(START, SECOND);
        for back in (0..4000).step_by(50).map(Duration::from_millis) {
            let set_back = START - back;
            let over = (0..4000).find(|&ms| !period.contains(set_back + Duration::from_millis(ms)));
            assert!(over.is_some_and(|ms| ms <= 2000), "set back by {back:?}: {over:?}");
        }
    }

    #[test]
    fn a_clock_that_another_thread_read_a_moment_later_does_not_end_it() {
        assert!(Period::new(START + Duration::from_micros(5), SECOND).contains(START));
    }

    #[test]
    fn a_time_shortly_before_the_start_is_told_from_a_clock_that_was_set_back() {
        let period = Period::new(START, SECOND);
        assert!(period.begins_soon_after(START - Duration::from_micros(5)));
        for time in [START, START + SECOND, START - SECOND, START - HOUR] {
            assert!(!period.begins_soon_after(time), "{time:?}");
        }
    }
}
