//! Keeps the status of pools up to date.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::watch;

use super::status::{Parent, StatusPatch};
use super::writing::{LoggedError, PAUSE, RETRY, changed};
use crate::catalogue::watch::PlanResult;
use crate::catalogue::{Plan, Refusal, Refusals};
use crate::sources::kubernetes::{Client, ClusterObject, ObjectsResult};
use crate::sources::problem::Source;

/// What the status of pools depends on.
#[derive(Debug)]
pub struct PoolInputs {
    /// The cluster's objects, with the status that pools have.
    pub objects: watch::Receiver<ObjectsResult>,
    /// The newest plan.
    pub plans: watch::Receiver<PlanResult>,
    /// The refused objects.
    pub refusals: watch::Receiver<Refusals>,
}

impl PoolInputs {
    /// The patches that are due.
    fn patches(&mut self, parent: &Parent, now: Timestamp) -> Vec<StatusPatch> {
        let Ok(objects) = self.objects.borrow_and_update().clone() else { return Vec::new() };
        let Ok(plan) = self.plans.borrow_and_update().clone() else { return Vec::new() };
        let refusals = self.refusals.borrow_and_update().clone();
        patches(&objects.0, &plan, &refusals, parent, now)
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = changed(&mut self.objects) => {}
            () = changed(&mut self.plans) => {}
            () = changed(&mut self.refusals) => {}
        }
    }
}

fn patches(
    objects: &[Arc<ClusterObject>],
    plan: &Plan,
    refusals: &[Refusal],
    parent: &Parent,
    now: Timestamp,
) -> Vec<StatusPatch> {
    let refused: HashMap<_, _> = refusals
        .iter()
        .filter_map(|refusal| match &refusal.source {
            Source::Object(id) => Some((&**id, refusal)),
            Source::File(_) | Source::ConfigMapKey(..) => None,
        })
        .collect();
    let pools = objects.iter().filter(|it| it.id.kind == "InferencePool");
    let is_deleted = |pool: &ClusterObject| pool.json.pointer("/metadata/deletionTimestamp").is_some();
    let patch = |pool: &Arc<ClusterObject>| {
        let name = format!("{}/{}", pool.id.namespace, pool.id.name);
        let refusal = refused.get(&pool.id).copied();
        // Other pools may be those of another agent.
        let is_own = refusal.is_some() || plan.pools.iter().any(|served| served.name == name);
        is_own.then(|| StatusPatch::of(pool, parent, refusal, now))?
    };
    pools.filter(|pool| !is_deleted(pool)).filter_map(patch).collect()
}

/// Keeps the status of pools up to date, forever.
pub async fn report(client: Client, parent: Parent, mut inputs: PoolInputs) {
    let mut logged = LoggedError::default();
    loop {
        let mut failed = false;
        for patch in inputs.patches(&parent, Timestamp::now()) {
            if let Err(error) = patch.apply(&client).await {
                logged.log("the status of a pool was not written (--kubernetes-status)", error);
                failed = true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        if failed {
            let _ = tokio::time::timeout(RETRY, inputs.changed()).await;
        } else {
            logged.clear();
            inputs.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sources::kubernetes::ObjectId;

    #[test]
    fn only_pools_that_are_served_or_refused_are_written() {
        let id = ObjectId {
            api_version: "inference.networking.k8s.io/v1".to_owned(),
            kind: "InferencePool".to_owned(),
            namespace: "team-a".to_owned(),
            name: "llama".to_owned(),
        };
        let refusal = Refusal {
            source: Source::Object(Arc::new(id.clone())),
            uid: None,
            generation: None,
            reasons: vec!["x".to_owned()],
            earlier_in_force: false,
        };
        let (uid, resource_version, json) = (String::new(), String::new(), serde_json::Value::Null);
        let objects = [Arc::new(ClusterObject { id, uid, generation: None, resource_version, json })];
        let plan = Plan { pools: Vec::new(), endpoints_file: None, documents: 0, warnings: Vec::new() };
        let parent = Parent { namespace: None, name: "gateway".to_owned() };
        let count =
            |refusals: &[Refusal]| patches(&objects, &plan, refusals, &parent, Timestamp::UNIX_EPOCH).len();
        assert_eq!((count(&[]), count(&[refusal])), (0, 1));
    }
}
