//! `disagg-profile-handler`: prompts are computed, and images encoded, on other endpoints than the one that
//! responds.

use core::num::NonZeroU16;
use std::sync::Arc;

use serde::Deserialize;

use crate::decision::rejection::Rejection;
use crate::plugin::parameter::{PREFILL, PREFIX_PRODUCER, or_default};
use crate::plugin::{Need, NeedKind, Plugin, ProfileHandler, Profiles, Roles, Schedule};

/// Runs a profile for each stage. The decode profile names the destination; headers name the other stages'
/// endpoints to it: `x-prefiller-host-port`, the first endpoint of the prefill profile, and
/// `x-encoder-hosts-ports`, all endpoints of the encode profile.
///
/// - `decode-first`: decode; then encode and prefill, each if its decider agrees for the endpoint picked.
/// - `prefill-first`: prefill; encode if its decider agrees; decode.
///
/// A stage without a profile, or whose filters leave nothing, is left out; without a decode endpoint the
/// response is 429.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct DisaggProfileHandler {
    stage_order: StageOrder,
    /// The profiles' names; `decode`, `prefill` and `encode` if not given.
    profiles: ProfileNames,
    /// The deciders' names; without one the stage does not run.
    deciders: Deciders,
    /// The port at which a server accepts the requests for all its ranks. Only the agent writes this and the
    /// following parameter: it lowers `pd-profile-handler` to this handler.
    primary_port: Option<NonZeroU16>,
    /// The prefix producer that has to be there; the default one if empty.
    prefix_match_info_producer_name: String,
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
        or_default(&self.profiles.decode, "decode")
    }

    fn prefill(&self) -> &str {
        or_default(&self.profiles.prefill, PREFILL)
    }

    fn encode(&self) -> &str {
        or_default(&self.profiles.encode, "encode")
    }
}

impl Deciders {
    /// The place of the prefill stage's decider among the deciders that the handler needs; `None`: it has no
    /// decider.
    fn prefill(&self) -> Option<usize> {
        (!self.prefill.is_empty()).then_some(0)
    }

    /// The same for the encode stage.
    fn encode(&self) -> Option<usize> {
        (!self.encode.is_empty()).then_some(usize::from(!self.prefill.is_empty()))
    }
}

impl Plugin for DisaggProfileHandler {
    fn check(&self) -> Result<(), String> {
        if self.stage_order == StageOrder::PrefillFirst && !self.deciders.prefill.is_empty() {
            return Err("deciders.prefill is given; with stageOrder prefill-first there is none".to_owned());
        }
        Ok(())
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { profile_handler: Some(self), ..Roles::default() }
    }

    /// The deciders read prefix matches, and need a producer for that.
    fn needs(&self) -> Vec<Need<'_>> {
        let deciders =
            [("deciders.prefill", &self.deciders.prefill), ("deciders.encode", &self.deciders.encode)];
        let named = deciders.into_iter().filter(|(_, name)| !name.is_empty());
        let deciders = named.map(|(parameter, name)| Need { parameter, name, kind: NeedKind::Decider });
        let prefixes = match self.prefix_match_info_producer_name.as_str() {
            "" => Need { parameter: "", name: PREFIX_PRODUCER, kind: NeedKind::PrefixProducer },
            name => Need::prefix_producer(name),
        };
        core::iter::once(prefixes).chain(deciders).collect()
    }
}

impl ProfileHandler for DisaggProfileHandler {
    fn schedule(&self, profiles: &mut dyn Profiles) -> Result<Schedule, Rejection> {
        let (mut schedule, decode, prefill, encoders);
        match self.stage_order {
            StageOrder::DecodeFirst => {
                (schedule, decode) = run_decode(self.decode(), None, profiles)?;
                encoders = run_if_agreed(self.deciders.encode(), self.encode(), Some(decode), profiles);
                let decider = self.deciders.prefill();
                prefill = if decider.is_some_and(|decider| profiles.agrees(decider, Some(decode))) {
                    run(self.prefill(), Some(decode), profiles)
                } else {
                    Vec::new()
                };
            }
            StageOrder::PrefillFirst => {
                prefill = run(self.prefill(), None, profiles);
                encoders = run_if_agreed(self.deciders.encode(), self.encode(), None, profiles);
                (schedule, decode) = run_decode(self.decode(), prefill.first().copied(), profiles)?;
            }
        }
        schedule.headers.extend(prefiller(profiles, &prefill));
        if !encoders.is_empty() {
            let cycle = profiles.cycle();
            let addresses = encoders.iter().map(|&endpoint| cycle.endpoint(endpoint).printed_address());
            let addresses: Vec<&str> = addresses.collect();
            schedule.headers.push(("x-encoder-hosts-ports", addresses.join(",")));
        }
        if let Some(port) = self.primary_port {
            schedule.through(port, profiles.cycle().endpoint(decode));
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
fn prefiller(profiles: &dyn Profiles, prefill: &[usize]) -> Option<(&'static str, String)> {
    let cycle = profiles.cycle();
    Some(("x-prefiller-host-port", cycle.endpoint(*prefill.first()?).printed_address().to_owned()))
}

/// Runs the profile that picks the responding endpoint. Returns a schedule to it, and its first endpoint.
fn run_decode(
    profile: &str,
    peer: Option<usize>,
    profiles: &mut dyn Profiles,
) -> Result<(Schedule, usize), Rejection> {
    let profile = profiles.find(profile).ok_or_else(Rejection::filtered_out)?;
    let &endpoint = profiles.run_near(profile, peer).first().ok_or_else(Rejection::filtered_out)?;
    Ok((Schedule::to(profile), endpoint))
}

/// The choice of the profile, if its decider agrees.
fn run_if_agreed(
    decider: Option<usize>,
    profile: &str,
    decode: Option<usize>,
    profiles: &mut dyn Profiles,
) -> Vec<usize> {
    let is_agreed = decider.is_some_and(|decider| profiles.agrees(decider, decode));
    if is_agreed { run(profile, None, profiles) } else { Vec::new() }
}

/// The choice of the profile, after a stage that picked `peer`; empty if there is none of this name.
fn run(profile: &str, peer: Option<usize>, profiles: &mut dyn Profiles) -> Vec<usize> {
    profiles.find(profile).map_or_else(Vec::new, |profile| profiles.run_near(profile, peer).to_vec())
}
