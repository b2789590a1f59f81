//! A value made of files, and made again when they change.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::error::CredentialError;
use super::files::{File, read};
use crate::files::FileLimits;
use crate::files::poll;
use crate::runtime::tasks::Tasks;
use crate::runtime::telemetry::ResultCounter;

/// The newest valid value made of the files. When the files become invalid, the error is logged and the last value stays.
#[derive(Debug)]
pub struct Watched<T> {
    values: watch::Receiver<Arc<T>>,
    _task: AbortOnDropHandle<()>,
}

impl<T: Send + Sync + 'static> Watched<T> {
    /// Reads the files now, and again whenever one of them changes. Connections made with an earlier value stay open.
    pub(crate) async fn start(
        files: Vec<PathBuf>,
        limits: FileLimits,
        tasks: &Tasks,
        reads: &ResultCounter,
        make: impl Fn(&[File]) -> Result<T, CredentialError> + Send + Sync + 'static,
    ) -> Result<Self, CredentialError> {
        let files: Arc<[PathBuf]> = files.into();
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        let names = names.join(", ");
        let name = format!("credentials {names}");
        let first = read(Arc::clone(&files), limits).await;
        let value = make(first.as_ref().map_err(Clone::clone)?)?;
        let (sender, values) = watch::channel(Arc::new(value));
        let reads = reads.clone();
        let task = async move {
            let update = |read: &Result<Vec<File>, CredentialError>| {
                let value = read.as_ref().map_err(Clone::clone).and_then(|files| make(files));
                reads.count(value.is_ok());
                match value {
                    Ok(value) => {
                        tracing::info!(files = names, "credentials read");
                        sender.send_replace(Arc::new(value));
                    }
                    Err(error) => tracing::error!(%error, "credentials refused; the last valid ones stay"),
                }
            };
            poll::poll_from(first, || read(Arc::clone(&files), limits), update).await;
        };
        Ok(Self { values, _task: tasks.spawn(name, task) })
    }

    /// The current value.
    pub fn now(&self) -> Arc<T> {
        Arc::clone(&self.values.borrow())
    }
}
