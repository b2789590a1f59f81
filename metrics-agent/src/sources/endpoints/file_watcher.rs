//! The endpoints file, read again whenever it changes.

use std::path::PathBuf;

use endpoint_picker::pool::Endpoint;
use tokio::sync::watch;

use super::fields::LabelLimits;
use super::file::parse;
use super::set::{EndpointSet, combine};
use crate::files::FileLimits;
use crate::files::poll;
use crate::telemetry::ResultCounter;

pub(super) struct FileWatcher {
    pub(super) path: PathBuf,
    pub(super) fixed: Vec<Endpoint>,
    pub(super) max_endpoints: usize,
    pub(super) limits: FileLimits,
    pub(super) labels: LabelLimits,
    pub(super) found: watch::Sender<EndpointSet>,
    pub(super) reads: ResultCounter,
}

/// The file's bytes, or why there are none; kept as text so that two looks can be compared.
type Look = Result<Vec<u8>, String>;

impl FileWatcher {
    pub(super) async fn run(self) {
        poll::follow(|| look(self.path.clone(), self.limits), |look| self.take(look)).await;
    }

    fn take(&self, look: &Look) {
        let set = look.clone().and_then(|bytes| {
            let endpoints = parse(&bytes, self.limits, self.labels)
                .map_err(|error| format!("{}: {error}", self.path.display()))?;
            combine(&self.fixed, &endpoints, self.max_endpoints)
                .map_err(|error| format!("{}: {error}", self.path.display()))
        });
        self.reads.count(set.is_ok());
        match set {
            Ok(endpoints) => {
                tracing::info!(file = %self.path.display(), endpoints = endpoints.len(), "endpoints read");
                self.found.send_if_modified(|known| {
                    let changed = known.as_ref() != Ok(&endpoints);
                    *known = Ok(endpoints);
                    changed
                });
            }
            Err(error) => {
                tracing::error!(%error, "endpoints refused; the last good ones stay");
                self.found.send_if_modified(|known| {
                    let none_yet = known.is_err();
                    if none_yet {
                        *known = Err(error);
                    }
                    none_yet
                });
            }
        }
    }
}

async fn look(path: PathBuf, limits: FileLimits) -> Look {
    let named = path.display().to_string();
    let reading = tokio::task::spawn_blocking(move || limits.read(&path).map_err(|error| error.to_string()));
    let read = reading.await.unwrap_or_else(|error| Err(error.to_string()));
    read.map_err(|error| format!("{named}: {error}"))
}
