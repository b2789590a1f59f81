//! The measured part of a run.

use std::time::Duration;

/// Which requests are measured.
#[derive(Clone, Copy, Debug)]
pub enum Span {
    /// Requests that are sent between these times.
    Time {
        /// The first time.
        begin: Duration,
        /// The time from which no more are sent.
        end: Duration,
    },
    /// Requests behind the first ones, up to this number.
    Count {
        /// Number of the first ones.
        before: usize,
        /// Number of all.
        all: usize,
    },
}

impl Span {
    /// Whether the next request is measured, after this many and at this time; `None`: no more are sent.
    pub(super) fn measures(self, sent: usize, now: Duration) -> Option<bool> {
        match self {
            Self::Time { begin, end } => (now < end).then_some(now >= begin),
            Self::Count { before, all } => (sent < all).then_some(sent >= before),
        }
    }

    /// The part of the run that has passed, 0 to 1.
    pub(super) fn passed(self, sent: usize, now: Duration) -> f64 {
        match self {
            Self::Time { end, .. } => now.as_secs_f64() / end.as_secs_f64(),
            Self::Count { all, .. } => sent as f64 / all as f64,
        }
    }

    /// The beginning of a slow spell: after a quarter of the measured time.
    pub(super) fn slow_from(self) -> Duration {
        match self {
            Self::Time { begin, end } => begin + end.saturating_sub(begin) / 4,
            Self::Count { .. } => Duration::MAX / 2,
        }
    }
}
