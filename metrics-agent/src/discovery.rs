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

pub use file::{FileError, MAX_FILE_BYTES, parse};

use crate::telemetry::Telemetry;

/// Where endpoints come from. Both are used together.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Given once and for all.
    pub fixed: Vec<Endpoint>,
    /// A file in the reference's file-discovery format.
    pub file: Option<PathBuf>,
}

/// The last good endpoint set; before the first one, why there is none.
pub type Discovered = Result<Vec<Endpoint>, String>;

/// Endpoint sets as they come. Dropping it ends discovery.
#[derive(Debug)]
pub struct Discovery {
    sets: watch::Receiver<Discovered>,
    _task: Option<AbortOnDropHandle<()>>,
}

impl Discovery {
    /// Another receiver of the same sets.
    pub fn sets(&self) -> watch::Receiver<Discovered> {
        self.sets.clone()
    }
}

/// Looks at the sources once, and from then on whenever they change.
pub fn start(sources: Sources, telemetry: Arc<Telemetry>) -> Discovery {
    let Some(path) = sources.file else {
        let (_, sets) = watch::channel(combine(&sources.fixed, &[]));
        return Discovery { sets, _task: None };
    };
    let (found, sets) = watch::channel(Err(format!("{} was not read yet", path.display())));
    let watcher = watch_file::Watcher::new(path, sources.fixed, found, telemetry);
    Discovery { sets, _task: Some(AbortOnDropHandle::new(tokio::spawn(watcher.run()))) }
}

/// All endpoints together, if they make a pool.
fn combine(fixed: &[Endpoint], found: &[Endpoint]) -> Discovered {
    let endpoints = [fixed, found].concat();
    match Pool::new(String::new(), endpoints.clone()) {
        Ok(_) => Ok(endpoints),
        Err(error) => Err(error.to_string()),
    }
}
