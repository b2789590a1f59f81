//! The refused objects of a cluster, for the page.

use serde::Serialize;

use crate::catalogue::Refusal;

/// Most objects that are listed.
const MAX_LISTED: usize = 200;

/// The refused objects, the first ones with their reasons.
#[derive(Debug, Serialize)]
pub(super) struct RefusedObjects {
    /// All of them.
    count: usize,
    /// At most [`MAX_LISTED`].
    objects: Vec<RefusedObject>,
}

#[derive(Debug, Serialize)]
struct RefusedObject {
    /// Kind, namespace and name.
    object: String,
    reasons: Vec<String>,
    /// Whether an earlier version of the object is in force instead.
    earlier_in_force: bool,
}

impl RefusedObjects {
    pub(super) fn new(refusals: &[Refusal]) -> Self {
        let objects = refusals.iter().take(MAX_LISTED).map(|refusal| RefusedObject {
            object: refusal.source.to_string(),
            reasons: refusal.reasons.clone(),
            earlier_in_force: refusal.earlier_in_force,
        });
        Self { count: refusals.len(), objects: objects.collect() }
    }
}
