//! Envoy Gateway with the agents as its extension server: routes to `InferencePool`s, on a real API server,
//! with proxies and servers as pods.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ai_gateway;
mod body_routing;
mod changes;
mod fallback;
mod fixture;
mod kserve;
mod outages;
mod pools;
mod rights;
mod scale;
mod upgrade;
