//! What each engine calls the metrics that the agent reads.
//!
//! A dialect is data in the EPP's own notation, so an operator's engine is one more value of [`Dialect`].

mod dialects;
mod engines;
mod metrics;
mod spec;

pub use dialects::{DEFAULT_ENGINE, Dialects, ENGINE_LABELS, UnknownEngine};
pub use metrics::{CacheInfo, Dialect, MultiEngine};
pub use spec::{MetricSpec, SpecError};
