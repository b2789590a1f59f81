//! What the API returns about pools.

pub(super) mod build;
pub mod history;
pub mod refused;
pub(super) mod routes;
pub mod since;
pub(super) mod snapshot;
mod state;
pub mod status;
mod traffic;

pub use build::of_snapshot;
