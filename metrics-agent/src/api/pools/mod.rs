//! What the API returns about pools.

pub(super) mod build;
pub mod history;
mod reason;
pub mod refused;
pub(super) mod routes;
pub mod since;
pub(super) mod snapshot;
pub mod status;
mod traffic;

pub use build::of_snapshot;
