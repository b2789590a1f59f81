//! Times of waiting requests, in half the bytes of a [`Duration`].

use core::time::Duration;

/// A time or duration in nanoseconds: 584 years fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Nanos(pub(super) u64);

impl Nanos {
    pub(super) const MAX: Self = Self(u64::MAX);

    pub(super) fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    pub(super) fn get(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}
