//! One picker in front of one fleet under one load, in simulated time: what clients wait, without sockets and without Envoy.
//!
//! A [`cell`](run::Cell) is a [workload](workloads::Workload) at a share of the capacity with a seed. Every [variant](pickers::Variant) gets the
//! same requests; those of sessions come when the response before has ended, so their times differ. The rules are the product's: a pool in use
//! with its ledger, and for each request an exchange from its head to the end of its response.
//!
//! Simplifications: requests, responses and readings take no time on their way, but a reading arrives [later](run::READING_DELAY); all servers are scraped
//! at the same time; there is one proxy with one worker.

pub mod capacity;
pub mod figures;
pub mod fleet;
mod kv_events;
pub mod pickers;
pub mod request;
pub mod run;
pub mod sessions;
pub mod table;
pub mod workloads;
