//! The refused objects and files, for the page and `metrics-agent snapshot`.

use serde::{Deserialize, Serialize};

use crate::catalogue::Refusal;

/// Most objects that are listed.
const MAX_LISTED: usize = 200;

/// The refused objects and files, the first ones with their reasons.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RefusedObjects {
    /// All of them.
    pub count: usize,
    /// At most [`MAX_LISTED`].
    pub objects: Vec<RefusedObject>,
}

/// A refused object or file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefusedObject {
    /// Kind, namespace and name, or the path.
    pub object: String,
    /// At least one.
    pub reasons: Vec<String>,
    /// Whether an earlier version is in force instead.
    pub earlier_in_force: bool,
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
