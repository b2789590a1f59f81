//! What the API returns about pools.

pub(super) mod build;
pub mod history;
mod refused;
pub(super) mod routes;
pub(super) mod snapshot;
pub mod status;

pub use build::of_snapshot;
