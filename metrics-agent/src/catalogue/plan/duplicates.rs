//! Refuses objects that are defined twice.

use std::collections::HashMap;

use crate::catalogue::manifests::document::{Documents, Item};
use crate::catalogue::manifests::fields::Metadata;
use crate::sources::problem::{Origin, Problem};

/// Removes objects of the same kind, namespace and name as an earlier one, and adds their problems.
pub(super) fn refuse(documents: &mut Documents) {
    let Documents { pools, objectives, rewrites, models, problems, .. } = documents;
    refuse_among(pools, problems);
    refuse_among(objectives, problems);
    refuse_among(rewrites, problems);
    refuse_among(models, problems);
}

fn refuse_among<S>(items: &mut Vec<Item<S>>, problems: &mut Vec<Problem>) {
    let mut first: HashMap<(String, String), Origin> = HashMap::new();
    items.retain(|Item { origin, metadata: Metadata { namespace, name, .. }, .. }| {
        let id = (namespace.clone(), name.clone());
        if let Some(first) = first.get(&id) {
            let place = first.place();
            let text = format!("\"{namespace}/{name}\" is a second object of its kind; the first is {place}");
            problems.push(origin.problem("metadata.name", text));
            return false;
        }
        first.insert(id, origin.clone());
        true
    });
}
