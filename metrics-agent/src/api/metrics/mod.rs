//! The agent's metrics: its own counters, and gauges of the pools.

pub(super) mod counters;
mod families;
mod pool_gauges;
mod queue_metrics;
pub(super) mod text;

pub use counters::ApiMetrics;
