//! Applies picker configurations to their pools.

use std::collections::HashMap;
use std::path::PathBuf;

use super::pool::{PoolDraft, unknown_pool};
use crate::catalogue::manifests::document::Config;
use crate::sources::problem::{Origin, Problem};

/// Sets each pool's configuration, and returns the endpoints file, of which there is at most one.
pub(super) fn apply(
    pools: &mut [PoolDraft],
    configs: Vec<Config>,
    problems: &mut Vec<Problem>,
) -> Option<PathBuf> {
    let mut endpoints_file: Option<(PathBuf, Origin)> = None;
    let mut seen: HashMap<Option<String>, Origin> = HashMap::new();
    // Configurations of one pool come last, so that they replace those of all pools.
    let (named, unnamed): (Vec<_>, Vec<_>) = configs.into_iter().partition(|config| config.pool.is_some());
    for Config { origin, pool, lowered, .. } in unnamed.into_iter().chain(named) {
        let mut refuse = |at: &str, text: String| problems.push(origin.problem(at, text));
        if let Some(first) = seen.get(&pool) {
            let of = pool.as_ref().map_or("all pools".to_owned(), |pool| format!("pool {pool:?}"));
            let text = format!("is a second configuration of {of}; the first is {}", first.place());
            refuse("metadata.name", text);
            continue;
        }
        seen.insert(pool.clone(), origin.clone());
        if let Some(name) = &pool
            && !pools.iter().any(|pool| pool.plan.name == *name)
        {
            let text = unknown_pool(pools, name);
            refuse("metadata.name", format!("{text}, or no metadata for all pools"));
            continue;
        }
        match (&endpoints_file, lowered.endpoints_file) {
            (Some((one, first)), Some(other)) if *one != other => {
                let (one, other) = (one.display(), other.display());
                let text = format!("{other} is a second endpoints file beside {one} of {}", first.place());
                refuse("dataLayer.discovery.pluginRef", format!("{text}; an agent reads one"));
                continue;
            }
            (None, Some(path)) => endpoints_file = Some((path, origin.clone())),
            _ => {}
        }
        let targets = pools.iter_mut().filter(|own| pool.as_ref().is_none_or(|name| own.plan.name == *name));
        for own in targets {
            own.policy().picker_config = Some(lowered.picker.clone());
            own.plan.scraping = lowered.scraping.clone();
        }
    }
    endpoints_file.map(|(path, _)| path)
}
