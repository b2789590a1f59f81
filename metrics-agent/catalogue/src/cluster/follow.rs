//! Follows the objects of a cluster.

use core::time::Duration;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use metrics_agent_sources::kubernetes::{ClusterObject, MAX_OBJECTS, ObjectId, ObjectsResult};
use metrics_agent_sources::manifests::{File, Problem, Problems};
use metrics_agent_support::files;
use metrics_agent_support::runtime::{ResultCounter, Tasks};
use serde_json::Value as Json;
use tokio::sync::watch;

use super::manifest::is_config_map;
use super::{CatalogueSettings, ClusterCatalogue};
use crate::manifests::document::{Documents, Item};
use crate::plan::Plan;
use crate::watch::{NoPlan, PlanResult, PlanWatch, read};
use crate::{Refusal, Refusals};

/// Objects that change within this time of each other are read together, such as the objects of one
/// `kubectl apply`.
const BURST: Duration = Duration::from_millis(20);

type FilesResult = Result<Vec<File>, Problems>;

impl PlanWatch {
    /// Follows the plan of a cluster's objects, and of the files at `manifests`.
    pub fn of_cluster(
        objects: watch::Receiver<ObjectsResult>,
        settings: CatalogueSettings,
        manifests: Option<PathBuf>,
        tasks: &Tasks,
        reads: ResultCounter,
    ) -> Self {
        let (plans, plan_receiver) =
            watch::channel(Err(NoPlan::Pending("the cluster's objects were not read yet".to_owned())));
        let (refusals, refusal_receiver) = watch::channel(Refusals::default());
        let follower = ClusterFollower { plans, refusals, reads, warnings: Vec::new() };
        let tasks_of_files = tasks.clone();
        let task = tasks.spawn("cluster objects", async move {
            let files = manifests.map(|path| FilesWatch::start(path, &tasks_of_files));
            follower.run(objects, files, ClusterCatalogue::new(settings)).await;
        });
        Self::new(plan_receiver, refusal_receiver, task)
    }
}

/// The content of the manifest files; `None` until they were read.
struct FilesWatch {
    path: PathBuf,
    contents: watch::Receiver<Option<FilesResult>>,
    _task: tokio_util::task::AbortOnDropHandle<()>,
}

impl FilesWatch {
    fn start(path: PathBuf, tasks: &Tasks) -> Self {
        let (sender, contents) = watch::channel(None);
        let polled = path.clone();
        let task = tasks.spawn("manifests", async move {
            let update = |files: &FilesResult| drop(sender.send_replace(Some(files.clone())));
            files::poll(|| read(polled.clone()), update).await;
        });
        Self { path, contents, _task: task }
    }
}

/// Publishes plans and refusals.
struct ClusterFollower {
    plans: watch::Sender<PlanResult>,
    refusals: watch::Sender<Refusals>,
    reads: ResultCounter,
    /// The warnings of the last plan.
    warnings: Vec<Problem>,
}

impl ClusterFollower {
    async fn run(
        mut self,
        mut objects: watch::Receiver<ObjectsResult>,
        mut files: Option<FilesWatch>,
        mut catalogue: ClusterCatalogue,
    ) {
        let mut are_files_new = false;
        loop {
            let mut is_changed = false;
            if are_files_new
                && let Some(files) = &mut files
                && let Some(contents) = files.contents.borrow_and_update().as_ref()
            {
                catalogue.set_files(&files.path, contents);
                is_changed = true;
            }
            let newest = objects.borrow_and_update().clone();
            // Without the files, their objects would be out of force for a moment.
            let has_files = files.as_ref().is_none_or(|files| files.contents.borrow().is_some());
            match newest {
                Ok(objects) if has_files => {
                    is_changed |= catalogue.set_objects(&objects);
                    if is_changed || self.plans.borrow().is_err() {
                        let (plan, refusals) = catalogue.plan();
                        self.publish(plan, refusals);
                    }
                }
                Ok(_) => {}
                Err(reason) => {
                    self.plans.send_if_modified(|plan| {
                        let is_first = plan.is_err();
                        if is_first {
                            *plan = Err(NoPlan::Pending(reason));
                        }
                        is_first
                    });
                }
            }
            are_files_new = tokio::select! {
                () = changed(Some(&mut objects)) => false,
                () = changed(files.as_mut().map(|files| &mut files.contents)) => true,
            };
            tokio::time::sleep(BURST).await;
        }
    }

    fn publish(&mut self, plan: Plan, refusals: Vec<Refusal>) {
        let earlier = self.refusals.borrow().clone();
        let new: Vec<_> = refusals.iter().filter(|refusal| !earlier.contains(refusal)).collect();
        for refusal in &new {
            tracing::error!("{} is refused: {refusal}", refusal.source);
        }
        for gone in earlier.iter().filter(|gone| refusals.iter().all(|it| it.source != gone.source)) {
            tracing::info!("{} is not refused any more", gone.source);
        }
        for warning in plan.warnings.iter().filter(|warning| !self.warnings.contains(warning)) {
            tracing::warn!("{warning}");
        }
        self.warnings.clone_from(&plan.warnings);
        self.reads.count(new.is_empty());
        let is_published = self.plans.send_if_modified(|published| {
            let is_new = published.as_ref().map_or(true, |published| **published != plan);
            if is_new {
                tracing::info!(objects = plan.documents, pools = plan.pools.len(), "cluster objects read");
                *published = Ok(Arc::new(plan));
            }
            is_new
        });
        tracing::debug!(is_published, refused = refusals.len(), "cluster objects combined");
        self.refusals.send_if_modified(|published| {
            let is_new = published[..] != refusals[..];
            if is_new {
                *published = refusals.into();
            }
            is_new
        });
    }
}

/// Waits for a new value; forever if there is none to come.
async fn changed<T>(receiver: Option<&mut watch::Receiver<T>>) {
    let is_changed = match receiver {
        Some(receiver) => receiver.changed().await.is_ok(),
        None => false,
    };
    if !is_changed {
        core::future::pending::<()>().await;
    }
}

/// Whether an object is there and may concern a pool that is served. An object that is being deleted counts
/// as deleted, as in the EPP.
pub(super) fn is_selected(object: &ClusterObject, settings: &CatalogueSettings) -> bool {
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

/// Removes the documents that are for other pools than the only pool to serve.
pub(super) fn restrict(documents: &mut Documents, settings: &CatalogueSettings) {
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
pub(super) fn limit(documents: &mut Documents) {
    let Documents { pools, objectives, rewrites, models, base_models, problems, .. } = documents;
    limit_kind(pools, problems);
    limit_kind(objectives, problems);
    limit_kind(rewrites, problems);
    limit_kind(models, problems);
    limit_kind(base_models, problems);
}

fn limit_kind<S>(items: &mut Vec<Item<S>>, problems: &mut Vec<Problem>) {
    let mut counts: HashMap<String, usize> = HashMap::new();
    items.retain(|item| {
        let count = counts.entry(item.metadata.namespace.clone()).or_default();
        *count += 1;
        if *count > MAX_OBJECTS {
            let text = format!("exceeds the limit of {MAX_OBJECTS} objects of a kind in a namespace");
            problems.push(item.origin.problem("", text));
        }
        *count <= MAX_OBJECTS
    });
}
