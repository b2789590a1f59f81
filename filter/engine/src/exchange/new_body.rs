//! The body with another model or priority, in place of the client's.

use endpoint_picker::policy::{Member, name_model_in_form, with_members};
use endpoint_picker::request::ModelResolution;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::response::restore::Restore;

use super::decider::{Decided, Decider};
use crate::metrics::MetricSink;
use crate::proxy::Proxy;
use crate::worker_pool::directive::{Action, Directive};
use crate::worker_pool::store::PoolStore;

/// A body with another model or priority.
pub(super) struct NewBody {
    pub(super) body: Vec<u8>,
    pub(super) restore: Option<Restore>,
}

impl<S: PoolStore, M: MetricSink, P: Proxy> Decider<'_, S, M, P> {
    /// The body with another model, or with the priority, of a request that is routed: with another picker,
    /// requests pass unchanged.
    #[cold]
    #[inline(never)]
    pub(super) fn new_body(
        &self,
        (body, bytes): (&Body<'_>, &[u8]),
        resolution: ModelResolution<'_>,
        decided: &Decided,
        (is_renamed, gets_priority): (bool, bool),
    ) -> Option<Box<NewBody>> {
        let Decided::Made { directive: Directive { action: Action::Route(route), .. }, .. } = decided else {
            return None;
        };
        let asked = body.model.as_deref().unwrap_or_default();
        let restore = is_renamed.then(|| Restore::new(resolution.model, asked)).flatten();
        if body.is_form {
            let span = body.model_span.clone();
            let body = is_renamed.then(|| name_model_in_form(bytes, span, resolution.model))?;
            return Some(Box::new(NewBody { body, restore }));
        }
        let mut members = Vec::new();
        if is_renamed {
            members.push(Member::model(body.model_span.clone(), resolution.model));
        }
        if gets_priority {
            let first = route.assignment.destinations.first();
            let endpoint = first.and_then(|&endpoint| self.view.pool().of_key(endpoint));
            let span = body.priority_span.clone();
            members.extend(endpoint.map(|endpoint| Member::priority(span, resolution.priority, endpoint)));
        }
        (!members.is_empty()).then(|| Box::new(NewBody { body: with_members(bytes, members), restore }))
    }

    /// Whether the priority of a request to this API is written into its body. The body of a request of
    /// another picker stays unchanged.
    pub(super) fn propagates_priority(&self, api: Api) -> bool {
        self.other.is_none() && self.view.topology().pipeline.propagates_priority(api)
    }
}
