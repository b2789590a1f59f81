//! Waiting for an effect with a deadline.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Effects in another process, such as a changed reading or a line in the access log, show within this time
/// even on a slow machine.
pub const SOON: Duration = Duration::from_secs(60);

const PAUSE: Duration = Duration::from_millis(10);

/// Repeats `check` until it returns `Ok`, and returns that value.
///
/// # Panics
///
/// When [`SOON`] has passed; the message has `what` and the last error of `check`.
pub async fn eventually<T, E: Display>(what: &str, mut check: impl AsyncFnMut() -> Result<T, E>) -> T {
    match within(SOON, async || check().await).await {
        Ok(value) => value,
        Err(reason) => panic!("not within {SOON:?}: {what}; last seen: {reason}"),
    }
}

/// Repeats `check` until it returns `Ok` or `deadline` has passed; then the last error is returned.
pub async fn within<T, E: Display>(
    deadline: Duration,
    mut check: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, String> {
    let end = Instant::now() + deadline;
    let mut last = String::from("nothing yet");
    loop {
        // The check itself may hang, on a server that does not respond.
        match tokio::time::timeout_at(end.into(), check()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(reason)) => last = reason.to_string(),
            Err(_) => return Err(last),
        }
        // A check that never waits cannot run into the timeout.
        if Instant::now() >= end {
            return Err(last);
        }
        tokio::time::sleep(PAUSE).await;
    }
}
