//! Reads the endpoints file again whenever it changes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;

use super::fields::LabelLimits;
use super::file::parse;
use super::set::{Declared, DeclaredSet, NoEndpoints, combine};
use crate::files::FileLimits;
use crate::files::poll;
use crate::runtime::telemetry::ResultCounter;
use crate::sources::problem::Problem;

/// The endpoints file that is watched.
#[derive(Clone, Debug)]
pub struct WatchedFile {
    /// Its path.
    pub path: Arc<Path>,
    /// Why its newest version is refused.
    pub problem: Option<Problem>,
}

/// Reads the endpoints file again whenever it changes.
pub(super) struct FileWatcher {
    pub(super) path: PathBuf,
    /// Servers of the flags, which are part of every set.
    pub(super) fixed: Declared,
    pub(super) max_endpoints: usize,
    pub(super) limits: FileLimits,
    pub(super) labels: LabelLimits,
    pub(super) sets: watch::Sender<DeclaredSet>,
    pub(super) watched: watch::Sender<Option<WatchedFile>>,
    pub(super) reads: ResultCounter,
}

/// The file's bytes, or why there are none, as text so that two polls can be compared.
type Content = Result<Vec<u8>, String>;

impl FileWatcher {
    pub(super) async fn run(self) {
        poll::poll(|| read(self.path.clone(), self.limits), |content| self.update(content)).await;
    }

    fn update(&self, content: &Content) {
        let set = content.clone().and_then(|bytes| {
            let found = parse(&bytes, self.limits, self.labels).map_err(|error| error.to_string())?;
            combine(&self.fixed, &found, self.max_endpoints)
        });
        let set = set.map_err(|text| Problem::of_file(&self.path, text));
        self.reads.count(set.is_ok());
        let problem = set.as_ref().err().cloned();
        self.watched.send_replace(Some(WatchedFile { path: self.path.as_path().into(), problem }));
        match set {
            Ok(declared) => {
                let (endpoints, host_names) = (declared.endpoints.len(), declared.named.len());
                tracing::info!(file = %self.path.display(), endpoints, host_names, "endpoints file read");
                self.sets.send_if_modified(|set| {
                    let changed = set.as_ref() != Ok(&declared);
                    *set = Ok(declared);
                    changed
                });
            }
            Err(error) => {
                tracing::error!(%error, "the endpoints file is refused; the last valid endpoints stay");
                self.sets.send_if_modified(|set| {
                    let is_first = set.is_err();
                    if is_first {
                        *set = Err(NoEndpoints::Refused(error.to_string()));
                    }
                    is_first
                });
            }
        }
    }
}

async fn read(path: PathBuf, limits: FileLimits) -> Content {
    let reading = tokio::task::spawn_blocking(move || limits.read(&path).map_err(|error| error.to_string()));
    reading.await.unwrap_or_else(|error| Err(error.to_string()))
}
