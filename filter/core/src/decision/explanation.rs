//! The explanation of a decision, endpoint by endpoint.

use core::fmt;

use crate::decision::{CacheSource, Outcome};
use crate::input::Exclusion;
use crate::request::session::SessionTurn;

/// A decision, explained endpoint by endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Every endpoint of the pool, in its order.
    pub endpoints: Vec<EndpointExplanation>,
    /// The readings were too old to be used.
    pub is_stale: bool,
    /// The endpoint that is named to copy KV blocks from.
    pub cache_source: Option<CacheSource>,
    /// The header that names the request's agent session, if a plugin finds one.
    pub agent_header: Option<String>,
    /// The request's place in its session, if that is known.
    pub session: Option<SessionTurn>,
    /// The name of the picker that chose by the totals; `None` if no profile ran.
    pub picker: Option<String>,
    /// The result for the request.
    pub outcome: Outcome,
}

/// One endpoint in a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointExplanation {
    /// Its address.
    pub address: String,
    /// Its predicted latency by each predictor, the source of its matches by each prefix producer that has
    /// several, and its room for sessions.
    pub predictions: Vec<String>,
    /// Its part in the decision.
    pub verdict: Verdict,
}

/// An endpoint's part in a decision.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It was not a candidate.
    Excluded(Exclusion),
    /// This filter dropped it.
    Dropped(String),
    /// It was rated.
    Scored {
        /// The ratings of the scorers, in the profile's order.
        scores: Vec<Score>,
        /// The weighted sum.
        total: f64,
        /// Place in the ordered choice, if it was picked; 0 is the destination.
        place: Option<usize>,
    },
    /// A candidate in a decision without scores.
    Candidate,
}

/// One scorer's rating of one endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// The scorer's name in the configuration.
    pub scorer: String,
    /// 0..=1.
    pub score: f64,
    /// The weight of the score in the total.
    pub weight: f64,
    /// Terms of the score, if the scorer explains it.
    pub detail: Option<String>,
}

impl Explanation {
    /// The endpoints with their indices: picked ones first, then by total.
    pub fn ranked(&self) -> impl ExactSizeIterator<Item = (usize, &EndpointExplanation)> {
        let mut ranked: Vec<_> = self.endpoints.iter().enumerate().collect();
        ranked.sort_by(|(_, one), (_, other)| one.verdict.rank().total_cmp(&other.verdict.rank()));
        ranked.into_iter()
    }

    /// The explanation as text of at most `max_bytes` bytes: the outcome, then the endpoints that fit, in
    /// [ranked](Self::ranked) order.
    pub fn within(&self, max_bytes: usize) -> String {
        let mut text = match &self.outcome {
            Outcome::Route(_) => "routed".to_owned(),
            Outcome::Reject(rejection) => format!("rejected: {rejection}"),
            Outcome::Abstain { reason, .. } => format!("abstained: {}", reason.as_str()),
        };
        if self.is_stale {
            text.push_str("; readings are stale");
        }
        for note in self.notes() {
            text.push_str("; ");
            text.push_str(&note);
        }
        for (listed, (_, endpoint)) in self.ranked().enumerate() {
            let more = format!("; {} more", self.endpoints.len() - listed);
            let next = format!("; {endpoint}");
            if text.len() + next.len() + more.len() > max_bytes {
                text.push_str(&more);
                break;
            }
            text.push_str(&next);
        }
        while text.len() > max_bytes {
            text.pop();
        }
        text
    }
}

impl Explanation {
    /// Parts of the decision that are about no candidate.
    fn notes(&self) -> impl Iterator<Item = String> {
        let identity =
            self.agent_header.as_ref().map(|header| format!("agent session by the header {header}"));
        let source = self.cache_source.and_then(|CacheSource { endpoint, tokens, ahead }| {
            let address = &self.endpoints.get(endpoint)?.address;
            Some(format!("KV blocks from {address}, which has {tokens} tokens of the prompt cached, {ahead} more than the destination"))
        });
        let session = self.session.map(|session| session.to_string());
        identity.into_iter().chain(session).chain(source)
    }
}

impl Verdict {
    /// Endpoints of lower rank are listed first.
    fn rank(&self) -> f64 {
        match self {
            Self::Scored { place: Some(place), .. } => -1e9 + *place as f64,
            // Totals are sums of weights, far from the others' ranks.
            Self::Scored { total, .. } => -total.clamp(-1e6, 1e6),
            Self::Candidate => 1e7,
            Self::Dropped(_) => 2e7,
            Self::Excluded(_) => 3e7,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_stale {
            f.write_str("readings are stale; ")?;
        }
        for note in self.notes() {
            write!(f, "{note}; ")?;
        }
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{endpoint}")?;
        }
        Ok(())
    }
}

impl fmt::Display for EndpointExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, predictions, verdict } = self;
        write!(f, "{address} ")?;
        predictions.iter().try_for_each(|prediction| write!(f, "({prediction}) "))?;
        write!(f, "{verdict}")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Excluded(Exclusion::NotReady) => f.write_str("not ready"),
            Self::Excluded(Exclusion::OutsideSubset) => f.write_str("outside the subset hint"),
            Self::Excluded(Exclusion::Avoided) => f.write_str("failed a moment ago"),
            Self::Excluded(Exclusion::StoredElsewhere) => f.write_str("does not store the response"),
            Self::Dropped(filter) => write!(f, "dropped by {filter}"),
            Self::Candidate => f.write_str("candidate"),
            Self::Scored { scores, total, place } => {
                for Score { scorer, score, weight, detail } in scores {
                    write!(f, "{scorer} {score:.3}x{weight} ")?;
                    if let Some(detail) = detail {
                        write!(f, "({detail}) ")?;
                    }
                }
                write!(f, "total {total:.3}")?;
                place.map_or(Ok(()), |place| write!(f, " picked {}", place + 1))
            }
        }
    }
}
