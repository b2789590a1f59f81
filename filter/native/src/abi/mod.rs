//! Envoy's C interface for dynamic modules, bound by hand. With the [hooks](crate::hooks) the only code with
//! `unsafe`.
//!
//! [`callbacks`] and [`late`] declare Envoy's functions. [`RequestHandle`] and [`ConfigHandle`] wrap them for
//! the current hook, and [`Scheduler`] for any thread.
//!
//! Envoy's buffers live until the hook ends, or until the next call that changes the request. The wrappers'
//! lifetimes enforce this: a reader borrows the handle, and a call that changes something borrows it mutably.

#![expect(unsafe_code, reason = "Envoy's interface is C")]

mod call;
mod callbacks;
mod cluster;
mod config;
mod late;
pub(crate) mod log;
mod request;
mod scheduler;
pub(crate) mod types;

pub(crate) use call::HeaderPairs;
pub(crate) use cluster::{BalancerHandle, ClusterHandle, Host};
pub(crate) use config::{ConfigHandle, DefinedMetric, MetricWriter};
pub(crate) use request::LocalReply;
pub use request::{Attribute, BodyPart, HeaderMap, RequestHandle};
pub(crate) use scheduler::Scheduler;

/// The number of Envoy's worker threads. To be called on the main thread.
pub(crate) fn concurrency() -> u32 {
    // SAFETY: the function takes no arguments, and configurations are made on the main thread, as it demands.
    unsafe { callbacks::get_concurrency() }
}
