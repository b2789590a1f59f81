//! Pools as proxies get them: readings gathered into versioned snapshots, and endpoints as a file for Envoy's EDS.

pub mod eds;
pub mod pool_publisher;
pub mod pools;
pub mod published;
