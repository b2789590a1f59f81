//! The engine with a proxy in memory.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

// The model server has sockets.
#[cfg(not(target_family = "wasm"))]
mod agents;
mod answers;
mod attribute_reports;
mod bodies;
mod body_routing;
mod claims;
mod conversations;
mod explanations;
mod fallback;
mod fixture;
mod grpc;
mod heads;
mod held_bodies;
mod hints;
mod late_snapshot;
mod latency;
mod limits;
mod link;
mod metrics;
mod model_list;
mod model_paths;
mod models;
mod outcomes;
mod polls;
mod prefixes;
mod proxy;
mod queue;
mod ranks;
mod records;
mod reports;
mod resumption;
mod sessions;
mod shadow_mode;
mod sink;
mod snapshots;
mod static_pools;
mod statistics;
mod store;
mod stored_responses;
mod tokens;
mod usage;
