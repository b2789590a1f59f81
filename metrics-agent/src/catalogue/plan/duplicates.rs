//! Refuses objects that are defined twice.

use std::collections::HashMap;

use crate::catalogue::manifests::document::{Documents, Item};
use crate::catalogue::manifests::fault::{Fault, Origin};
use crate::sources::problem::Problem;

/// Refuses objects of the same kind, namespace and name as an earlier one.
pub(super) fn refuse(documents: &mut Documents) {
    let Documents { pools, objectives, rewrites, models, problems, .. } = documents;
    refuse_among(pools, problems);
    refuse_among(objectives, problems);
    refuse_among(rewrites, problems);
    refuse_among(models, problems);
}

fn refuse_among<S>(items: &[Item<S>], problems: &mut Vec<Problem>) {
    let mut first: HashMap<(&str, &str), &Origin> = HashMap::new();
    for Item { origin, metadata, .. } in items {
        let (namespace, name) = (metadata.namespace.0.as_str(), metadata.name.0.as_str());
        if let Some(first) = first.get(&(namespace, name)) {
            let text = format!(
                "\"{namespace}/{name}\" is a second object of its kind; the first is {}",
                first.place()
            );
            problems.push(origin.problem(Fault::new("metadata.name", text)));
        } else {
            first.insert((namespace, name), origin);
        }
    }
}
