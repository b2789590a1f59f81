//! A second configuration that decides on the same requests without acting, so that it can be compared with the acting one.

use core::time::Duration;

use crate::decision::agreement::Agreement;
use crate::decision::{Decision, Outcome};
use crate::input::View;
use crate::pipeline::{Pipeline, Prepared};
use crate::pool::Pool;
use crate::request::Request;
use crate::rng::Rng;

/// A pipeline beside the acting one.
///
/// Both decide by the same readings and loads. Plugins of the same name, type and parameters have one state in common; the
/// shadow's other plugins remember, too, where requests really went.
#[derive(Clone, Debug)]
pub struct Shadow(Pipeline);

/// The decision of a shadow.
#[derive(Clone, Debug)]
pub struct ShadowDecision {
    /// The decision. Its events are about the endpoint to which the request goes, and are to be applied. Beside [another
    /// picker](Pipeline::decide_beside_pick) its reservations are too; beside a pipeline that one's own are applied.
    pub decision: Decision,
    /// Whether the one that acts does the same.
    pub agreement: Agreement,
}

impl ShadowDecision {
    /// The shadow's decision if it differs, in words: the end of an [explanation](crate::decision::explanation).
    pub fn difference(&self, pool: &Pool) -> Option<String> {
        if self.agreement.agrees() {
            return None;
        }
        let would = match &self.decision.outcome {
            Outcome::Route(endpoints) => {
                format!("picks {}", pool.endpoint(*endpoints.first()?).printed_address())
            }
            Outcome::Reject(rejection) => format!("rejects: {rejection}"),
            Outcome::Abstain { reason, .. } => format!("abstains: {}", reason.as_str()),
        };
        Some(format!("; the shadow {would}"))
    }
}

impl Shadow {
    /// Puts a pipeline beside the acting one.
    pub fn new(mut pipeline: Pipeline, acting: &Pipeline) -> Self {
        for instance in pipeline.plugins.clone() {
            let key = instance.key();
            match acting.plugins.iter().find(|other| other.key() == key) {
                Some(other) if *other == instance => pipeline.leave_state_to_another(key),
                // With other parameters it remembers other things.
                Some(_) => pipeline.rekey(key, instance.second_key()),
                None => {}
            }
        }
        Self(pipeline)
    }

    /// The pipeline that decides.
    pub fn pipeline(&self) -> &Pipeline {
        &self.0
    }

    /// Decides for a request with a body on which the acting pipeline has decided by the same view.
    pub fn decide(
        &self,
        acting: (&Pipeline, &Decision),
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> ShadowDecision {
        self.decide_prepared(acting, &self.0.prepare(request, view, now), request, view, now, rng)
    }

    /// As [`Self::decide`], for a request that the shadow's pipeline has [prepared](Pipeline::prepare).
    pub fn decide_prepared(
        &self,
        acting: (&Pipeline, &Decision),
        prepared: &Prepared,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> ShadowDecision {
        let decision = self.0.decide_beside(Some(acting), prepared, request, view, now, rng);
        ShadowDecision { agreement: self.0.agreement(&decision, acting.1), decision }
    }
}
