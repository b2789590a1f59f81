//! The endpoints that a request may be sent to.

use crate::pool::view::View;
use crate::request::Request;

/// Why an endpoint is not a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exclusion {
    /// It refuses connections, or discovery reports it as not ready.
    NotReady,
    /// The subset hint does not name it.
    OutsideSubset,
    /// It failed a moment ago, and other endpoints were left.
    Avoided,
}

/// Indices of the endpoints that may be picked, in the pool's order.
pub(crate) fn candidates(request: &Request<'_>, view: &View<'_>) -> Vec<usize> {
    let mut candidates = view.by_readings.map_or_else(|| ready(view), |known| known.ready.clone());
    if request.subset.is_hint() {
        candidates.retain(|&endpoint| request.subset.allows(view.pool.endpoint(endpoint)));
    }
    candidates
}

/// Indices of the endpoints that are ready, in the pool's order.
pub(crate) fn ready(view: &View<'_>) -> Vec<usize> {
    let endpoints = view.pool.endpoints().len();
    let mut ready = Vec::with_capacity(endpoints);
    for endpoint in 0..endpoints {
        if is_ready(view, endpoint) {
            ready.push(endpoint);
        }
    }
    ready
}

/// Why an endpoint is not a candidate; `None` if it is one.
pub(crate) fn exclusion(request: &Request<'_>, view: &View<'_>, endpoint: usize) -> Option<Exclusion> {
    if !is_ready(view, endpoint) {
        return Some(Exclusion::NotReady);
    }
    if !request.subset.allows(view.pool.endpoint(endpoint)) {
        return Some(Exclusion::OutsideSubset);
    }
    None
}

/// Without a reading, an endpoint counts as ready.
fn is_ready(view: &View<'_>, endpoint: usize) -> bool {
    view.readings.get(endpoint).is_none_or(|reading| reading.ready)
}
