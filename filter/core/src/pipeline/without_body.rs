//! Requests without a body.

use smallvec::smallvec;

use core::time::Duration;

use super::Pipeline;
use crate::decision::rejection::Rejection;
use crate::decision::{Decision, Outcome};
use crate::input::View;
use crate::input::candidates;
use crate::pool::load::{Load, Reservation};
use crate::request::Request;
use crate::rng::{Rng, shuffle};

impl Pipeline {
    /// Decides for a request without a body: any candidate, at random. The subset hint is obeyed here too, unlike in the EPP.
    pub fn decide_without_body(
        &self,
        request: &Request<'_>,
        view: &View<'_>,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Decision {
        let mut rest = candidates(request, view);
        let unavoided = view.unavoided(&rest, now);
        let first = unavoided.as_deref().unwrap_or(&rest);
        let drawn = if first.is_empty() { None } else { first.get(rng.below(first.len())) };
        let Some(&endpoint) = drawn else {
            return Decision::without_run(Outcome::Reject(Rejection::no_candidates()));
        };
        let mut endpoints = vec![endpoint];
        if request.subset.is_hint() {
            rest.retain(|&other| other != endpoint);
            shuffle(&mut rest, rng);
            rest.sort_by_key(|&endpoint| view.avoids(endpoint, now));
            endpoints.extend(rest);
        }
        let response = Load { requests: 1, tokens: 0 };
        let reservations = smallvec![Reservation { endpoint, prefill: Load::default(), response }];
        Decision { reservations, ..Decision::without_run(Outcome::Route(endpoints)) }
    }
}
