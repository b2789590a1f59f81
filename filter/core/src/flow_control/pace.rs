//! When dispatch cycles run.

use core::time::Duration;

use super::time::Nanos;

/// The time between cycles without an arrival.
const TICK: Duration = Duration::from_millis(1);

/// One cycle for each arrival, and one for each millisecond in which the caller asks; each dispatches one request at most. So a
/// reading that shows room does not empty the queue before the next reading.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Arrivals whose cycle has not run.
    arrivals: u64,
    /// The number of the millisecond whose cycle has run.
    tick: u64,
}

impl Pace {
    pub(super) fn arrive(&mut self) {
        self.arrivals = self.arrivals.saturating_add(1);
    }

    /// Whether a cycle runs now.
    pub(super) fn take(&mut self, now: Nanos) -> bool {
        if self.arrivals > 0 {
            self.arrivals -= 1;
            return true;
        }
        let tick = now.0 / Nanos::from(TICK).0 + 1;
        core::mem::replace(&mut self.tick, tick) < tick
    }

    /// When the next cycle without an arrival runs.
    pub(super) fn next(&self) -> Duration {
        Nanos(self.tick.saturating_mul(Nanos::from(TICK).0)).get()
    }
}
