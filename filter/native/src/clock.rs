//! The clock of the engine's times.

use core::time::Duration;
use std::time::SystemTime;

/// The wall clock, since the Unix epoch. Marks of restarts in snapshots are by the same origin.
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
