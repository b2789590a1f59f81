//! Publishes pools: readings gathered into versioned snapshots for filters, endpoint files for Envoy's EDS, and reports to the
//! objects of a cluster.

pub mod cluster;
pub mod eds;
pub mod pool_publisher;
pub mod pools;
pub mod snapshot;
