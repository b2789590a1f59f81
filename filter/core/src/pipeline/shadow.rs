//! A pipeline that decides without acting, so that it can be compared with the decision that acts.

use core::time::Duration;

use super::{Pipeline, Prepared, Scratch};
use crate::Few;
use crate::decision::shadow::{Agreement, OtherPick, ShadowDecision};
use crate::decision::{Decision, Outcome};
use crate::input::DecisionInput;
use crate::input::slot::Slot;
use crate::plugin::parameter::PREFILL;
use crate::plugin::{Instance, Stage};
use crate::request::Request;
use crate::rng::Rng;

/// The usual name of the profile that picks the encoders.
const ENCODE: &str = "encode";

/// The decision that acts on a request, and that plugins record.
#[derive(Clone, Copy, Debug)]
pub enum Acting<'a> {
    /// The decision that is made.
    Own,
    /// A decision of another pipeline by the same input.
    Pipeline(&'a Pipeline, &'a Decision),
    /// The choice of another picker.
    Other(&'a OtherPick),
}

/// A second configuration, which decides on the requests of the acting one.
///
/// Both decide by the same readings and loads. Plugins of the same name, type and parameters have one state
/// in common. The shadow's other plugins record, too, where requests really went.
#[derive(Clone, Debug)]
pub struct Shadow(Pipeline);

impl Shadow {
    /// The shadow of an acting pipeline.
    pub fn new(mut pipeline: Pipeline, acting: &Pipeline) -> Self {
        for instance in pipeline.plugins.clone() {
            let key = instance.key();
            match acting.plugins.iter().find(|other| other.key() == key) {
                // The acting pipeline changes the state that both read.
                Some(other) if *other == instance => pipeline.recorders.retain(|slot| slot.key != key),
                // With other parameters the plugin records other things.
                Some(_) => pipeline.separate_state(&instance),
                None => {}
            }
        }
        Self(pipeline)
    }

    /// The pipeline that decides.
    pub fn pipeline(&self) -> &Pipeline {
        &self.0
    }

    /// Decides for a request with a body on which the acting pipeline has decided by the same input.
    pub fn decide(
        &self,
        (pipeline, decision): (&Pipeline, &Decision),
        request: &Request<'_>,
        input: &DecisionInput<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> ShadowDecision {
        let Self(own) = self;
        let prepared = own.prepare(request, input, now);
        own.compare(&prepared, Acting::Pipeline(pipeline, decision), input, rng)
    }
}

impl Pipeline {
    /// Gives a plugin a state of its own, although the acting pipeline has a plugin of the same name.
    fn separate_state(&mut self, instance: &Instance) {
        // Only plugins in these roles read or change a state.
        let (key, second) = (instance.key(), instance.second_key());
        for profile in &mut self.profiles {
            rekey(&mut profile.filters, key, second);
            rekey(profile.scorers.iter_mut().map(|(slot, _)| slot), key, second);
        }
        rekey(&mut self.prefix_producers, key, second);
        rekey(&mut self.latency_predictors, key, second);
        rekey(&mut self.media_caches, key, second);
        rekey(&mut self.recorders, key, second);
    }

    /// Decides for a [prepared](Self::prepare) request on which another decision acts, and compares both.
    pub fn compare(
        &self,
        prepared: &Prepared<'_>,
        acting: Acting<'_>,
        input: &DecisionInput<'_>,
        rng: &mut dyn Rng,
    ) -> ShadowDecision {
        let decision = self.decide_prepared(prepared, acting, input, &mut Scratch::default(), rng);
        ShadowDecision { agreement: self.agreement(&decision, acting), decision }
    }

    fn agreement(&self, own: &Decision, acting: Acting<'_>) -> Agreement {
        let taken = match acting {
            Acting::Own => return Agreement::Same,
            Acting::Other(pick) => match pick.destinations.first() {
                Some(&first) => first,
                None => return Agreement::UnknownEndpoint,
            },
            Acting::Pipeline(_, acting) => match (&own.outcome, &acting.outcome, first_choice(acting)) {
                (_, Outcome::Route(_), Some(first)) => first,
                (Outcome::Reject(own), Outcome::Reject(acting), _)
                    if (own.code, own.reason) == (acting.code, acting.reason) =>
                {
                    return Agreement::Same;
                }
                (_, Outcome::Route(_) | Outcome::Reject(_) | Outcome::Abstain { .. }, _) => {
                    return Agreement::Different;
                }
            },
        };
        match own.outcome {
            Outcome::Reject(_) => Agreement::Rejected,
            Outcome::Route(_) if first_choice(own) == Some(taken) => Agreement::Same,
            Outcome::Route(_) if self.is_as_good(own, taken) => Agreement::EqualScore,
            Outcome::Abstain { .. } | Outcome::Route(_) => Agreement::Different,
        }
    }

    /// Whether only chance kept the endpoint from being the first choice.
    fn is_as_good(&self, own: &Decision, endpoint: usize) -> bool {
        let Some(run) = own.primary_run() else { return false };
        let total = run.scored.iter().zip(&run.totals).find(|(scored, _)| **scored == endpoint);
        self.profile_of(run).picker.plugin.takes_the_highest()
            && total.is_some_and(|(_, total)| run.totals.iter().all(|other| other <= total))
    }

    /// The stages that the request goes to, and the index of the one with the destinations.
    pub(super) fn acting_stages<'a>(
        &'a self,
        acting: Acting<'a>,
        own: &'a Decision,
    ) -> (Few<Stage<'a>>, Option<usize>) {
        match acting {
            Acting::Own => (self.stages(&own.runs), own.primary),
            Acting::Pipeline(pipeline, acting) => (pipeline.stages(&acting.runs), acting.primary),
            Acting::Other(pick) => (self.stages_of(pick, own), pick.destinations.first().map(|_| 0)),
        }
    }

    /// The other picker's choice as stages of this pipeline's profiles, the destinations first. The
    /// destinations have the profile of the own decision, or else the first one.
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

/// The endpoint that was chosen, also where another port of its server accepts the request.
fn first_choice(decision: &Decision) -> Option<usize> {
    decision.primary_run()?.picked.first().copied()
}

/// Gives the slots of one plugin another key.
fn rekey<'a, T: ?Sized + 'a>(slots: impl IntoIterator<Item = &'a mut Slot<T>>, key: u64, new: u64) {
    for slot in slots {
        if slot.key == key {
            slot.key = new;
        }
    }
}
