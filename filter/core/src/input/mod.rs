//! The input of a decision: the state of a pool, the endpoints that a request may be sent to, and both as
//! plugins see them.

pub mod cycle;
pub mod load_estimator;
pub mod prediction;
pub mod providers;
pub(crate) mod slot;

use core::time::Duration;

use crate::period::Period;
use crate::pool::Endpoints;
use crate::pool::load::{FractionalLoad, Load};
use crate::pool::reading::Reading;
use crate::request::Request;
use crate::request::stored::STORED_RESPONSES;
use crate::state::{PluginStates, SessionBindings};

/// The state of a pool at the time of a decision. Slices by endpoint have the pool's order; those missing at
/// the end count as unknown or idle.
#[derive(Clone, Copy, Debug)]
pub struct DecisionInput<'a> {
    /// The endpoints.
    pub pool: &'a Endpoints,
    /// Each endpoint's newest reading.
    pub readings: &'a [Reading],
    /// When the readings arrived, on the shell's clock.
    pub readings_arrived: Duration,
    /// Load in flight at each endpoint.
    pub in_flight: &'a [Load],
    /// The part of it that is [deferred](crate::state::deferred_load).
    pub deferred: &'a [FractionalLoad],
    /// When each endpoint is [avoided](crate::state::avoidance), on the shell's clock.
    pub avoided: &'a [Period],
    /// The state of the pipeline's plugins.
    pub states: &'a PluginStates,
    /// Scores that depend on these readings only, if they were computed before.
    pub precomputed: Option<&'a PrecomputedScores>,
}

impl DecisionInput<'_> {
    /// Whether the endpoint failed recently, so that others are preferred.
    pub fn avoids(&self, endpoint: usize, now: Duration) -> bool {
        self.avoided.get(endpoint).is_some_and(|period| period.contains(now))
    }

    /// Whether the endpoint has failed this request.
    pub(crate) fn has_failed(&self, request: &Request<'_>, endpoint: usize) -> bool {
        !request.failed.is_empty() && request.failed.contains(&self.pool.endpoint(endpoint).address())
    }

    /// The endpoint that stores the response or conversation that the request names, as far as it is known.
    pub(crate) fn keeper(&self, request: &Request<'_>, now: Duration) -> Option<usize> {
        let stored = request.stored?;
        self.states.of::<SessionBindings>(STORED_RESPONSES)?.endpoint(stored.hash(), now)
    }

    /// The groups of these candidates that come before all of them, the better one first: the one that stores
    /// the response that the request names, candidates that failed neither recently nor this request, and
    /// candidates that did not fail this request. None of them is empty, or has all candidates.
    pub(crate) fn preferred(
        &self,
        request: &Request<'_>,
        candidates: &[usize],
        now: Duration,
    ) -> Vec<Vec<usize>> {
        let mut groups = Vec::new();
        if self.avoided.is_empty() && request.failed.is_empty() && request.stored.is_none() {
            return groups;
        }
        // The response to it from any other endpoint is 404, so the keeper is tried although it is avoided.
        let keeper = self.keeper(request, now).filter(|keeper| candidates.contains(keeper));
        let keeper = keeper.filter(|&keeper| candidates.len() > 1 && !self.has_failed(request, keeper));
        groups.extend(keeper.map(|keeper| vec![keeper]));
        let mut group = candidates.to_vec();
        group.retain(|&endpoint| !self.has_failed(request, endpoint));
        let unavoided = group.iter().copied().filter(|&endpoint| !self.avoids(endpoint, now));
        let unavoided: Vec<usize> = unavoided.collect();
        if !unavoided.is_empty() && unavoided.len() < group.len() {
            groups.push(unavoided);
        }
        if !group.is_empty() && group.len() < candidates.len() {
            groups.push(group);
        }
        groups
    }
}

/// Ready endpoints, and scores that depend on readings only: computed once for all requests that are decided
/// by these readings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrecomputedScores {
    /// The endpoints that are ready, in the pool's order.
    pub(crate) ready: Vec<usize>,
    /// Their scores, 0..=1, by the keys of scorers that need only readings.
    pub(crate) scores: Vec<(u64, Vec<f64>)>,
}

impl PrecomputedScores {
    /// The scores of these candidates by the scorer of this key, if all ready endpoints are candidates.
    pub(crate) fn scores(&self, scorer: u64, candidates: &[usize]) -> Option<&[f64]> {
        let (_, scores) = self.scores.iter().find(|(key, _)| *key == scorer)?;
        (self.ready == candidates).then_some(scores)
    }
}

/// A stage of disaggregated serving whose saturation is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SaturationStage {
    /// Endpoints that compute prompts.
    Prefill,
    /// Endpoints that generate.
    Decode,
}

/// Why an endpoint is not a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// It refuses connections, or discovery reports it as not ready.
    NotReady,
    /// The subset hint does not name it.
    OutsideSubset,
    /// It failed recently, and other endpoints were left.
    Avoided,
    /// Another endpoint stores the response or conversation that the request names.
    StoredElsewhere,
}

/// Indices of the endpoints that may be picked, in the pool's order.
pub(crate) fn candidates(request: &Request<'_>, input: &DecisionInput<'_>) -> Vec<usize> {
    let mut candidates = input.precomputed.map_or_else(|| ready(input), |known| known.ready.clone());
    if request.subset.is_hint() {
        candidates.retain(|&endpoint| request.subset.allows(input.pool.endpoint(endpoint)));
    }
    candidates
}

/// Indices of the endpoints that are ready, in the pool's order.
pub(crate) fn ready(input: &DecisionInput<'_>) -> Vec<usize> {
    let endpoints = input.pool.as_slice().len();
    let mut ready = Vec::with_capacity(endpoints);
    for endpoint in 0..endpoints {
        if is_ready(input, endpoint) {
            ready.push(endpoint);
        }
    }
    ready
}

/// Why an endpoint is not a candidate; `None` if it is one.
pub(crate) fn exclusion(
    request: &Request<'_>,
    input: &DecisionInput<'_>,
    endpoint: usize,
) -> Option<Exclusion> {
    if !is_ready(input, endpoint) {
        return Some(Exclusion::NotReady);
    }
    if !request.subset.allows(input.pool.endpoint(endpoint)) {
        return Some(Exclusion::OutsideSubset);
    }
    None
}

/// Without a reading, an endpoint counts as ready.
fn is_ready(input: &DecisionInput<'_>, endpoint: usize) -> bool {
    input.readings.get(endpoint).is_none_or(|reading| reading.ready)
}
