//! The endpoints file, read again whenever it changes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;
use tokio::io::AsyncReadExt;
use tokio::sync::watch;

use super::{Discovered, MAX_FILE_BYTES, combine, parse};
use crate::look;
use crate::telemetry::Telemetry;

pub(super) struct Watcher {
    path: PathBuf,
    fixed: Vec<Endpoint>,
    max_endpoints: usize,
    found: watch::Sender<Discovered>,
    telemetry: Arc<Telemetry>,
}

/// The file's bytes, or why there are none; kept as text so that two looks can be compared.
type Look = Result<Vec<u8>, String>;

impl Watcher {
    pub(super) fn new(
        path: PathBuf,
        fixed: Vec<Endpoint>,
        max_endpoints: usize,
        found: watch::Sender<Discovered>,
        telemetry: Arc<Telemetry>,
    ) -> Self {
        Self { path, fixed, max_endpoints, found, telemetry }
    }

    pub(super) async fn run(self) {
        look::follow(|| look(self.path.clone()), |look| self.take(look)).await;
    }

    fn take(&self, look: &Look) {
        let set = look.clone().and_then(|bytes| {
            let endpoints = parse(&bytes).map_err(|error| format!("{}: {error}", self.path.display()))?;
            combine(&self.fixed, &endpoints, self.max_endpoints)
                .map_err(|error| format!("{}: {error}", self.path.display()))
        });
        self.telemetry.reload(set.is_ok());
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

async fn look(path: PathBuf) -> Look {
    read(&path).await.map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// One byte more than allowed is enough to see that a file is too large.
async fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    tokio::fs::File::open(path).await?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}
