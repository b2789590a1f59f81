//! The values of decisions that do not act.

use crate::decision::{Decision, Outcome};
use crate::pool::Endpoints;

/// The endpoints that another picker has chosen for a request, as indices in the pool. One that the pool
/// lacks is left out, and with it all destinations behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OtherPick {
    /// The endpoints that the request may go to, in the order in which they are tried.
    pub destinations: Vec<usize>,
    /// The endpoint that computes the prompt, if it is another one.
    pub prefill: Option<usize>,
    /// The endpoints that encode images, video and audio, if they are others.
    pub encode: Vec<usize>,
}

/// A decision that does not act, compared with the decision that does.
#[derive(Clone, Debug)]
pub struct ShadowDecision {
    /// The decision. Its events are about the endpoint to which the request goes. The caller applies them. It
    /// applies the reservations only when another picker routes; otherwise the reservations of the acting
    /// decision count.
    pub decision: Decision,
    /// Whether both do the same.
    pub agreement: Agreement,
}

impl ShadowDecision {
    /// The decision if it differs, in words: the end of an [explanation](crate::decision::explanation).
    pub fn difference(&self, pool: &Endpoints) -> Option<String> {
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

/// The comparison of a shadow's decision with the acting one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Both pick the same endpoint first, or reject with the same status and reason.
    Same,
    /// The acting pick has the shadow's highest total too: the shadow's picker leaves no more than such ties
    /// to chance.
    EqualScore,
    /// The shadow picks a better endpoint, rejects for another reason, or routes a request that is rejected.
    Different,
    /// The shadow rejects a request that is routed.
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

    /// The name in explanations.
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
