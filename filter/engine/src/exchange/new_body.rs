//! The body with another model or priority, in place of the client's.

use endpoint_picker::policy::{Member, name_model_in_form, with_members};
use endpoint_picker::pool::Endpoint;
use endpoint_picker::request::ModelResolution;
use endpoint_picker::request::body::Body;
use endpoint_picker::response::restore::Restore;

/// A body with another model or priority.
pub(super) struct NewBody {
    pub(super) body: Vec<u8>,
    pub(super) restore: Option<Restore>,
}

impl NewBody {
    /// This body with the model, and with the priority as this endpoint reads it; `None` if it stays as it
    /// is.
    #[cold]
    #[inline(never)]
    pub(super) fn new(
        (body, bytes): (&Body<'_>, &[u8]),
        resolution: ModelResolution<'_>,
        is_renamed: bool,
        priority_for: Option<&Endpoint>,
    ) -> Option<Box<Self>> {
        let asked = body.model.as_deref().unwrap_or_default();
        let restore = is_renamed.then(|| Restore::new(resolution.model, asked)).flatten();
        if body.is_form {
            let span = body.model_span.clone();
            let body = is_renamed.then(|| name_model_in_form(bytes, span, resolution.model))?;
            return Some(Box::new(Self { body, restore }));
        }
        let model = is_renamed.then(|| Member::model(body.model_span.clone(), resolution.model));
        let priority = priority_for
            .map(|endpoint| Member::priority(body.priority_span.clone(), resolution.priority, endpoint));
        let members: Vec<Member> = model.into_iter().chain(priority).collect();
        (!members.is_empty()).then(|| Box::new(Self { body: with_members(bytes, members), restore }))
    }
}
