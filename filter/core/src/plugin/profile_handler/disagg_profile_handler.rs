//! `disagg-profile-handler`: prompts computed, and images encoded, on other endpoints than the one that answers.

use std::sync::Arc;

use serde::Deserialize;

use crate::plugin::parameter::{PREFILL, PREFIX_PRODUCER, or_default};
use crate::plugin::{Need, NeedKind, Plugin, ProfileHandler, Profiles, Roles, Schedule};
use crate::rejection::Rejection;

/// Runs a profile for each stage. The decode profile names the destination; headers name the other stages' endpoints to it:
/// `x-prefiller-host-port`, the first endpoint of the prefill profile, and `x-encoder-hosts-ports`, all endpoints of the
/// encode profile.
///
/// - `decode-first`: decode; then encode and prefill, each if its decider agrees for the endpoint picked.
/// - `prefill-first`: prefill; encode if its decider agrees; decode.
///
/// A stage without a profile, or whose filters leave nothing, is left out; without a decode endpoint the answer is 429.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DisaggProfileHandler {
    stage_order: StageOrder,
    /// The profiles' names; `decode`, `prefill` and `encode` if not given.
    profiles: ProfileNames,
    /// The deciders' names; without one the stage does not run.
    deciders: Deciders,
    /// Deprecated for `profiles.decode`, as the following are for theirs.
    decode_profile: String,
    prefill_profile: String,
    encode_profile: String,
    prefill_decider_plugin_name: String,
    encode_decider_plugin_name: String,
    /// Deprecated for `deciders.prefill` too; the other one goes before.
    decider_plugin_name: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StageOrder {
    #[default]
    DecodeFirst,
    PrefillFirst,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct ProfileNames {
    decode: String,
    prefill: String,
    encode: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Deciders {
    prefill: String,
    encode: String,
}

impl DisaggProfileHandler {
    fn decode(&self) -> &str {
        or_default(or_default(&self.profiles.decode, &self.decode_profile), "decode")
    }

    fn prefill(&self) -> &str {
        or_default(or_default(&self.profiles.prefill, &self.prefill_profile), PREFILL)
    }

    fn encode(&self) -> &str {
        or_default(or_default(&self.profiles.encode, &self.encode_profile), "encode")
    }

    fn prefill_decider(&self) -> &str {
        let flat = or_default(&self.prefill_decider_plugin_name, &self.decider_plugin_name);
        or_default(&self.deciders.prefill, flat)
    }

    fn encode_decider(&self) -> &str {
        or_default(&self.deciders.encode, &self.encode_decider_plugin_name)
    }
}

impl Plugin for DisaggProfileHandler {
    fn check(&self) -> Result<(), String> {
        let flat = [
            ("decodeProfile", &self.decode_profile),
            ("prefillProfile", &self.prefill_profile),
            ("encodeProfile", &self.encode_profile),
            ("prefillDeciderPluginName", &self.prefill_decider_plugin_name),
            ("encodeDeciderPluginName", &self.encode_decider_plugin_name),
            ("deciderPluginName", &self.decider_plugin_name),
        ];
        let is_nested = self.profiles != ProfileNames::default() || self.deciders != Deciders::default();
        if let Some((parameter, _)) = flat.iter().find(|(_, value)| is_nested && !value.is_empty()) {
            return Err(format!("{parameter} is deprecated and does not go with profiles and deciders"));
        }
        if self.stage_order == StageOrder::PrefillFirst && !self.prefill_decider().is_empty() {
            return Err("deciders.prefill is given; with stageOrder prefill-first there is none".to_owned());
        }
        Ok(())
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { profile_handler: Some(self), ..Roles::default() }
    }

    /// The deciders read prefix matches, and need the default producer for that.
    fn needs(&self) -> Vec<Need<'_>> {
        let deciders =
            [("deciders.prefill", self.prefill_decider()), ("deciders.encode", self.encode_decider())];
        let named = deciders.into_iter().filter(|(_, name)| !name.is_empty());
        let deciders = named.map(|(parameter, name)| Need { parameter, name, kind: NeedKind::Decider });
        let prefixes = Need { parameter: "", name: PREFIX_PRODUCER, kind: NeedKind::PrefixProducer };
        core::iter::once(prefixes).chain(deciders).collect()
    }
}

impl ProfileHandler for DisaggProfileHandler {
    fn schedule(&self, profiles: &mut dyn Profiles) -> Result<Schedule, Rejection> {
        let (mut schedule, prefill, encoders);
        match self.stage_order {
            StageOrder::DecodeFirst => {
                let decode;
                (schedule, decode) = run_decode(self.decode(), profiles)?;
                encoders = run_if_agreed(self.encode_decider(), self.encode(), Some(decode), profiles);
                prefill = run_if_agreed(self.prefill_decider(), self.prefill(), Some(decode), profiles);
            }
            StageOrder::PrefillFirst => {
                prefill = run(self.prefill(), profiles);
                encoders = run_if_agreed(self.encode_decider(), self.encode(), None, profiles);
                (schedule, _) = run_decode(self.decode(), profiles)?;
            }
        }
        schedule.headers.extend(prefiller(profiles, &prefill));
        if !encoders.is_empty() {
            let cycle = profiles.cycle();
            let addresses = encoders.iter().map(|&endpoint| cycle.endpoint(endpoint).printed_address());
            let addresses: Vec<&str> = addresses.collect();
            schedule.headers.push(("x-encoder-hosts-ports", addresses.join(",")));
        }
        Ok(schedule)
    }

    fn check_profiles(&self, names: &[&str]) -> Result<(), String> {
        if names.contains(&self.decode()) {
            return Ok(());
        }
        Err(format!(
            "disagg-profile-handler needs a profile {:?}; declared are {}",
            self.decode(),
            names.join(", ")
        ))
    }
}

/// The header that names the endpoint that computes the prompt: the first that the prefill profile picked.
pub(super) fn prefiller(profiles: &dyn Profiles, prefill: &[usize]) -> Option<(&'static str, String)> {
    let cycle = profiles.cycle();
    Some(("x-prefiller-host-port", cycle.endpoint(*prefill.first()?).printed_address().to_owned()))
}

/// Runs the profile whose choice answers. Returns a schedule to it, and its first endpoint.
pub(super) fn run_decode(profile: &str, profiles: &mut dyn Profiles) -> Result<(Schedule, usize), Rejection> {
    let profile = profiles.find(profile).ok_or_else(Rejection::filtered_out)?;
    let &endpoint = profiles.run(profile).first().ok_or_else(Rejection::filtered_out)?;
    Ok((Schedule::to(profile), endpoint))
}

/// The choice of the profile, if its decider agrees.
pub(super) fn run_if_agreed(
    decider: &str,
    profile: &str,
    decode: Option<usize>,
    profiles: &mut dyn Profiles,
) -> Vec<usize> {
    if profiles.agrees(decider, decode) { run(profile, profiles) } else { Vec::new() }
}

/// The choice of the profile; empty if there is none of this name.
fn run(profile: &str, profiles: &mut dyn Profiles) -> Vec<usize> {
    profiles.find(profile).map_or_else(Vec::new, |profile| profiles.run(profile).to_vec())
}
