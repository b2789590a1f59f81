//! Which agent scrapes an endpoint.

use core::time::Duration;

/// A lease as it was last read. Times are on the agent's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Lease {
    /// No agent is known to hold it.
    #[default]
    Free,
    /// This agent holds it until then.
    Own(Duration),
    /// Another agent holds it until then.
    Other(Duration),
}

/// How long a lease lasts. Another agent asks for it with the first tick after that, so it scrapes less than three intervals after the last
/// renewal.
pub(super) fn term(interval: Duration) -> Duration {
    interval * 7 / 4
}

impl Lease {
    /// Whether this agent has to renew it: less than an interval is left.
    pub(super) fn is_due(self, now: Duration, interval: Duration) -> bool {
        matches!(self, Self::Own(until) if until < now + interval)
    }

    /// Whether this agent holds it; `None`: no agent is known to.
    pub(super) fn is_own(self, now: Duration) -> Option<bool> {
        match self {
            Self::Own(until) if now < until => Some(true),
            Self::Other(until) if now < until => Some(false),
            Self::Free | Self::Own(_) | Self::Other(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_within_three_intervals_and_is_renewed_before() {
        let (interval, now) = (Duration::from_millis(100), Duration::from_secs(9));
        let until = now + term(interval);
        assert!(term(interval) + interval < 3 * interval);
        for (lease, is_own) in [(Lease::Own(until), true), (Lease::Other(until), false)] {
            assert_eq!(lease.is_own(now), Some(is_own));
            assert_eq!(lease.is_own(until), None);
        }
        assert_eq!(Lease::Free.is_own(now), None);
        assert!(!Lease::Own(until).is_due(now, interval));
        assert!(Lease::Own(until).is_due(now + interval, interval));
        assert!(!Lease::Other(until).is_due(until, interval));
    }
}
