//! The [ledger](endpoint_picker_engine::ledger), replicated between isolated workers.
//!
//! A *worker* is one isolated copy of the filter in a proxy: in Envoy a wasm VM, one for each worker thread
//! and one for the main thread. Workers have no memory in common. All they share is a map of keys to bytes
//! with compare-and-swap, [`SharedData`], and over it they decide as one: every worker applies the changes of
//! all workers in one order, from a log.
//!
//! | key | value |
//! |---|---|
//! | `endpoint-picker/vms` | the last worker number in use ([`next_worker_number`]) |
//! | `…/log`, `…/log/{n}` | the changes of all workers ([`Replica`]) |
//! | `…/members` | the workers that there are |
//! | `…/lease` | the worker that polls the agent ([`Lease`]) |
//! | `…/sender` | this proxy as a sender of changes to other proxies ([`SharedSender`]) |
//! | `…/version`, `…/topology`, `…/readings` | the newest snapshot ([`SharedSnapshot`]) |
//!
//! `…` is `endpoint-picker/{version}/{pool}`: modules of different versions in one proxy keep apart, because
//! their values need not mean the same. Values are words of 64 bits, little-endian.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod entry;
mod lease;
mod membership;
mod replica;
mod shared_data;
mod shared_log;
mod shared_sender;
mod shared_snapshot;
mod words;

pub use lease::Lease;
pub use replica::Replica;
pub use shared_data::{SharedData, Versioned, next_worker_number};
pub use shared_sender::SharedSender;
pub use shared_snapshot::{NewSnapshot, SharedSnapshot};
pub use words::words;
