//! Follows the plan of manifests: reads their files again whenever they change.

use core::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use metrics_agent_sources::manifests::{self, File, Problem, Problems};
use metrics_agent_support::files;
use metrics_agent_support::runtime::{ResultCounter, Tasks};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::plan::Plan;
use super::{Options, Refusal, Refusals};

/// The newest valid plan; before the first one, why there is none.
pub type PlanResult = Result<Arc<Plan>, NoPlan>;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// The manifests were not read yet.
    Pending(String),
    /// The first manifests are refused.
    Refused(String),
}

impl fmt::Display for NoPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending(reason) | Self::Refused(reason) => f.write_str(reason),
        }
    }
}

/// The manifests to watch.
#[derive(Clone, Debug)]
pub struct ManifestSettings {
    /// A file or a directory.
    pub path: PathBuf,
    /// Options for reading them.
    pub options: Options,
}

/// Follows the plan of the manifests until dropped.
#[derive(Debug)]
pub struct PlanWatch {
    plans: watch::Receiver<PlanResult>,
    refusals: watch::Receiver<Refusals>,
    _task: Option<AbortOnDropHandle<()>>,
}

impl PlanWatch {
    /// Receives the newest plan.
    pub fn plans(&self) -> watch::Receiver<PlanResult> {
        self.plans.clone()
    }

    /// Receives the refused objects of a cluster and the refused files.
    pub fn refusals(&self) -> watch::Receiver<Refusals> {
        self.refusals.clone()
    }

    /// A plan that never changes.
    pub fn of(plan: Plan) -> Self {
        let (_, plans) = watch::channel(Ok(Arc::new(plan)));
        let (_, refusals) = watch::channel(Refusals::default());
        Self { plans, refusals, _task: None }
    }

    /// The plans and refusals of a task.
    pub(super) fn new(
        plans: watch::Receiver<PlanResult>,
        refusals: watch::Receiver<Refusals>,
        task: AbortOnDropHandle<()>,
    ) -> Self {
        Self { plans, refusals, _task: Some(task) }
    }

    /// Reads the manifests now, and again whenever they change. `accepts` refuses valid plans that the agent
    /// cannot serve.
    pub fn start(
        settings: ManifestSettings,
        tasks: &Tasks,
        reads: ResultCounter,
        accepts: impl Fn(&Plan) -> Result<(), Problems> + Send + Sync + 'static,
    ) -> Self {
        let (sender, plans) =
            watch::channel(Err(NoPlan::Pending(format!("{} was not read yet", settings.path.display()))));
        let (refused, refusals) = watch::channel(Refusals::default());
        let task = tasks.spawn("manifests", async move {
            let update = |files: &FilesResult| {
                refused.send_replace(update(files, &settings.options, &sender, &reads, &accepts));
            };
            files::poll(|| read(settings.path.clone()), update).await;
        });
        Self::new(plans, refusals, task)
    }
}

type FilesResult = Result<Vec<File>, Problems>;

pub(super) async fn read(path: PathBuf) -> FilesResult {
    let reading = tokio::task::spawn_blocking({
        let path = path.clone();
        move || manifests::read(&path)
    });
    reading.await.unwrap_or_else(|error| Err(Problem::of_file(&path, error.to_string()).into()))
}

/// Publishes the plan of the files, or returns why they are refused.
fn update(
    files: &FilesResult,
    options: &Options,
    sender: &watch::Sender<PlanResult>,
    reads: &ResultCounter,
    accepts: &impl Fn(&Plan) -> Result<(), Problems>,
) -> Refusals {
    let plan = files.clone().and_then(|files| {
        let plan = Plan::read(&files, options)?;
        accepts(&plan)?;
        Ok(plan)
    });
    reads.count(plan.is_ok());
    match plan {
        Ok(plan) => {
            for warning in &plan.warnings {
                tracing::warn!("{warning}");
            }
            tracing::info!(documents = plan.documents, pools = plan.pools.len(), "manifests read");
            let _ = sender.send_replace(Ok(Arc::new(plan)));
            Refusals::default()
        }
        Err(problems) => {
            let is_first = sender.borrow().is_err();
            let effect = if is_first { "no pool is served" } else { "the last valid plan stays" };
            tracing::error!("manifests refused; {effect}\n{problems}");
            if is_first {
                let _ = sender.send_replace(Err(NoPlan::Refused(format!("manifests refused: {problems}"))));
            }
            Refusal::of_files(&problems, sender.borrow().is_ok()).collect()
        }
    }
}
