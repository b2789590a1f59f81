//! Which manifests the agent serves.

use std::collections::HashMap;

use serde_json::Value as Json;

use super::manifest::is_config_map;
use super::settings::Settings;
use crate::catalogue::manifests::document::{Documents, Item};
use crate::sources::kubernetes::{ClusterObject, ObjectId};
use crate::sources::problem::Problem;

/// Whether an object is there and may concern a pool that is served. An object that is being deleted counts as deleted, as in the
/// EPP.
pub(super) fn is_selected(object: &ClusterObject, settings: &Settings) -> bool {
    let ClusterObject { id, json, .. } = object;
    let is_deleted = json.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null());
    !is_deleted && settings.only_pool().is_none_or(|pool| concerns(id, json, pool))
}

fn concerns(id: &ObjectId, json: &Json, (namespace, name): (&str, &str)) -> bool {
    if is_config_map(id) {
        return true;
    }
    let pool = if id.kind == "InferencePool" {
        Some(id.name.as_str())
    } else {
        json.pointer("/spec/poolRef/name").and_then(Json::as_str)
    };
    // An object without a readable reference may be meant for the pool.
    id.namespace == namespace && pool.is_none_or(|pool| pool == name)
}

/// Removes what texts have for other pools than the only one.
pub(super) fn restrict(documents: &mut Documents, settings: &Settings) {
    let Some((namespace, name)) = settings.only_pool() else { return };
    let pool = settings.scope().pool_name(namespace, name);
    let Documents { pools, configs, objectives, rewrites, models, .. } = documents;
    let is_of = |item_namespace: &str, item_pool: &str| item_namespace == namespace && item_pool == name;
    pools.retain(|it| is_of(&it.metadata.namespace, &it.metadata.name));
    configs.retain(|it| it.pool.as_ref().is_none_or(|named| *named == pool));
    objectives.retain(|it| is_of(&it.metadata.namespace, &it.spec.pool_ref.name.0));
    rewrites.retain(|it| is_of(&it.metadata.namespace, &it.spec.pool_ref.name.0));
    models.retain(|it| is_of(&it.metadata.namespace, &it.spec.pool_ref.name.0));
}

/// Refuses the youngest objects of a namespace that has too many of one kind. The objects are ordered by age.
pub(super) fn limit(documents: &mut Documents, max: usize) {
    let Documents { pools, objectives, rewrites, models, problems, .. } = documents;
    limit_kind(pools, max, problems);
    limit_kind(objectives, max, problems);
    limit_kind(rewrites, max, problems);
    limit_kind(models, max, problems);
}

fn limit_kind<S>(items: &mut Vec<Item<S>>, max: usize, problems: &mut Vec<Problem>) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    items.retain(|item| {
        let count = counts.entry(item.metadata.namespace.clone()).or_default();
        *count += 1;
        if *count > max {
            let text =
                format!("exceeds the limit of {max} objects of a kind in a namespace (--max-manifests)");
            problems.push(item.origin.problem("", text));
        }
        *count <= max
    });
}
