//! Where endpoints and manifests come from.

pub mod endpoints;
pub mod manifests;
pub mod problem;
