//! `data-parallel-profile-handler`: one port of a server takes the requests for all its ranks.

use std::sync::Arc;

use serde::Deserialize;

use crate::plugin::parameter::port;
use crate::plugin::{Plugin, ProfileHandler, Profiles, Roles, Schedule};
use crate::rejection::Rejection;

/// Runs the only profile. The request goes to the picked rank's server at `primary_port`, which learns the rank from
/// `x-data-parallel-host-port`.
///
/// Deprecated: a pool has an endpoint for each of its target ports, and proxies reach every one of them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DataParallelProfileHandler {
    /// 1..=65535; 0 counts as 8000.
    primary_port: u32,
}

const PRIMARY_PORT: u16 = 8000;

impl Default for DataParallelProfileHandler {
    fn default() -> Self {
        Self { primary_port: PRIMARY_PORT.into() }
    }
}

impl Plugin for DataParallelProfileHandler {
    fn check(&self) -> Result<(), String> {
        port(self.primary_port).map(drop)
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { profile_handler: Some(self), ..Roles::default() }
    }
}

impl ProfileHandler for DataParallelProfileHandler {
    fn schedule(&self, profiles: &mut dyn Profiles) -> Result<Schedule, Rejection> {
        let &rank = profiles.run(0).first().ok_or_else(Rejection::filtered_out)?;
        let port = port(self.primary_port).ok().flatten().unwrap_or(PRIMARY_PORT);
        let mut schedule = Schedule::to(0);
        schedule.through(port, profiles.cycle().endpoint(rank));
        Ok(schedule)
    }

    fn check_profiles(&self, names: &[&str]) -> Result<(), String> {
        if names.len() == 1 {
            return Ok(());
        }
        Err(format!(
            "data-parallel-profile-handler works with one profile; declared are {}",
            names.join(", ")
        ))
    }
}
