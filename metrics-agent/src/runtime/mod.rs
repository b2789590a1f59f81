//! What every stage runs on: the clock, the log, tasks, and counters.

pub mod clock;
pub mod logging;
pub mod tasks;
pub mod telemetry;
