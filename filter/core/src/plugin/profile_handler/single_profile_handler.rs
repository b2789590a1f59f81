//! `single-profile-handler`: one profile decides.

use std::sync::Arc;

use serde::Deserialize;

use crate::plugin::{Plugin, ProfileHandler, Profiles, Roles, Schedule};
use crate::rejection::Rejection;

/// Runs the only profile there is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SingleProfileHandler {}

impl Plugin for SingleProfileHandler {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { profile_handler: Some(self), ..Roles::default() }
    }
}

impl ProfileHandler for SingleProfileHandler {
    fn schedule(&self, profiles: &mut dyn Profiles) -> Result<Schedule, Rejection> {
        profiles.run(0);
        Ok(Schedule::to(0))
    }

    fn check_profiles(&self, names: &[&str]) -> Result<(), String> {
        if names.len() == 1 {
            return Ok(());
        }
        Err(format!("single-profile-handler works with one profile; declared are {}", names.join(", ")))
    }
}
