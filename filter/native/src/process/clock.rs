//! The clock of the engine's times.

use core::time::Duration;
use std::sync::LazyLock;
use std::time::{Instant, SystemTime};

use super::counts;

/// The time since the Unix epoch, read once by the process and continued by a clock that is never set: a step
/// of the wall clock ends no time to live, ages no reading and prolongs no pause.
pub(crate) fn now() -> Duration {
    static CLOCK: LazyLock<CachedClock> =
        LazyLock::new(|| CachedClock::started(SystemTime::now(), Instant::now()));
    counts::count_clock();
    CLOCK.at(Instant::now())
}

#[derive(Clone, Copy, Debug)]
struct CachedClock {
    started: Instant,
    /// At that instant.
    since_epoch: Duration,
}

impl CachedClock {
    fn started(wall: SystemTime, started: Instant) -> Self {
        Self { started, since_epoch: wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default() }
    }

    fn at(self, instant: Instant) -> Duration {
        self.since_epoch + instant.saturating_duration_since(self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_the_wall_clock_only_at_the_start() {
        let (wall, started) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_000), Instant::now());
        let clock = CachedClock::started(wall, started);
        assert_eq!(clock.at(started), Duration::from_secs(1_000));
        assert_eq!(clock.at(started + Duration::from_millis(20)), Duration::from_millis(1_000_020));
    }
}
