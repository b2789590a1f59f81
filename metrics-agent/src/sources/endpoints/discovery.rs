//! Endpoint sets, as they change.

use std::path::PathBuf;

use endpoint_picker::pool::Endpoint;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::fields::LabelLimits;
use super::file_watcher::FileWatcher;
use super::set::{EndpointSet, combine};
use crate::files::FileLimits;
use crate::tasks::Tasks;
use crate::telemetry::ResultCounter;

/// Where endpoints come from. Both are used together.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Given once and for all.
    pub fixed: Vec<Endpoint>,
    /// A file in the EPP's file-discovery format.
    pub file: Option<PathBuf>,
    /// What the file may say of each.
    pub labels: LabelLimits,
}

/// Endpoint sets as they come. Dropping it ends discovery.
#[derive(Debug)]
pub struct Discovery {
    fixed: Vec<Endpoint>,
    max_endpoints: usize,
    limits: FileLimits,
    labels: LabelLimits,
    sets: watch::Sender<EndpointSet>,
    tasks: Tasks,
    reads: ResultCounter,
    following: Option<(PathBuf, AbortOnDropHandle<()>)>,
}

impl Discovery {
    /// A receiver of the sets.
    pub fn sets(&self) -> watch::Receiver<EndpointSet> {
        self.sets.subscribe()
    }

    /// From now on the file is this one; until it was read, the last good set stays.
    pub fn follow_file(&mut self, path: PathBuf) {
        if self.following.as_ref().is_some_and(|(followed, _)| *followed == path) {
            return;
        }
        if self.following.is_none() {
            let _ = self.sets.send_replace(Err(format!("{} was not read yet", path.display())));
        }
        let (fixed, reads) = (self.fixed.clone(), self.reads.clone());
        let watcher = FileWatcher {
            path: path.clone(),
            fixed,
            max_endpoints: self.max_endpoints,
            limits: self.limits,
            labels: self.labels,
            found: self.sets.clone(),
            reads,
        };
        let task = self.tasks.spawn(format!("endpoints file {}", path.display()), watcher.run());
        self.following = Some((path, task));
    }
}

/// Looks at the sources once, and from then on whenever they change; a set of more than `max_endpoints` is refused.
pub fn start(
    sources: Sources,
    max_endpoints: usize,
    limits: FileLimits,
    tasks: &Tasks,
    reads: ResultCounter,
) -> Discovery {
    let Sources { fixed, file, labels } = sources;
    let sets = watch::Sender::new(combine(&fixed, &[], max_endpoints));
    let tasks = tasks.clone();
    let mut discovery =
        Discovery { fixed, max_endpoints, limits, labels, sets, tasks, reads, following: None };
    if let Some(path) = file {
        discovery.follow_file(path);
    }
    discovery
}
