//! Applies shadow configurations to their pools.

use std::collections::HashMap;
use std::path::Path;

use super::pool::{PoolDraft, unknown_pool};
use crate::catalogue::manifests::document::{Config, Documents};
use crate::sources::problem::Origin;

/// Sets each pool's shadow configuration. `endpoints_file` is the one of the acting configurations.
pub(super) fn apply(
    pools: &mut [PoolDraft],
    shadows: Vec<Config>,
    endpoints_file: Option<&Path>,
    documents: &mut Documents,
) {
    let mut seen: HashMap<String, Origin> = HashMap::new();
    for Config { origin, pool, lowered, .. } in shadows {
        // The shadow annotation is in the metadata, which requires a name.
        let Some(name) = pool else { continue };
        let mut refuse = |text| documents.problems.push(origin.problem("metadata.name", text));
        if let Some(first) = seen.get(&name) {
            refuse(format!("is a second shadow of pool {name:?}; the first is {}", first.place()));
            continue;
        }
        let Some(index) = pools.iter().position(|own| own.plan.name == name) else {
            refuse(unknown_pool(pools, &name));
            continue;
        };
        let own = &mut pools[index];
        let other_file = lowered.endpoints_file.as_deref().is_some_and(|file| endpoints_file != Some(file));
        if other_file || !own.is_scraped_by(&lowered.scraping) {
            let text =
                "is not used in a shadow configuration; endpoints are discovered and scraped without it";
            documents.warnings.push(origin.problem("dataLayer", text));
        }
        own.policy().shadow_config = Some(lowered.picker);
        seen.insert(name, origin);
    }
}
