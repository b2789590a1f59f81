//! Requests and configurations of Envoy.

mod body_router;
mod configured;
pub(crate) mod filter_config;
mod filter_pool;
mod host;
mod model_list;
mod own_requests;
mod per_worker;
pub(crate) mod resumer;
pub(crate) mod stream;
pub(crate) mod wake;
