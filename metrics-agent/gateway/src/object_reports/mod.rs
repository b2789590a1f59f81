//! Reports to the objects of a cluster: an Event on each refused object, and the status of pools.
//!
//! Every replica of the agent reports, without a leader: the second of two equal writes has no effect.

pub mod event;
pub mod status;

use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use metrics_agent_catalogue::watch::PlanResult;
use metrics_agent_catalogue::{Plan, Refusal, Refusals};
use metrics_agent_sources::kubernetes::{ApiError, Client, ClusterObject, ObjectId, ObjectsResult};
use metrics_agent_sources::manifests::Source;
use metrics_agent_support::runtime::Tasks;
use status::{Parent, StatusPatch};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// Reports to objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectReports {
    /// Whether refused objects get Events.
    pub events: bool,
    /// The Gateway in whose name the status of pools is written; `None`: it is not written.
    pub status: Option<Parent>,
}

impl ObjectReports {
    /// Reports until the handles are dropped.
    pub fn start(self, client: &Client, inputs: PoolInputs, tasks: &Tasks) -> Vec<AbortOnDropHandle<()>> {
        let mut handles = Vec::new();
        if self.events {
            // In a pod, the pod's name.
            let instance = std::env::var("HOSTNAME").ok().filter(|name| (1..=128).contains(&name.len()));
            let instance = instance.unwrap_or_else(|| AGENT.to_owned());
            let report = event::report(client.clone(), instance, inputs.refusals.clone());
            handles.push(tasks.spawn("Events on refused objects", report));
        }
        if let Some(parent) = self.status {
            let writing =
                write_status(client.clone(), "--kubernetes-status", ParentStatus { parent, inputs });
            handles.push(tasks.spawn("status of pools", writing));
        }
        handles
    }
}

/// Time between two writes, so that any number of refused objects is at most five writes a second.
const PAUSE: Duration = Duration::from_millis(200);

/// Time until writes that failed are tried again.
const RETRY: Duration = Duration::from_secs(30);

/// The agent's name in objects that it writes.
const AGENT: &str = "endpoint-picker-agent";

/// Logs an error of writing, unless the last one was equal.
#[derive(Debug, Default)]
struct LoggedError(Option<ApiError>);

impl LoggedError {
    fn log(&mut self, what: &str, error: ApiError) {
        if self.0.as_ref() != Some(&error) {
            tracing::warn!(%error, "{what}");
            self.0 = Some(error);
        }
    }

    fn clear(&mut self) {
        self.0 = None;
    }
}

/// Waits for a new value; forever if there is none to come.
pub async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        core::future::pending::<()>().await;
    }
}

/// Inputs of the status of pools.
#[derive(Debug)]
pub struct PoolInputs {
    /// The cluster's objects, with the status that pools have.
    pub objects: watch::Receiver<ObjectsResult>,
    /// The newest plan.
    pub plans: watch::Receiver<PlanResult>,
    /// The refused objects.
    pub refusals: watch::Receiver<Refusals>,
}

/// The status of pools in the name of one Gateway.
#[derive(Debug)]
struct ParentStatus {
    parent: Parent,
    inputs: PoolInputs,
}

impl StatusSource for ParentStatus {
    fn patches(&mut self, now: Timestamp) -> Vec<StatusPatch> {
        let inputs = &mut self.inputs;
        let Ok(objects) = inputs.objects.borrow_and_update().clone() else { return Vec::new() };
        let Ok(plan) = inputs.plans.borrow_and_update().clone() else { return Vec::new() };
        let refusals = inputs.refusals.borrow_and_update().clone();
        patches(&objects.0, &plan, &refusals, &self.parent, now)
    }

    async fn changed(&mut self) {
        tokio::select! {
            () = changed(&mut self.inputs.objects) => {}
            () = changed(&mut self.inputs.plans) => {}
            () = changed(&mut self.inputs.refusals) => {}
        }
    }
}

/// Refusals of the cluster's objects, by their object.
pub fn refused_objects(refusals: &[Refusal]) -> HashMap<&ObjectId, &Refusal> {
    let of_objects = refusals.iter().filter_map(|refusal| match &refusal.source {
        Source::Object(id) => Some((&**id, refusal)),
        Source::File(_) | Source::ConfigMapKey(..) => None,
    });
    of_objects.collect()
}

fn patches(
    objects: &[Arc<ClusterObject>],
    plan: &Plan,
    refusals: &[Refusal],
    parent: &Parent,
    now: Timestamp,
) -> Vec<StatusPatch> {
    let refused = refused_objects(refusals);
    let pools = objects.iter().filter(|it| it.id.kind == "InferencePool");
    let is_deleted = |pool: &ClusterObject| pool.json.pointer("/metadata/deletionTimestamp").is_some();
    let patch = |pool: &Arc<ClusterObject>| {
        let name = format!("{}/{}", pool.id.namespace, pool.id.name);
        let refusal = refused.get(&pool.id).copied();
        // Other pools may belong to another agent.
        let is_own = refusal.is_some() || plan.pools.iter().any(|served| served.name == name);
        is_own.then(|| StatusPatch::of(pool, parent, refusal, now))?
    };
    pools.filter(|pool| !is_deleted(pool)).filter_map(patch).collect()
}

/// The status of pools, as it follows from inputs that change.
pub trait StatusSource {
    /// The patches that are due.
    fn patches(&mut self, now: Timestamp) -> Vec<StatusPatch>;

    /// Waits until an input changes.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// Keeps the status of pools up to date, forever. `flag` is the one that asks for it.
pub async fn write_status(client: Client, flag: &'static str, mut source: impl StatusSource) {
    let mut logged = LoggedError::default();
    loop {
        let mut failed = false;
        for patch in source.patches(Timestamp::now()) {
            if let Err(error) = patch.apply(&client).await {
                logged.log(&format!("the status of a pool was not written ({flag})"), error);
                failed = true;
            }
            tokio::time::sleep(PAUSE).await;
        }
        if failed {
            let _ = tokio::time::timeout(RETRY, source.changed()).await;
        } else {
            logged.clear();
            source.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let plan = Plan {
            pools: Vec::new(),
            base_models: metrics_agent_catalogue::plan::versioned(Vec::new()),
            endpoints_file: None,
            documents: 0,
            warnings: Vec::new(),
        };
        let parent = Parent { namespace: None, name: "gateway".to_owned() };
        let count =
            |refusals: &[Refusal]| patches(&objects, &plan, refusals, &parent, Timestamp::UNIX_EPOCH).len();
        assert_eq!((count(&[]), count(&[refusal])), (0, 1));
    }
}
