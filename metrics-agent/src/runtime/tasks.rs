//! The agent's long-running tasks. A task that ends on its own ends the agent, because nothing else would notice it.

use core::fmt;

use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

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
