//! How a decision that does not act compares with the one that does.

use crate::decision::{Decision, Outcome};
use crate::pipeline::Pipeline;

/// The comparison of a shadow's decision with the acting one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Both pick the same endpoint first, or reject with the same status and reason.
    Same,
    /// The acting pick has the shadow's highest total too: the shadow's picker leaves no more than such ties to chance.
    EqualScore,
    /// The shadow picks a better endpoint, rejects for another reason, or routes what is rejected.
    Different,
    /// The shadow rejects what is routed.
    Rejected,
    /// The acting pick is not an endpoint of the pool.
    UnknownEndpoint,
}

impl Agreement {
    /// Whether both do the same, but for chance.
    pub fn agrees(self) -> bool {
        match self {
            Self::Same | Self::EqualScore => true,
            Self::Different | Self::Rejected | Self::UnknownEndpoint => false,
        }
    }

    /// For explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::EqualScore => "equal score",
            Self::Different => "different",
            Self::Rejected => "rejected by the shadow",
            Self::UnknownEndpoint => "not in the pool",
        }
    }
}

impl Pipeline {
    /// Compares a decision of this pipeline with the acting one.
    pub(crate) fn agreement(&self, own: &Decision, acting: &Decision) -> Agreement {
        match (&own.outcome, &acting.outcome) {
            (_, Outcome::Route(_)) => match first_choice(acting) {
                Some(taken) => self.agreement_on(own, taken),
                None => Agreement::Different,
            },
            (Outcome::Reject(own), Outcome::Reject(acting))
                if (own.code, own.reason) == (acting.code, acting.reason) =>
            {
                Agreement::Same
            }
            (Outcome::Route(_) | Outcome::Reject(_) | Outcome::Abstain { .. }, _) => Agreement::Different,
        }
    }

    /// Compares a decision of this pipeline with the endpoint that the request goes to.
    pub(crate) fn agreement_on(&self, own: &Decision, taken: usize) -> Agreement {
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
}

/// The endpoint that was chosen, also where another port of its server accepts the request.
fn first_choice(decision: &Decision) -> Option<usize> {
    decision.primary_run()?.picked.first().copied()
}
