//! Reports of proxies: received over HTTP, kept until they are too old. And the pools that proxies ask for in vain.
//!
//! They feed `/metrics` and the page, and no decision depends on them. Any client of the agent can send them, so
//! everything in them is bounded.

mod error;
mod limits;
pub(super) mod receive;
pub mod recent;
pub mod store;
pub mod unknown_pools;

pub use error::ReportError;
pub use store::Reports;
