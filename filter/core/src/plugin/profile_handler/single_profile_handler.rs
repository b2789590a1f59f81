//! `single-profile-handler`: one profile decides.

use serde::Deserialize;

use crate::pipeline::scheduler::{Schedule, Scheduler};
use crate::plugin::{Plugin, ProfileHandler};
use crate::rejection::Rejection;

/// Runs the only profile there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SingleProfileHandler {}

impl Plugin for SingleProfileHandler {
    fn as_profile_handler(&self) -> Option<&dyn ProfileHandler> {
        Some(self)
    }
}

impl ProfileHandler for SingleProfileHandler {
    fn schedule(&self, scheduler: &mut Scheduler<'_>) -> Result<Schedule, Rejection> {
        let Some(profile) = scheduler.profiles().next() else { return Err(Rejection::filtered_out()) };
        scheduler.run(profile);
        Ok(Schedule::to(profile))
    }

    fn check_profiles(&self, names: &[&str]) -> Result<(), String> {
        if names.len() == 1 {
            return Ok(());
        }
        Err(format!("single-profile-handler works with one profile; declared are {}", names.join(", ")))
    }
}
