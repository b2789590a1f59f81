//! The load: one generator for requests at set times ([`mixed`], [`schedule`]), and `wrk` where the cost of the proxy itself is
//! measured, because only a load generator that takes next to no processor time leaves it to the proxy.

pub(crate) mod bodies;
pub(crate) mod capacity;
mod generator;
mod mix;
mod mixed;
mod request;
pub(crate) mod schedule;
pub(crate) mod senders;
pub(crate) mod workload;
pub(crate) mod wrk;

pub(crate) use generator::{Arrivals, send_all};
pub(crate) use mix::{ID, MixedProxy, RequestMix};
pub(crate) use mixed::{Failure, MixedLoad, Phases};
pub(crate) use request::{AnswerKind, FailureKind, RequestSpec};
