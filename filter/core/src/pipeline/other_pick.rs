//! Decisions on requests that another picker has routed.

use core::time::Duration;

use super::Pipeline;
use super::prepare::Prepared;
use super::schedule::prompt_blocks;
use crate::decision::Decision;
use crate::decision::agreement::Agreement;
use crate::decision::other_pick::OtherPick;
use crate::decision::shadow::ShadowDecision;
use crate::few::Few;
use crate::input::View;
use crate::plugin::Stage;
use crate::plugin::parameter::PREFILL;
use crate::request::Request;
use crate::rng::Rng;

/// The usual name of the profile that picks the encoders.
const ENCODE: &str = "encode";

impl Pipeline {
    /// Decides for a request with a body that another picker has routed, and compares both. Events, reservations and prompt of the
    /// decision are about that picker's endpoints; none for endpoints that the pool lacks.
    pub fn decide_beside_pick(
        &self,
        pick: &OtherPick,
        prepared: &Prepared,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> ShadowDecision {
        let cycle = self.cycle(request, view, now);
        let first = pick.destinations.first().copied();
        let decision = self.decide_and_record(cycle, prepared, rng, true, |cycle, decision| {
            let stages = self.stages_of(pick, decision);
            decision.events = self.record(cycle, prepared, &stages, first.map(|_| 0), &decision.runs);
            decision.reservations = self.reservations(cycle, &stages);
            decision.prompt = first.map(|first| prompt_blocks(cycle, first)).unwrap_or_default();
        });
        let agreement = first.map_or(Agreement::UnknownEndpoint, |taken| self.agreement_on(&decision, taken));
        ShadowDecision { decision, agreement }
    }

    /// The other picker's choice as stages of this pipeline's profiles, the destinations first. The profile of the destinations is that
    /// of the own decision, or else the first one.
    fn stages_of<'a>(&'a self, pick: &'a OtherPick, own: &Decision) -> Few<Stage<'a>> {
        let primary = own.primary_run().map(|run| self.profile_of(run)).or(self.profiles.first());
        let primary = primary.map_or("", |profile| &profile.name);
        let stages = [
            Stage { profile: primary, picked: &pick.destinations },
            Stage { profile: PREFILL, picked: pick.prefill.as_slice() },
            Stage { profile: ENCODE, picked: &pick.encode },
        ];
        // A stage that did not run has no endpoint, but the destinations keep their place.
        let ran = |(place, stage): &(usize, Stage<'_>)| *place == 0 || !stage.picked.is_empty();
        stages.into_iter().enumerate().filter(ran).map(|(_, stage)| stage).collect()
    }
}
