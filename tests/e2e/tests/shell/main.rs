//! End-to-end tests of what each form of the filter does by itself: it frames bodies and streams, sets
//! headers, responds when a request is refused, talks with the agent, reports, and shares between workers.
//! Every change runs them with both forms; `FILTER` names the form, `wasm` or `native`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod best_server;
mod bodies;
mod control_headers;
mod demo;
mod failures;
mod listeners;
mod privileges;
mod reports;
mod sharing;
mod stored_responses;
mod without_agent;
mod workers;
