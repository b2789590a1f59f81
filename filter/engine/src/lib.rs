//! One pool in use, for any proxy.
//!
//! The rules ([`endpoint_picker`]) decide about one request at a time and remember nothing. This crate keeps everything that
//! they need beside the request. It does no I/O and reads no clock, so its tests need no proxy.
//!
//! A worker of a proxy has one [`PoolInUse`](pool_in_use::PoolInUse) for each pool: a [store](pool_store::PoolStore) with the newest
//! [view](pool_view::PoolView), which never changes and is replaced as a whole, and the [ledger], which changes with every request;
//! and its own [metrics] and random numbers. For each request it has an
//! [`Exchange`](exchange::Exchange), which calls the [proxy](proxy::Proxy). With flow control it waits in a [queue] in front of the pool,
//! which all workers share. What travels between the proxy and the
//! [agent] is decided here too, with the changes of the ledger that proxies [share](sharing).
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod agent;
mod comparison;
pub mod config;
pub mod directive;
mod elsewhere;
mod error_body;
pub mod exchange;
pub mod form;
pub mod headers;
pub mod ledger;
pub mod metadata;
pub mod metrics;
mod pool_decision;
pub mod pool_in_use;
pub mod pool_store;
pub mod pool_view;
pub mod proxy;
pub mod queue;
pub mod sharing;
pub mod snapshot;
