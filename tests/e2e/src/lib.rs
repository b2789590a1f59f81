//! Parts that the end-to-end tests share.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

pub mod chaos;
pub mod fixture;
pub mod policy_fixture;
pub mod secured_agent;
pub mod statistics;
pub mod steady_load;
