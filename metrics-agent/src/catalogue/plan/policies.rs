//! Applies objectives, rewrites and models to their pools.

use endpoint_picker_wire::v1;

use super::pool::PoolDraft;
use crate::catalogue::manifests::document::{Documents, Item};
use crate::catalogue::manifests::fields::PoolRef;
use crate::sources::problem::Problem;

/// Applies the objects. The result are those without effect: their pool is unknown, or an older object decides.
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
