//! Where endpoints and manifests come from.

pub mod endpoints;
pub mod kubernetes;
pub mod manifests;
pub mod names;
