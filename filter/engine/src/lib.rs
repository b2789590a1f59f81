//! One pool in use, for any proxy.
//!
//! The rules ([`endpoint_picker`]) decide about one request at a time and keep no state. This crate keeps all
//! state that they read in addition to the request. It does no I/O and reads no clock, so its tests need no
//! proxy.
//!
//! A worker of a proxy has one [`WorkerPool`](worker_pool::WorkerPool) for each pool: a
//! [store](worker_pool::store::PoolStore) with the newest [view](pool_view::PoolView), which never changes
//! and is replaced as a whole, and the [ledger], which changes with every request; and its own [metrics] and
//! random numbers. For each request it has an [`Exchange`](exchange::Exchange), which calls the
//! [proxy](proxy::Proxy). With flow control it waits in a [queue] in front of the pool, which all workers
//! share. Rules that match prompts by the [caches](prefix_caches) of servers read these before the ledger.
//! What travels between the proxy and the [agent] over the [link] is decided here too, with the changes of
//! the ledger that proxies [share](sharing) and the [record] of finished requests. A
//! [static pool](static_pool) has no agent.
#![cfg_attr(not(test), warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

pub mod agent;
pub mod body_routing;
pub mod budget;
pub mod config;
pub mod exchange;
pub mod form;
pub mod ledger;
pub mod link;
pub mod metrics;
pub mod model_list;
pub mod pool_view;
pub mod prefix_caches;
pub mod proxy;
pub mod queue;
pub mod record;
pub mod resume;
pub mod sharing;
pub mod static_pool;
#[cfg(feature = "testing")]
pub mod testing;
pub mod worker_pool;
