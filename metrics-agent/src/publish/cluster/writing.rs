//! What all writes to the cluster share.

use core::time::Duration;

use tokio::sync::watch;

use crate::sources::kubernetes::ApiError;

/// Time between two writes, so that any number of refused objects is at most five writes a second.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// Time until writes that failed are tried again.
pub(super) const RETRY: Duration = Duration::from_secs(30);

/// The name of the agent in what it writes.
pub(super) const AGENT: &str = "endpoint-picker-agent";

/// Logs an error of writing, unless the last one was equal.
#[derive(Debug, Default)]
pub(super) struct LoggedError(Option<ApiError>);

impl LoggedError {
    pub(super) fn log(&mut self, what: &str, error: ApiError) {
        if self.0.as_ref() != Some(&error) {
            tracing::warn!(%error, "{what}");
            self.0 = Some(error);
        }
    }

    pub(super) fn clear(&mut self) {
        self.0 = None;
    }
}

/// Waits for a new value; forever if there is none to come.
pub(super) async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        core::future::pending::<()>().await;
    }
}
