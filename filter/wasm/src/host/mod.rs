//! Every call to Envoy, as a function that returns a `Result`.

mod envoy;
mod local_response;
mod metrics;
mod request;
mod root;
mod shared_data;

pub(crate) use envoy::{Envoy, now};
pub(crate) use request::{received_bytes, use_context};
pub(crate) use root::{agent_answer, call_agent, node_id, plugin_configuration, set_tick_period};
