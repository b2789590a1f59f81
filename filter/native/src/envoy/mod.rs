//! Requests and configurations of Envoy.

mod body_router;
mod configured;
pub(crate) mod filter_config;
mod filter_pool;
mod host;
mod model_list;
mod own_requests;
pub(crate) mod own_stream;
mod pauses;
mod per_worker;
mod resumer;
pub(crate) mod stream;
pub(crate) mod wake;
