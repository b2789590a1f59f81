//! Requests and configurations of Envoy.

mod body_router;
pub(crate) mod filter_config;
mod filter_pool;
mod host;
mod model_list;
mod own_requests;
mod per_worker;
pub(crate) mod resumer;
mod second_picker;
pub(crate) mod stream;
pub(crate) mod wake;
