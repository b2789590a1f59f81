//! Applies objectives, rewrites and models to their pools.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_wire::v1;
use metrics_agent_sources::manifests::{Origin, Problem};

use super::{PoolDraft, unknown_pool};
use crate::epp::names::Use;
use crate::manifests::document::{Documents, Item, PickerDocument};
use crate::manifests::fields::PoolRef;

/// Applies the objects. The result are the objects without effect: their pool is unknown, or an older object
/// decides.
pub(super) fn apply(pools: &mut [PoolDraft], documents: &mut Documents) -> Vec<Problem> {
    let mut without_effect = Vec::new();
    objectives(pools, documents, &mut without_effect);
    rewrites(pools, documents, &mut without_effect);
    models(pools, documents, &mut without_effect);
    without_effect
}

/// Calls `apply` for each object and its pool, oldest objects first, and collects the objects without a pool.
fn for_each_target<S>(
    pools: &mut [PoolDraft],
    mut items: Vec<Item<S>>,
    without_effect: &mut Vec<Problem>,
    pool_ref: impl Fn(&S) -> &PoolRef,
    mut apply: impl FnMut(&mut PoolDraft, &Item<S>, &mut Vec<Problem>),
) {
    items.sort_by(|a, b| a.metadata.by_age(&b.metadata));
    for item in items {
        let reference = pool_ref(&item.spec);
        if let Some(pool) = pools.iter_mut().find(|pool| pool.is_target_of(&item.metadata, reference)) {
            apply(pool, &item, without_effect);
        } else {
            let (name, namespace) = (&reference.name.0, &item.metadata.namespace);
            let text = format!("unknown pool {name:?} in namespace {namespace:?}; the object has no effect");
            without_effect.push(item.origin.problem("spec.poolRef", text));
        }
    }
}

fn objectives(pools: &mut [PoolDraft], documents: &mut Documents, without_effect: &mut Vec<Problem>) {
    let items = core::mem::take(&mut documents.objectives);
    for_each_target(
        pools,
        items,
        without_effect,
        |spec| &spec.pool_ref,
        |pool, item, _| {
            let (name, priority) = (item.metadata.name.clone(), item.spec.priority.0);
            pool.policy().objectives.push(v1::Objective { name, priority });
        },
    );
}

fn rewrites(pools: &mut [PoolDraft], documents: &mut Documents, without_effect: &mut Vec<Problem>) {
    let items = core::mem::take(&mut documents.rewrites);
    for_each_target(
        pools,
        items,
        without_effect,
        |spec| &spec.pool_ref,
        |pool, item, _| {
            pool.policy().rewrite_rules.extend(item.spec.rules(&item.metadata.name));
        },
    );
}

fn models(pools: &mut [PoolDraft], documents: &mut Documents, without_effect: &mut Vec<Problem>) {
    let items = core::mem::take(&mut documents.models);
    for_each_target(
        pools,
        items,
        without_effect,
        |spec| &spec.pool_ref,
        |pool, item, without_effect| {
            let models = &mut pool.policy().inference_models;
            let model = item.spec.on_the_wire();
            if models.iter().any(|other| other.name == model.name) {
                let text =
                    format!("{:?} is the model of an older object, which takes precedence", model.name);
                without_effect.push(item.origin.problem("spec.modelName", text));
            } else {
                models.push(model);
            }
        },
    );
}

/// Adds the problems of names that a pool with these rules refuses. True: there is one.
fn refuse_names(names: &[Use], rules: &[EppRules], origin: &Origin, problems: &mut Vec<Problem>) -> bool {
    let problem = |it: &Use| {
        let text = rules.iter().find_map(|&rules| it.problem(rules))?;
        Some(origin.problem(&it.at, text))
    };
    let before = problems.len();
    problems.extend(names.iter().filter_map(problem));
    problems.len() > before
}

/// Sets each pool's configuration, and returns the endpoints file, of which there is at most one.
pub(super) fn apply_configs(
    pools: &mut [PoolDraft],
    configs: Vec<PickerDocument>,
    problems: &mut Vec<Problem>,
) -> Option<PathBuf> {
    let mut endpoints_file: Option<(PathBuf, Origin)> = None;
    let mut seen: HashMap<Option<String>, Origin> = HashMap::new();
    // Configurations of one pool come last, so that they replace the configurations of all pools.
    let (named, unnamed): (Vec<_>, Vec<_>) = configs.into_iter().partition(|config| config.pool.is_some());
    for PickerDocument { origin, pool, lowered, names, .. } in unnamed.into_iter().chain(named) {
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
        let is_target = |own: &&mut PoolDraft| pool.as_ref().is_none_or(|name| own.plan.name == *name);
        let rules: Vec<_> = pools.iter_mut().filter(is_target).map(|own| own.plan.rules()).collect();
        if refuse_names(&names, &rules, &origin, problems) {
            continue;
        }
        let mut refuse = |at: &str, text: String| problems.push(origin.problem(at, text));
        match (&endpoints_file, lowered.endpoints_file) {
            (Some((one, first)), Some(other)) if *one != other => {
                let (one, other) = (one.display(), other.display());
                let text = format!("{other} is a second endpoints file next to {one} of {}", first.place());
                refuse("dataLayer.discovery.pluginRef", format!("{text}; an agent reads one"));
                continue;
            }
            (None, Some(path)) => endpoints_file = Some((path, origin.clone())),
            _ => {}
        }
        for own in pools.iter_mut().filter(is_target) {
            own.policy().picker_config = Some(lowered.picker.clone());
            own.plan.scraping = lowered.scraping.clone();
        }
    }
    endpoints_file.map(|(path, _)| path)
}

/// Sets each pool's shadow configuration. `endpoints_file` is the acting configurations' endpoints file.
pub(super) fn apply_shadows(
    pools: &mut [PoolDraft],
    shadows: Vec<PickerDocument>,
    endpoints_file: Option<&Path>,
    documents: &mut Documents,
) {
    let mut seen: HashMap<String, Origin> = HashMap::new();
    for PickerDocument { origin, pool, lowered, names, .. } in shadows {
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
        if refuse_names(&names, &[own.plan.rules()], &origin, &mut documents.problems) {
            continue;
        }
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
