//! Who is in the pool.
//!
//! A source of endpoints is whatever feeds the channel that [`start`] returns; flags and a file do so today.

mod fields;
mod file;
mod watch_file;

use std::path::PathBuf;
use std::sync::Arc;

use endpoint_picker::pool::{Endpoint, Pool};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

pub use fields::LabelLimits;
pub use file::{FileError, parse};

use crate::file_limits::FileLimits;
use crate::tasks::Tasks;
use crate::telemetry::Telemetry;

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

/// The last good endpoint set; before the first one, why there is none.
pub type Discovered = Result<Vec<Endpoint>, String>;

/// Endpoint sets as they come. Dropping it ends discovery.
#[derive(Debug)]
pub struct Discovery {
    fixed: Vec<Endpoint>,
    max_endpoints: usize,
    limits: FileLimits,
    labels: LabelLimits,
    sets: watch::Sender<Discovered>,
    tasks: Tasks,
    telemetry: Arc<Telemetry>,
    following: Option<(PathBuf, AbortOnDropHandle<()>)>,
}

impl Discovery {
    /// A receiver of the sets.
    pub fn sets(&self) -> watch::Receiver<Discovered> {
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
        let (fixed, telemetry) = (self.fixed.clone(), Arc::clone(&self.telemetry));
        let watcher = watch_file::Watcher {
            path: path.clone(),
            fixed,
            max_endpoints: self.max_endpoints,
            limits: self.limits,
            labels: self.labels,
            found: self.sets.clone(),
            telemetry,
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
    telemetry: Arc<Telemetry>,
) -> Discovery {
    let Sources { fixed, file, labels } = sources;
    let sets = watch::Sender::new(combine(&fixed, &[], max_endpoints));
    let tasks = tasks.clone();
    let mut discovery =
        Discovery { fixed, max_endpoints, limits, labels, sets, tasks, telemetry, following: None };
    if let Some(path) = file {
        discovery.follow_file(path);
    }
    discovery
}

/// All endpoints together, if they make a pool.
fn combine(fixed: &[Endpoint], found: &[Endpoint], max: usize) -> Discovered {
    let endpoints = [fixed, found].concat();
    if endpoints.len() > max {
        return Err(format!("{} endpoints; at most {max} are allowed (--max-endpoints)", endpoints.len()));
    }
    match Pool::new(String::new(), endpoints.clone()) {
        Ok(_) => Ok(endpoints),
        Err(error) => Err(error.to_string()),
    }
}
