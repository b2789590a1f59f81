//! Envoy's metrics, with labels.
//!
//! All workers and configurations count into one [registry] of the process, in memory. Once a second a [`Flusher`] writes what has
//! changed into Envoy. Requests call Envoy for no metric.

mod flusher;
mod registry;
mod sink;

pub(crate) use flusher::{Flusher, Publisher, register};
pub(crate) use sink::{Series, Sink};
