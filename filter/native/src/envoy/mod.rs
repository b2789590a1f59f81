//! Requests and configurations of Envoy.

pub(crate) mod filter_config;
mod filter_pool;
mod host;
pub(crate) mod stream;
