//! The agent's clock.

use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Time since the agent started; readings are stamped with it.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

/// Time since the Unix epoch, which is the same for agents on several hosts.
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Clock {
    /// A clock that starts at zero now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn now(self) -> Duration {
        self.0.elapsed()
    }

    /// The instant at this time after the start.
    pub fn at(self, since_start: Duration) -> Instant {
        self.0 + since_start
    }
}
