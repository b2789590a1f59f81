//! Clients, pickers and model servers in simulated time: what clients wait, without sockets and Envoy.
//!
//! Nothing but the simulation takes processor time, so a figure follows from the rules and not from the
//! machine. The rules are the product's: a pool in use with its ledger, and for each request an exchange from
//! its head to the end of its response. The servers are [a model](metrics_agent_server_model).
//!
//! Simplifications: requests, responses and readings take no time on their way, but a reading arrives
//! [later](run::READING_DELAY); all servers are scraped at the same time; a proxy has one worker.

pub mod events;
pub mod figures;
pub mod fleet;
mod kv_events;
pub mod pickers;
pub mod proxies;
pub mod request;
pub mod run;
pub mod server;
pub mod sessions;
pub mod span;
