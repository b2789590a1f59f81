//! Why an endpoint was picked.

use core::fmt;
use core::time::Duration;

use crate::decision::ProfileRun;
use crate::decision::{Decision, Outcome};
use crate::input::Exclusion;
use crate::input::View;
use crate::input::exclusion;
use crate::pipeline::Pipeline;
use crate::request::Request;

/// A decision, explained endpoint by endpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Explanation {
    /// Every endpoint of the pool, in its order.
    pub endpoints: Vec<EndpointExplanation>,
    /// The readings were too old to be used.
    pub is_stale: bool,
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
    /// It was rated, and came in at this place of the ordered choice if it was picked (0 is the destination).
    Scored {
        /// One for each scorer, in the profile's order.
        scores: Vec<Score>,
        /// The weighted sum.
        total: f64,
        /// Place in the choice.
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
}

impl Explanation {
    /// Explains a decision of `pipeline` for this request and view.
    pub fn of(
        decision: &Decision,
        pipeline: &Pipeline,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
    ) -> Self {
        let verdict = |index| match exclusion(request, view, index) {
            Some(exclusion) => Verdict::Excluded(exclusion),
            None => match verdict_on_candidate(decision, pipeline, index) {
                Verdict::Candidate if view.avoids(index, now) => Verdict::Excluded(Exclusion::Avoided),
                verdict => verdict,
            },
        };
        let endpoints = view.pool.endpoints().iter().enumerate().map(|(index, endpoint)| {
            EndpointExplanation { address: endpoint.printed_address().to_owned(), verdict: verdict(index) }
        });
        Self {
            endpoints: endpoints.collect(),
            is_stale: decision.is_stale,
            picker: explained_run(decision).map(|run| pipeline.profile_of(run).picker.name.to_string()),
            outcome: decision.outcome.clone(),
        }
    }
}

impl Explanation {
    /// The endpoints with their indices: picked ones first, then by total.
    pub fn ranked(&self) -> impl ExactSizeIterator<Item = (usize, &EndpointExplanation)> {
        let mut ranked: Vec<_> = self.endpoints.iter().enumerate().collect();
        ranked.sort_by(|(_, one), (_, other)| one.verdict.rank().total_cmp(&other.verdict.rank()));
        ranked.into_iter()
    }

    /// The explanation as text of at most `most` bytes: the outcome, then as many endpoints as fit, in [ranked](Self::ranked)
    /// order.
    pub fn within(&self, most: usize) -> String {
        let mut text = match &self.outcome {
            Outcome::Route(_) => "routed".to_owned(),
            Outcome::Reject(rejection) => format!("rejected: {rejection}"),
            Outcome::Abstain { reason, .. } => format!("abstained: {}", reason.as_str()),
        };
        if self.is_stale {
            text.push_str("; readings are stale");
        }
        for (listed, (_, endpoint)) in self.ranked().enumerate() {
            let more = format!("; {} more", self.endpoints.len() - listed);
            let next = format!("; {} {}", endpoint.address, endpoint.verdict);
            if text.len() + next.len() + more.len() > most {
                text.push_str(&more);
                break;
            }
            text.push_str(&next);
        }
        while text.len() > most {
            text.pop();
        }
        text
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

/// The run that an explanation is about: the one that named the destination, or the one that failed to.
fn explained_run(decision: &Decision) -> Option<&ProfileRun> {
    decision.primary_run().or(decision.runs.last())
}

fn verdict_on_candidate(decision: &Decision, pipeline: &Pipeline, endpoint: usize) -> Verdict {
    let Some(run) = explained_run(decision) else { return Verdict::Candidate };
    let profile = pipeline.profile_of(run);
    let dropped = run.dropped.iter().find(|(dropped, _)| *dropped == endpoint);
    if let Some(filter) = dropped.and_then(|&(_, filter)| profile.filters.get(filter)) {
        return Verdict::Dropped(filter.name.to_string());
    }
    let scored = run.scored.iter().zip(&run.totals).enumerate();
    let Some((at, (_, &total))) = scored.into_iter().find(|(_, (scored, _))| **scored == endpoint) else {
        return Verdict::Candidate;
    };
    let rows = run.scores.chunks_exact(run.scored.len());
    let scores = profile.scorers.iter().zip(rows).filter_map(|((slot, weight), row)| {
        Some(Score { scorer: slot.name.to_string(), score: *row.get(at)?, weight: *weight })
    });
    let place = run.picked.iter().position(|&picked| picked == endpoint);
    Verdict::Scored { scores: scores.collect(), total, place }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_stale {
            f.write_str("readings are stale; ")?;
        }
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{} {}", endpoint.address, endpoint.verdict)?;
        }
        Ok(())
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Excluded(Exclusion::NotReady) => f.write_str("not ready"),
            Self::Excluded(Exclusion::OutsideSubset) => f.write_str("outside the subset hint"),
            Self::Excluded(Exclusion::Avoided) => f.write_str("failed a moment ago"),
            Self::Dropped(filter) => write!(f, "dropped by {filter}"),
            Self::Candidate => f.write_str("candidate"),
            Self::Scored { scores, total, place } => {
                for Score { scorer, score, weight } in scores {
                    write!(f, "{scorer} {score:.3}x{weight} ")?;
                }
                write!(f, "total {total:.3}")?;
                place.map_or(Ok(()), |place| write!(f, " picked {}", place + 1))
            }
        }
    }
}
