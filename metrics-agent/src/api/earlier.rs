//! Counts at earlier times, to tell what happened recently from counts since the start.

use core::time::Duration;

/// Waits in the queue and responses are recent for one to two of these periods.
pub(in crate::api) const RECENT: Duration = Duration::from_secs(30);

/// A value at two earlier times: the older one is between one and two periods old, unless it is the first.
#[derive(Clone, Debug)]
pub(in crate::api) struct Earlier<T> {
    older: (Duration, T),
    newer: (Duration, T),
}

impl<T: Clone> Earlier<T> {
    /// Begins with this value: nothing is recent yet.
    pub(in crate::api) fn begin(value: T, now: Duration) -> Self {
        Self { older: (now, value.clone()), newer: (now, value) }
    }

    /// Values to compare the next one with. `value` is the present one.
    #[must_use]
    pub(in crate::api) fn next(self, period: Duration, now: Duration, value: impl FnOnce() -> T) -> Self {
        if now.saturating_sub(self.newer.0) < period {
            return self;
        }
        Self { older: self.newer, newer: (now, value()) }
    }

    /// The older value.
    pub(in crate::api) fn value(&self) -> &T {
        &self.older.1
    }

    /// The time since the older value.
    pub(in crate::api) fn elapsed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.older.0)
    }
}
