//! A second configuration that decides on the same requests without acting, so that it can be compared with the acting one.

use core::time::Duration;

use crate::candidates::candidates;
use crate::decision::{Decision, Outcome};
use crate::pipeline::Pipeline;
use crate::plugin::{Picker, Routed};
use crate::pool::Pool;
use crate::request::Request;
use crate::rng::Rng;
use crate::view::View;

/// A pipeline beside the acting one.
///
/// It knows what the acting one knows: readings, loads, and what plugins of the same name, type and parameters remember. What
/// its other plugins remember is of where requests really went.
#[derive(Clone, Debug)]
pub struct Shadow(Pipeline);

/// What a shadow would have done.
#[derive(Clone, Debug)]
pub struct ShadowDecision {
    /// Its decision; the events in it are of where the request really goes, and are to be remembered.
    pub decision: Decision,
    /// Whether it would have done the same.
    ///
    /// Routed requests: the acting one's first choice is the shadow's, or has the shadow's highest total where its picker
    /// leaves no more than ties to chance. Others: both answer with the same status and reason.
    pub agrees: bool,
}

impl ShadowDecision {
    /// What it would have done, if that is something else: the end of an [explanation](crate::explanation) in words.
    pub fn difference(&self, pool: &Pool) -> Option<String> {
        let would = match &self.decision.outcome {
            Outcome::Route(endpoints) => {
                format!("picks {}", pool.endpoint(*endpoints.first()?).printed_address())
            }
            Outcome::Reject(rejection) => format!("rejects: {rejection}"),
            Outcome::Abstain { reason, .. } => format!("abstains: {}", reason.as_str()),
        };
        (!self.agrees).then(|| format!("; the shadow {would}"))
    }
}

impl Shadow {
    /// Puts a pipeline beside the acting one.
    pub fn new(mut pipeline: Pipeline, acting: &Pipeline) -> Self {
        pipeline.foreign.clear();
        for (key, instance) in pipeline.keys.iter_mut().zip(&pipeline.plugins) {
            match acting.plugins.iter().find(|other| other.key() == *key) {
                Some(other) if other == instance => pipeline.foreign.push(*key),
                // With other parameters it remembers other things.
                Some(_) => *key = instance.second_key(),
                None => {}
            }
        }
        Self(pipeline)
    }

    /// What would decide.
    pub fn pipeline(&self) -> &Pipeline {
        &self.0
    }

    /// Decides for a request with a body that the acting pipeline has decided on by the same view.
    pub fn decide(
        &self,
        (acting, acted): (&Pipeline, &Decision),
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> ShadowDecision {
        let pipeline = &self.0;
        let candidates = candidates(request, view);
        let bare = pipeline.cycle(request, view, now);
        let refusal = pipeline.refusal(&bare, &candidates);
        let found = pipeline.look_up(&bare, &candidates);
        let cycle = found.seen_by(bare);
        let mut decision = match refusal {
            Some(rejection) => Decision::without_run(Outcome::Reject(rejection)),
            None => pipeline.choose(cycle, candidates, view, rng),
        };
        if let Some(primary) = acted.primary {
            let stages = acting.stages(&acted.runs);
            let routed = Routed { stages: &stages, primary, asked: None, hashes: None };
            decision.events = pipeline.record(&cycle, &found.hashes, &routed, &decision.runs);
        }
        ShadowDecision { agrees: self.agrees(&decision, acted), decision }
    }

    fn agrees(&self, own: &Decision, acted: &Decision) -> bool {
        match (&own.outcome, &acted.outcome) {
            (Outcome::Reject(own), Outcome::Reject(acted)) => {
                (own.code, own.reason) == (acted.code, acted.reason)
            }
            (Outcome::Route(_), Outcome::Route(_)) => {
                let (own_choice, taken) = (first_choice(own), first_choice(acted));
                own_choice == taken || taken.is_some_and(|taken| self.is_as_good(own, taken))
            }
            _ => false,
        }
    }

    /// Whether only chance kept the endpoint from being the first choice.
    fn is_as_good(&self, own: &Decision, endpoint: usize) -> bool {
        let Some(run) = own.primary_run() else { return false };
        let picker = self.0.plugins[self.0.profiles[run.profile].picker].plugin.as_picker();
        let total = run.scored.iter().zip(&run.totals).find(|(scored, _)| **scored == endpoint);
        picker.is_some_and(Picker::takes_the_highest)
            && total.is_some_and(|(_, total)| run.totals.iter().all(|other| other <= total))
    }
}

/// The endpoint that was chosen, also where another port of its server takes the request.
fn first_choice(decision: &Decision) -> Option<usize> {
    decision.primary_run()?.picked.first().copied()
}
