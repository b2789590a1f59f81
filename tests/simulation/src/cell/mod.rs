//! One picker in front of one fleet under one load, in simulated time: what clients wait, without sockets and
//! without Envoy.
//!
//! A [`cell`](run::Cell) is a [workload](workloads::Workload) at a share of the capacity with a seed. Every
//! [variant](variant::Variant) gets the same requests; those of sessions come when the response before has
//! ended, so their times differ. The rules are the product's: a pool in use with its ledger, and for each
//! request an exchange from its head to the end of its response.
//!
//! The [run](metrics_agent_replay::simulation) and its simplifications are the replay's.
//! [Conditions](conditions::Conditions) add several proxies, late chunks, foreign requests and resets.
//!
//! [`regret`] has the cells of all kinds with their bars, and compares the recommended rules with the best of
//! the simple ones.

pub mod capacity;
pub mod conditions;
mod proxies;
pub mod regret;
pub mod run;
pub mod sessions;
pub mod source;
pub mod table;
pub mod variant;
pub mod workloads;
