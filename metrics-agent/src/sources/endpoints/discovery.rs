//! Follows the endpoint set of all sources.

use std::path::PathBuf;

use endpoint_picker::pool::Endpoint;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::fields::LabelLimits;
use super::file_watcher::FileWatcher;
use super::set::{EndpointSet, combine};
use crate::files::FileLimits;
use crate::runtime::tasks::Tasks;
use crate::runtime::telemetry::ResultCounter;

/// Where endpoints come from. Both are used together.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Endpoints of the flags, which never change.
    pub fixed: Vec<Endpoint>,
    /// A file in the EPP's file-discovery format.
    pub file: Option<PathBuf>,
    /// Limits on the labels of each endpoint in the file.
    pub labels: LabelLimits,
}

/// Follows the endpoint set of all sources until dropped.
#[derive(Debug)]
pub struct Discovery {
    fixed: Vec<Endpoint>,
    max_endpoints: usize,
    limits: FileLimits,
    labels: LabelLimits,
    sets: watch::Sender<EndpointSet>,
    tasks: Tasks,
    reads: ResultCounter,
    watcher: Option<(PathBuf, AbortOnDropHandle<()>)>,
}

impl Discovery {
    /// Receives the newest endpoint set.
    pub fn sets(&self) -> watch::Receiver<EndpointSet> {
        self.sets.subscribe()
    }

    /// Watches this file from now on. Until it is read, the last valid set stays.
    pub fn watch_file(&mut self, path: PathBuf) {
        if self.watcher.as_ref().is_some_and(|(watched, _)| *watched == path) {
            return;
        }
        if self.watcher.is_none() {
            let _ = self.sets.send_replace(Err(format!("{} was not read yet", path.display())));
        }
        let (fixed, reads) = (self.fixed.clone(), self.reads.clone());
        let watcher = FileWatcher {
            path: path.clone(),
            fixed,
            max_endpoints: self.max_endpoints,
            limits: self.limits,
            labels: self.labels,
            sets: self.sets.clone(),
            reads,
        };
        let task = self.tasks.spawn(format!("endpoints file {}", path.display()), watcher.run());
        self.watcher = Some((path, task));
    }
}

/// Reads the sources now, and again whenever they change; a set of more than `max_endpoints` is refused.
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
    let mut discovery = Discovery { fixed, max_endpoints, limits, labels, sets, tasks, reads, watcher: None };
    if let Some(path) = file {
        discovery.watch_file(path);
    }
    discovery
}
