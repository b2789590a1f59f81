//! Flow control: requests wait in front of a pool until it has capacity for them.
//!
//! A [`Machine`] is the queue of one pool. A *flow* has the requests of one fairness id and one priority, a *band* has all flows of one
//! priority. Requests are dispatched by the EPP's rules: the highest band first, unless the pool is too saturated for it; in the band
//! the flow that the fairness policy chooses; in the flow the request that the ordering policy puts first.

mod band;
pub mod config;
mod drain;
mod eviction;
mod flows;
mod machine;
mod outcome;
mod pace;
mod stages;
mod tenants;
mod time;
mod waiting;
mod waits;

pub use band::BandStatus;
pub use config::{BandConfig, Config, Eviction};
pub use flows::programs::Tokens;
pub use machine::Machine;
pub use outcome::{Event, Outcome, Ticket};
pub use stages::{StageSaturation, Stages};
pub use tenants::{MAX_TENANTS, OTHER_TENANTS, TenantStatus};
pub use waits::{WAIT_BOUNDS, Waits};
