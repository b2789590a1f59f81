//! `header-profile-handler`: a header of the request names the profile.

use std::sync::Arc;

use serde::Deserialize;

use crate::decision::rejection::Rejection;
use crate::plugin::parameter::or_default;
use crate::plugin::{Plugin, ProfileHandler, Profiles, Roles, Schedule};

/// Runs the profile that a header names, or `default_profile` without the header; the only profile, if there
/// is one.
///
/// An unknown profile is answered 429, as in the EPP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct HeaderProfileHandler {
    /// Empty: `EPP-Profile`.
    header_name: String,
    /// Empty: `decode`.
    default_profile: String,
}

impl Plugin for HeaderProfileHandler {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { profile_handler: Some(self), ..Roles::default() }
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl ProfileHandler for HeaderProfileHandler {
    fn schedule(&self, profiles: &mut dyn Profiles) -> Result<Schedule, Rejection> {
        let header = or_default(self.header_name.trim(), "epp-profile");
        let named = profiles.cycle().request.headers.get(header).unwrap_or_default().trim();
        let name = or_default(named, or_default(self.default_profile.trim(), "decode"));
        let profile = if profiles.count() == 1 { Some(0) } else { profiles.find(name) };
        let Some(profile) = profile else {
            return Err(Rejection::not_scheduled("failed to run any scheduler profile"));
        };
        profiles.run(profile);
        Ok(Schedule::to(profile))
    }

    fn check_profiles(&self, names: &[&str]) -> Result<(), String> {
        if names.is_empty() { Err("header-profile-handler needs a profile".to_owned()) } else { Ok(()) }
    }
}
