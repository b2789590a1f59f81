//! Aims for the costs of the native module.

use super::cell::{Cell, Traffic};

/// Requests per second, divided by the requests per second of the bare proxy.
pub(super) const LEAST_RATE: f64 = 0.9;
/// Streamed responses per second, divided by the bare proxy's.
pub(super) const LEAST_STREAMED: f64 = 0.98;
/// Added microseconds of the median request under steady load.
pub(super) const MOST_P50: f64 = 40.0;
/// Added processor time with the most workers, divided by that with one.
pub(super) const MOST_GROWTH: f64 = 1.3;
/// Added MiB, with [`MEMORY_WORKERS`] and up to [`MEMORY_ENDPOINTS`].
pub(super) const MOST_MEMORY: f64 = 12.0;
pub(super) const MEMORY_WORKERS: u32 = 8;
pub(super) const MEMORY_ENDPOINTS: u16 = 100;

/// Added microseconds of processor time for a request, where the bare proxy takes 42 to 47 with one worker.
pub(super) fn most_cpu(cell: Cell) -> Option<f64> {
    match cell {
        Cell { traffic: Traffic::Saturating, workers: 1, endpoints: ..=10, .. } => Some(8.0),
        Cell { traffic: Traffic::Saturating, workers: 1, endpoints: ..=100, .. } => Some(10.0),
        _ => None,
    }
}
