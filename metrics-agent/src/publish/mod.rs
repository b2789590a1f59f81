//! Publishes pools: readings gathered into versioned snapshots for filters, and endpoint files for Envoy's EDS.

pub mod eds;
pub mod pool_publisher;
pub mod pools;
pub mod snapshot;
