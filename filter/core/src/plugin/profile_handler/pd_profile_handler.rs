//! `pd-profile-handler`: prompts computed on other endpoints than the one that answers, as it was first configured.

use std::sync::Arc;

use serde::Deserialize;

use super::disagg_profile_handler::{prefiller, run_decode, run_if_agreed};
use crate::plugin::parameter::{PREFILL, PREFIX_PRODUCER, or_default, port};
use crate::plugin::{Need, NeedKind, Plugin, ProfileHandler, Profiles, Roles, Schedule};
use crate::rejection::Rejection;

/// Runs the decode profile, which names the destination, and then the prefill profile if the decider agrees. The destination
/// learns the first endpoint of the latter from `x-prefiller-host-port`.
///
/// Deprecated for `disagg-profile-handler`. In the EPP the header is the work of `prefill-header-handler`, without
/// which this handler makes no sense.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PdProfileHandler {
    /// Empty: `decode`.
    decode_profile: String,
    /// Empty: `prefill`.
    prefill_profile: String,
    /// Empty: `prefix-based-pd-decider`.
    decider_plugin_name: String,
    /// As of `data-parallel-profile-handler`; 0: ranks are sent their requests themselves.
    primary_port: u32,
    /// Whose matches the decider reads; empty: those of the default producer.
    prefix_match_info_producer_name: String,
    /// Accepted, without effect.
    prefix_plugin_type: String,
    /// Accepted, without effect.
    prefix_plugin_name: String,
}

impl PdProfileHandler {
    fn decode(&self) -> &str {
        or_default(&self.decode_profile, "decode")
    }

    fn decider(&self) -> &str {
        or_default(&self.decider_plugin_name, "prefix-based-pd-decider")
    }
}

impl Plugin for PdProfileHandler {
    fn check(&self) -> Result<(), String> {
        port(self.primary_port).map(drop)
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { profile_handler: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        let producer = or_default(&self.prefix_match_info_producer_name, PREFIX_PRODUCER);
        let decider = Need { parameter: "deciderPluginName", name: self.decider(), kind: NeedKind::Decider };
        vec![Need::prefix_producer(producer), decider]
    }
}

impl ProfileHandler for PdProfileHandler {
    fn schedule(&self, profiles: &mut dyn Profiles) -> Result<Schedule, Rejection> {
        let (mut schedule, decode) = run_decode(self.decode(), profiles)?;
        let profile = or_default(&self.prefill_profile, PREFILL);
        let prefill = run_if_agreed(self.decider(), profile, Some(decode), profiles);
        schedule.headers.extend(prefiller(profiles, &prefill));
        if let Ok(Some(port)) = port(self.primary_port) {
            schedule.through(port, profiles.cycle().endpoint(decode));
        }
        Ok(schedule)
    }

    fn check_profiles(&self, names: &[&str]) -> Result<(), String> {
        if names.contains(&self.decode()) {
            return Ok(());
        }
        Err(format!(
            "pd-profile-handler needs a profile {:?}; declared are {}",
            self.decode(),
            names.join(", ")
        ))
    }
}
