//! A value made of files, and made anew when they change.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::CredentialError;
use crate::file_limits::FileLimits;
use crate::look;
use crate::tasks::Tasks;
use crate::telemetry::Telemetry;

/// The value that the files last gave; a change for the worse is logged and not used.
#[derive(Debug)]
pub struct Followed<T> {
    values: watch::Receiver<Arc<T>>,
    _task: AbortOnDropHandle<()>,
}

/// A file and its bytes.
pub(super) type File = (PathBuf, Vec<u8>);

impl<T: Send + Sync + 'static> Followed<T> {
    /// Reads the files, and from now on again whenever one of them changes. Connections made with an earlier value go on.
    pub(super) async fn start(
        files: Vec<PathBuf>,
        limits: FileLimits,
        tasks: &Tasks,
        telemetry: &Arc<Telemetry>,
        make: impl Fn(&[File]) -> Result<T, CredentialError> + Send + Sync + 'static,
    ) -> Result<Self, CredentialError> {
        let files: Arc<[PathBuf]> = files.into();
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let names = names.join(", ");
        let name = format!("credentials {names}");
        let first = read(Arc::clone(&files), limits).await;
        let value = make(first.as_ref().map_err(Clone::clone)?)?;
        let (sender, values) = watch::channel(Arc::new(value));
        let telemetry = Arc::clone(telemetry);
        let task = async move {
            let take = |look: &Result<Vec<File>, CredentialError>| {
                let value = look.as_ref().map_err(Clone::clone).and_then(|files| make(files));
                telemetry.credentials_read(value.is_ok());
                match value {
                    Ok(value) => {
                        tracing::info!(files = names, "credentials read");
                        sender.send_replace(Arc::new(value));
                    }
                    Err(error) => tracing::error!(%error, "credentials refused; the last good ones stay"),
                }
            };
            look::follow_from(first, || read(Arc::clone(&files), limits), take).await;
        };
        Ok(Self { values, _task: tasks.spawn(name, task) })
    }

    /// The value as it is now.
    pub fn now(&self) -> Arc<T> {
        Arc::clone(&self.values.borrow())
    }
}

/// Reads all files.
pub(super) async fn read(files: Arc<[PathBuf]>, limits: FileLimits) -> Result<Vec<File>, CredentialError> {
    let reading =
        tokio::task::spawn_blocking(move || files.iter().map(|file| read_one(file, limits)).collect());
    reading.await.unwrap_or_else(|error| Err(CredentialError::new(Path::new(""), error.to_string())))
}

fn read_one(path: &Path, limits: FileLimits) -> Result<File, CredentialError> {
    let read = limits.read(path).map_err(|error| CredentialError::new(path, error.to_string()));
    read.map(|bytes| (path.to_owned(), bytes))
}
