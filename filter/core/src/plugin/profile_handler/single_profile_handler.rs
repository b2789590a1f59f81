//! `single-profile-handler`: one profile decides.

use core::num::NonZeroU16;
use std::sync::Arc;

use serde::Deserialize;

use crate::decision::rejection::Rejection;
use crate::plugin::{Plugin, ProfileHandler, Profiles, Roles, Schedule};

/// Runs the only profile there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SingleProfileHandler {
    /// The port at which a server accepts the requests for all its ranks. Only the agent writes it: it lowers
    /// `data-parallel-profile-handler` to this handler.
    primary_port: Option<NonZeroU16>,
}

impl Plugin for SingleProfileHandler {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { profile_handler: Some(self), ..Roles::default() }
    }
}

impl ProfileHandler for SingleProfileHandler {
    fn schedule(&self, profiles: &mut dyn Profiles) -> Result<Schedule, Rejection> {
        let &picked = profiles.run(0).first().ok_or_else(Rejection::filtered_out)?;
        let mut schedule = Schedule::to(0);
        if let Some(port) = self.primary_port {
            schedule.through(port, profiles.cycle().endpoint(picked));
        }
        Ok(schedule)
    }

    fn check_profiles(&self, names: &[&str]) -> Result<(), String> {
        if names.len() == 1 {
            return Ok(());
        }
        Err(format!("single-profile-handler works with one profile; declared are {}", names.join(", ")))
    }
}
