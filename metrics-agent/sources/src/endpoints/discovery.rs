//! Follows the endpoint set of all sources.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use metrics_agent_support::runtime::{ResultCounter, Tasks};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::file::{FileWatcher, WatchedFile};
use super::follower::Follower;
use super::named_servers::Unresolved;
use super::{Declared, DeclaredSet, EndpointSet, LeftOutMetrics, NoEndpoints, combine};
use crate::names::Resolver;

/// Where endpoints come from. Both are used together.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Servers of the flags, which never change.
    pub fixed: Declared,
    /// A file in the EPP's file-discovery format.
    pub file: Option<PathBuf>,
    /// Where host names are looked up.
    pub resolver: Resolver,
}

/// Counters of discovery.
#[derive(Clone, Debug)]
pub struct Counters {
    /// Readings of a changed endpoints file.
    pub reads: ResultCounter,
    /// Lookups of host names.
    pub lookups: ResultCounter,
    /// Endpoints that are left out.
    pub left_out: LeftOutMetrics,
}

/// Follows the endpoint set of all sources until dropped.
#[derive(Debug)]
pub struct Discovery {
    fixed: Declared,
    max_endpoints: usize,
    declared: watch::Sender<DeclaredSet>,
    sets: watch::Receiver<EndpointSet>,
    unresolved: watch::Receiver<Arc<[Unresolved]>>,
    denied: watch::Receiver<Arc<BTreeSet<String>>>,
    tasks: Tasks,
    reads: ResultCounter,
    watched: watch::Sender<Option<WatchedFile>>,
    watcher: Option<(PathBuf, AbortOnDropHandle<()>)>,
    _follower: AbortOnDropHandle<()>,
}

impl Discovery {
    /// Receives the newest endpoint set.
    pub fn sets(&self) -> watch::Receiver<EndpointSet> {
        self.sets.clone()
    }

    /// Receives the host names with a problem.
    pub fn unresolved(&self) -> watch::Receiver<Arc<[Unresolved]>> {
        self.unresolved.clone()
    }

    /// Receives the names of endpoints whose host name is denied by name servers again and again.
    pub fn denied(&self) -> watch::Receiver<Arc<BTreeSet<String>>> {
        self.denied.clone()
    }

    /// Receives the endpoints file; `None`: none is watched, or it was not read yet.
    pub fn watched_file(&self) -> watch::Receiver<Option<WatchedFile>> {
        self.watched.subscribe()
    }

    /// Watches this file from now on. Until it is read, the last valid set stays.
    pub fn watch_file(&mut self, path: PathBuf) {
        if self.watcher.as_ref().is_some_and(|(watched, _)| *watched == path) {
            return;
        }
        if self.watcher.is_none() {
            let _ = self
                .declared
                .send_replace(Err(NoEndpoints::Pending(format!("{} was not read yet", path.display()))));
        }
        let (fixed, reads) = (self.fixed.clone(), self.reads.clone());
        let watcher = FileWatcher {
            path: path.clone(),
            fixed,
            max_endpoints: self.max_endpoints,
            sets: self.declared.clone(),
            watched: self.watched.clone(),
            reads,
        };
        let task = self.tasks.spawn(format!("endpoints file {}", path.display()), watcher.run());
        self.watcher = Some((path, task));
    }
}

/// Reads the sources now, and again whenever they change. A file with more than `max_endpoints` is refused.
pub fn start(sources: Sources, max_endpoints: usize, tasks: &Tasks, counters: Counters) -> Discovery {
    let Sources { fixed, file, resolver } = sources;
    let declared = combine(&fixed, &Declared::default(), max_endpoints).map_err(NoEndpoints::Refused);
    let declared = watch::Sender::new(declared);
    let sets = watch::Sender::new(Err(NoEndpoints::Pending("discovery has not begun yet".to_owned())));
    let unresolved = watch::Sender::new(Arc::default());
    let denied = watch::Sender::new(Arc::default());
    let follower = Follower {
        resolver: Arc::new(resolver),
        max_endpoints,
        sets: sets.clone(),
        unresolved: unresolved.clone(),
        denied: denied.clone(),
        left_out: counters.left_out,
        lookups: counters.lookups,
    };
    let mut discovery = Discovery {
        fixed,
        max_endpoints,
        sets: sets.subscribe(),
        unresolved: unresolved.subscribe(),
        denied: denied.subscribe(),
        tasks: tasks.clone(),
        reads: counters.reads,
        watched: watch::Sender::new(None),
        watcher: None,
        _follower: tasks.spawn("discovery", follower.run(declared.subscribe())),
        declared,
    };
    if let Some(path) = file {
        discovery.watch_file(path);
    }
    discovery
}
