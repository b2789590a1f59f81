//! The rate at which the requests of a band are dispatched, and the estimate of `Retry-After` that follows
//! from it.

use core::time::Duration;

use super::nanos::Nanos;

/// Number of intervals in the mean: the newest has 1/16 of the weight.
const MEMORY: u64 = 16;

/// Places in the queue for each rejected client: the others are for clients that come meanwhile.
const SHARE: u64 = 2;

/// Maximum time after which a client is asked to come again: a forecast beyond is worth little.
const MAX_RETRY: Duration = Duration::from_secs(60);

/// The intervals between dispatches of a band while requests waited in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drain {
    /// Mean interval; `None`: no request that waited was dispatched yet.
    interval: Option<Nanos>,
    /// Intervals so far, up to [`MEMORY`].
    measured: u64,
    last: Nanos,
    /// When the client that was turned away last may come again.
    promised: Nanos,
}

impl Drain {
    /// A request that had waited since `enqueued` is dispatched.
    pub(super) fn dispatch(&mut self, enqueued: Nanos, now: Nanos) {
        if enqueued < now {
            let newest = now.0.saturating_sub(enqueued.max(self.last).0);
            self.measured = self.measured.saturating_add(1).min(MEMORY);
            let others = self.interval.map_or(0, |mean| mean.0.saturating_mul(self.measured - 1));
            self.interval = Some(Nanos(others.saturating_add(newest) / self.measured));
        }
        self.last = now;
    }

    /// `Retry-After` for a client that is rejected while `waiting` requests wait: their time, and the time of
    /// the clients that were rejected before. `None`: the rate is not known yet.
    pub(super) fn retry_after(&mut self, waiting: u64, now: Nanos) -> Option<Duration> {
        let mean = self.interval?;
        // If nothing is dispatched any more, the mean of the past is too short.
        let since_last = if waiting > 0 { now.0.saturating_sub(self.last.0) } else { 0 };
        let interval = mean.0.max(since_last);
        let behind_queue = Nanos(now.0.saturating_add(interval.saturating_mul(waiting)));
        let next = Nanos(self.promised.0.saturating_add(interval.saturating_mul(SHARE)));
        let behind_others = if self.promised > now { next } else { now };
        let latest = now.saturating_add(MAX_RETRY.into());
        self.promised = behind_queue.max(behind_others).min(latest);
        Some(self.promised.since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn at(milliseconds: u64) -> Nanos {
        Duration::from_millis(milliseconds).into()
    }

    /// A band that dispatches a request every 100 ms, from 1 s to 5 s.
    fn steady() -> Drain {
        let mut drain = Drain::default();
        (10..=50).for_each(|n| drain.dispatch(at(900), at(n * 100)));
        drain
    }

    /// As a number of milliseconds, rounded to tens.
    fn retry(drain: &mut Drain, waiting: u64, now: u64) -> Option<u128> {
        drain.retry_after(waiting, at(now)).map(|after| (after.as_millis() + 5) / 10 * 10)
    }

    #[test]
    fn nothing_is_known_before_a_request_that_waited_goes_on() {
        let mut drain = Drain::default();
        drain.dispatch(at(1_000), at(1_000));
        assert_eq!(retry(&mut drain, 0, 1_000), None);
    }

    #[test]
    fn clients_come_again_one_after_another_behind_the_queue() {
        let mut drain = steady();
        let after = [(); 3].map(|()| retry(&mut drain, 20, 5_000));
        assert_eq!(after, [Some(2_000), Some(2_200), Some(2_400)]);
        // Their times are over.
        assert_eq!(retry(&mut drain, 1, 8_000), Some(3_000), "the band stands still since 5 s");
    }

    #[test]
    fn the_time_is_bounded() {
        let mut drain = steady();
        for _ in 0..1_000 {
            assert!(retry(&mut drain, 5_000, 5_000).is_some_and(|after| after <= 60_000));
        }
        assert_eq!(retry(&mut drain, u64::MAX, 5_000), Some(60_000));
    }

    #[test]
    fn the_mean_follows_the_pace() {
        let mut drain = steady();
        (51..350).for_each(|n| drain.dispatch(at(500), at(5_000 + (n - 50) * 10)));
        assert_eq!(retry(&mut drain, 100, 7_990), Some(1_000));
    }
}
