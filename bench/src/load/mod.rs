//! The load generators: checked requests at set times, and `wrk`.

pub mod bodies;
mod generator;
mod mix;
mod mixed;
mod request;
pub(crate) mod senders;
pub mod wrk;

pub use generator::{Arrivals, send_all};
pub(crate) use mix::{ID, MixedProxy, RequestMix};
pub(crate) use mixed::{Failure, MixedLoad, Phases};
pub use request::{Elsewhere, FailureKind, RequestSpec, ResponseKind};
