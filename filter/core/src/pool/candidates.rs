//! The endpoints that a request may be sent to.

use crate::request::Request;
use crate::view::View;

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
    let endpoints = view.pool.endpoints().len();
    let mut candidates = Vec::with_capacity(endpoints);
    candidates.extend((0..endpoints).filter(|&endpoint| exclusion(request, view, endpoint).is_none()));
    candidates
}

/// Why an endpoint is not a candidate; `None` if it is one.
pub(crate) fn exclusion(request: &Request<'_>, view: &View<'_>, endpoint: usize) -> Option<Exclusion> {
    if !view.readings.get(endpoint).is_none_or(|reading| reading.ready) {
        return Some(Exclusion::NotReady);
    }
    if !request.subset.allows(view.pool.endpoint(endpoint)) {
        return Some(Exclusion::OutsideSubset);
    }
    None
}
