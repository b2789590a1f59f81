//! The agent's HTTP API: snapshots for filters, changes that proxies share, reports of proxies, health checks, metrics and the live page.

pub mod access;
mod changes;
pub mod connections;
mod earlier;
mod error;
mod health;
pub mod metrics;
pub mod pools;
mod protobuf;
pub mod queues;
pub mod reports;
mod router;
mod state;

pub use router::{health_router, router};
pub use state::ApiState;
