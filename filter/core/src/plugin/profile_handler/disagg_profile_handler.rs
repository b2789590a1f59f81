//! `disagg-profile-handler`: prompts computed, and pictures encoded, on other endpoints than the one that answers.

use serde::Deserialize;

use crate::pipeline::scheduler::{Schedule, Scheduler};
use crate::plugin::parameter::{PREFILL, PREFIX_PRODUCER, or_default};
use crate::plugin::{Plugin, PluginRef, ProfileHandler, Role};
use crate::rejection::Rejection;

/// Runs a profile for each stage; the decode profile names the destination, which learns the others from headers:
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
    profiles: Profiles,
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
struct Profiles {
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
        let is_nested = self.profiles != Profiles::default() || self.deciders != Deciders::default();
        if let Some((parameter, _)) = flat.iter().find(|(_, value)| is_nested && !value.is_empty()) {
            return Err(format!("{parameter} is deprecated and does not go with profiles and deciders"));
        }
        if self.stage_order == StageOrder::PrefillFirst && !self.prefill_decider().is_empty() {
            return Err("deciders.prefill is given; with stageOrder prefill-first there is none".to_owned());
        }
        Ok(())
    }

    fn as_profile_handler(&self) -> Option<&dyn ProfileHandler> {
        Some(self)
    }

    fn reads_prefixes_of(&self) -> Option<&str> {
        Some(PREFIX_PRODUCER)
    }

    fn references(&self) -> Vec<PluginRef<'_>> {
        let deciders =
            [("deciders.prefill", self.prefill_decider()), ("deciders.encode", self.encode_decider())];
        let named = deciders.into_iter().filter(|(_, name)| !name.is_empty());
        named.map(|(parameter, name)| PluginRef { parameter, name, role: Role::Decider }).collect()
    }
}

impl ProfileHandler for DisaggProfileHandler {
    fn schedule(&self, scheduler: &mut Scheduler<'_>) -> Result<Schedule, Rejection> {
        let (prefill, encoders);
        match self.stage_order {
            StageOrder::DecodeFirst => {
                let decode = run_decode(self.decode(), scheduler)?;
                encoders = run_if_agreed(self.encode_decider(), self.encode(), Some(decode), scheduler);
                prefill = run_if_agreed(self.prefill_decider(), self.prefill(), Some(decode), scheduler);
            }
            StageOrder::PrefillFirst => {
                prefill = scheduler.run(self.prefill()).to_vec();
                encoders = run_if_agreed(self.encode_decider(), self.encode(), None, scheduler);
                run_decode(self.decode(), scheduler)?;
            }
        }
        let mut schedule = Schedule::to(self.decode());
        schedule.headers.extend(prefiller(scheduler, &prefill));
        if !encoders.is_empty() {
            let cycle = scheduler.cycle();
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

/// The header that tells the destination who computes the prompt: the first that the prefill profile picked.
pub(super) fn prefiller(scheduler: &Scheduler<'_>, prefill: &[usize]) -> Option<(&'static str, String)> {
    let endpoint = scheduler.cycle().endpoint(*prefill.first()?);
    Some(("x-prefiller-host-port", endpoint.printed_address().to_owned()))
}

/// The endpoint that is to answer.
pub(super) fn run_decode(profile: &str, scheduler: &mut Scheduler<'_>) -> Result<usize, Rejection> {
    scheduler.run(profile).first().copied().ok_or_else(Rejection::filtered_out)
}

/// What the profile picked, if its decider wanted it to run.
pub(super) fn run_if_agreed(
    decider: &str,
    profile: &str,
    decode: Option<usize>,
    scheduler: &mut Scheduler<'_>,
) -> Vec<usize> {
    let cycle = scheduler.cycle();
    let agrees = scheduler.decider(decider).is_some_and(|decider| decider.agrees(&cycle, decode));
    if agrees { scheduler.run(profile).to_vec() } else { Vec::new() }
}
