//! Profile handlers: plugins that decide which profiles run, and which of them names the destination.

mod deciders;
mod disagg_profile_handler;
mod header_profile_handler;
mod single_profile_handler;

pub use deciders::{AlwaysDisaggMultimodalDecider, AlwaysDisaggPdDecider, PrefixBasedPdDecider};
pub use disagg_profile_handler::DisaggProfileHandler;
pub use header_profile_handler::HeaderProfileHandler;
pub use single_profile_handler::SingleProfileHandler;

use core::fmt::Debug;
use core::num::NonZeroU16;

use crate::decision::rejection::Rejection;
use crate::input::cycle::Cycle;
use crate::pool::Endpoint;

/// Decides which profiles run, and which of them names the destination.
pub trait ProfileHandler: Debug + Send + Sync {
    /// Runs profiles.
    fn schedule(&self, profiles: &mut dyn Profiles) -> Result<Schedule, Rejection>;

    /// Refuses profiles that it cannot work with, with what is allowed.
    fn check_profiles(&self, names: &[&str]) -> Result<(), String>;
}

/// Decides whether a request is worth a stage of its own.
pub trait Decider: Debug + Send + Sync {
    /// Whether the stage runs for a request that `decode` will serve; `None`: not decided yet.
    fn agrees(&self, cycle: &Cycle<'_>, decode: Option<usize>) -> bool;
}

/// The profiles and deciders of a pipeline, for one decision. Profiles are given by their index in the
/// configuration.
pub trait Profiles {
    /// The decision in progress.
    fn cycle(&self) -> Cycle<'_>;

    /// How many profiles there are.
    fn count(&self) -> usize;

    /// The profile of this name.
    fn find(&self, name: &str) -> Option<usize>;

    /// Runs a profile. Returns its choice, best first; empty if its filters left nothing.
    fn run(&mut self, profile: usize) -> &[usize] {
        self.run_near(profile, None)
    }

    /// The same for a stage after one that picked the endpoint `peer`.
    fn run_near(&mut self, profile: usize, peer: Option<usize>) -> &[usize];

    /// Whether the decider at this place among the deciders that the profile handler needs
    /// [agrees](Decider::agrees) to a stage; never if there is none.
    fn agrees(&self, decider: usize, decode: Option<usize>) -> bool;
}

/// The result of a profile handler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// The profile whose choice is the destination.
    pub primary: usize,
    /// Request headers that name the endpoints of other stages to the destination.
    pub headers: Vec<(&'static str, String)>,
    /// The port at which the servers of the primary profile's choice accept requests for all their ranks;
    /// `None`: each endpoint accepts its own.
    pub primary_port: Option<NonZeroU16>,
}

impl Schedule {
    /// The choice of this profile is the destination.
    pub fn to(profile: usize) -> Self {
        Self { primary: profile, ..Self::default() }
    }

    /// Sends the request to this port of the server, with a header that names `rank`.
    pub fn through(&mut self, port: NonZeroU16, rank: &Endpoint) {
        self.primary_port = Some(port);
        self.headers.push(("x-data-parallel-host-port", rank.printed_address().to_owned()));
    }
}
