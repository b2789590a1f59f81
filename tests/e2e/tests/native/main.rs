//! End-to-end tests of what only the native module has: panics that it catches, its own way to the agent, and
//! the queue in front of the pool.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod attribute_reports;
mod body_routing;
mod cached_prefixes;
mod choosing;
mod clusters;
mod fallback;
mod kv_events;
mod limits;
mod many_pools;
mod model_list;
mod panics;
mod queue;
mod queue_chaos;
mod queue_limits;
mod resumption;
mod routes;
mod steering;
mod stored_responses;
