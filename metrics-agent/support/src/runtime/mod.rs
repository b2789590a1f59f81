//! The clock, tasks, connections, and counters, which every stage uses.

pub mod connections;

use core::fmt;
use core::time::Duration;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

/// Time since the agent started; readings are stamped with it.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

/// Time since the Unix epoch, which is the same for agents on several hosts.
pub fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Clock {
    /// A clock that starts at zero now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Time since the start.
    pub fn now(self) -> Duration {
        self.0.elapsed()
    }

    /// The instant at this time after the start.
    pub fn at(self, since_start: Duration) -> Instant {
        self.0 + since_start
    }
}

/// Starts tasks that run until the agent ends or their handle is dropped.
#[derive(Clone, Debug)]
pub struct Tasks {
    ended: mpsc::Sender<TaskEnded>,
}

impl Tasks {
    /// No tasks yet, and the channel that receives the first task that ends on its own.
    pub fn new() -> (Self, mpsc::Receiver<TaskEnded>) {
        let (ended, first_ended) = mpsc::channel(1);
        (Self { ended }, first_ended)
    }

    /// Starts a task that runs forever; dropping the handle stops it.
    pub fn spawn(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> AbortOnDropHandle<()> {
        let (name, ended) = (name.into(), self.ended.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(task));
        AbortOnDropHandle::new(tokio::spawn(async move {
            let reason = match task.await {
                Ok(()) => "it returned".to_owned(),
                // The runtime is shutting down.
                Err(error) if error.is_cancelled() => return,
                Err(error) => panic_message(error.into_panic().as_ref()),
            };
            // Only the first one is reported: the agent ends because of it.
            let _ = ended.try_send(TaskEnded { name, reason });
        }))
    }
}

fn panic_message(panic: &(dyn core::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(|s| &**s));
    format!("it panicked: {}", text.unwrap_or("no message"))
}

/// A task that ended on its own.
#[derive(Debug)]
pub struct TaskEnded {
    name: String,
    reason: String,
}

impl fmt::Display for TaskEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the task {:?} ended: {}", self.name, self.reason)
    }
}

impl core::error::Error for TaskEnded {}

/// A metric's labels, of fixed names and fixed values, so that the number of series is bounded.
pub type Labels<const N: usize> = [(&'static str, &'static str); N];

/// Counts an operation by its result: `ok` or `refused`. Clones count together.
#[derive(Clone, Debug)]
pub struct ResultCounter(Family<Labels<1>, Counter>);

impl ResultCounter {
    /// Registers the counter. Both results start at zero, because Prometheus sees no increase in the first
    /// value of a new series.
    pub fn register(registry: &mut Registry, name: &str, help: &str) -> Self {
        let counts = Family::<Labels<1>, Counter>::default();
        for result in ["ok", "refused"] {
            drop(counts.get_or_create(&[("result", result)]));
        }
        registry.register(name, help, counts.clone());
        Self(counts)
    }

    /// Counts one operation.
    pub fn count(&self, is_ok: bool) {
        let result = if is_ok { "ok" } else { "refused" };
        self.0.get_or_create(&[("result", result)]).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_returns_or_panics_is_reported_with_its_name_and_reason() {
        let (tasks, mut ended) = Tasks::new();
        let _returns = tasks.spawn("brief", async {});
        assert_eq!(ended.recv().await.unwrap().to_string(), "the task \"brief\" ended: it returned");
        let number = 7;
        let _panics = tasks.spawn("broken", async move { panic!("found {number}") });
        let report = ended.recv().await.unwrap().to_string();
        assert_eq!(report, "the task \"broken\" ended: it panicked: found 7");
        let _panics = tasks.spawn("broken", async { panic!("a text") });
        assert!(ended.recv().await.unwrap().to_string().ends_with("it panicked: a text"));
    }

    #[tokio::test]
    async fn a_task_that_is_stopped_is_not_reported() {
        let (tasks, mut ended) = Tasks::new();
        let (dropped, is_dropped) = tokio::sync::oneshot::channel::<()>();
        let stopped = tasks.spawn("stopped", async move {
            let _dropped = dropped;
            core::future::pending::<()>().await;
        });
        drop(stopped);
        assert!(is_dropped.await.is_err(), "the task itself is stopped, not only its handle");
        drop(tasks);
        assert!(ended.recv().await.is_none());
    }
}
