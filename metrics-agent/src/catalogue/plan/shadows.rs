//! Applies shadow configurations to their pools.

use std::collections::HashMap;
use std::path::Path;

use super::pool::PoolDraft;
use crate::catalogue::manifests::document::{Config, Documents};
use crate::catalogue::manifests::fault::{Fault, Origin};

/// Sets each pool's shadow configuration. `endpoints_file` is the one of the acting configurations.
pub(super) fn apply(
    pools: &mut [PoolDraft],
    shadows: Vec<Config>,
    endpoints_file: Option<&Path>,
    documents: &mut Documents,
) {
    let names = pools.iter().map(|pool| pool.plan.name.clone()).collect::<Vec<_>>().join(", ");
    let mut seen: HashMap<String, Origin> = HashMap::new();
    for Config { origin, pool, lowered, .. } in shadows {
        // The shadow annotation is in the metadata, which requires a name.
        let Some(name) = pool else { continue };
        let mut refuse = |text| documents.problems.push(origin.problem(Fault::new("metadata.name", text)));
        if let Some(first) = seen.get(&name) {
            refuse(format!("is a second shadow of pool {name:?}; the first is {}", first.place()));
            continue;
        }
        let Some(own) = pools.iter_mut().find(|own| own.plan.name == name) else {
            refuse(format!("unknown pool {name:?}; allowed are {names}"));
            continue;
        };
        let other_file = lowered.endpoints_file.as_deref().is_some_and(|file| endpoints_file != Some(file));
        if other_file || !own.is_scraped_by(&lowered.scraping) {
            let text =
                "is not used in a shadow configuration; endpoints are discovered and scraped without it";
            documents.warnings.push(origin.problem(Fault::new("dataLayer", text)));
        }
        own.policy().shadow_config = Some(lowered.picker);
        seen.insert(name, origin);
    }
}
