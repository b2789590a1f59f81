//! Profile handlers: plugins that decide which profiles run, and which of them names the destination.

mod data_parallel_profile_handler;
mod deciders;
mod disagg_headers_handler;
mod disagg_profile_handler;
mod header_profile_handler;
mod pd_profile_handler;
mod single_profile_handler;

pub use data_parallel_profile_handler::DataParallelProfileHandler;
pub use deciders::{AlwaysDisaggMultimodalDecider, AlwaysDisaggPdDecider, PrefixBasedPdDecider};
pub use disagg_headers_handler::{DisaggHeadersHandler, PrefillHeaderHandler};
pub use disagg_profile_handler::DisaggProfileHandler;
pub use header_profile_handler::HeaderProfileHandler;
pub use pd_profile_handler::PdProfileHandler;
pub use single_profile_handler::SingleProfileHandler;

use core::fmt::Debug;

use crate::cycle::Cycle;
use crate::pipeline::scheduler::{Schedule, Scheduler};
use crate::rejection::Rejection;

/// Decides which profiles run, and which of them names the destination.
pub trait ProfileHandler: Debug + Send + Sync {
    /// Runs profiles by name through `scheduler`.
    fn schedule(&self, scheduler: &mut Scheduler<'_>) -> Result<Schedule, Rejection>;

    /// Whether it can work with this many profiles; says what is allowed if not.
    fn check_profiles(&self, names: &[&str]) -> Result<(), String>;
}

/// Decides whether a request is worth a stage of its own.
pub trait Decider: Debug + Send + Sync {
    /// Whether the stage is to run for a request that `decode` will serve; `None`: not known yet.
    fn agrees(&self, cycle: &Cycle<'_>, decode: Option<usize>) -> bool;
}
