//! Watches the objects of one kind: a list, then changes until the connection breaks, then again.

mod replica;
mod status;
mod target;

use core::time::Duration;
use std::sync::Arc;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use metrics_agent_support::runtime::Labels;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
pub(crate) use replica::{Decode, DecodeName};
use replica::{NextPage, WatchReplica};
use status::{WatchOutlook, WatchStatus};
pub(crate) use target::{Resource, Selector, WatchTarget};
use tokio::time::{Instant, sleep};

use super::client::{ApiError, Client, Reason};

/// Objects of a page of a list, as kubectl and Kubernetes' own clients have it.
const PAGE: u32 = 500;

/// Maximum number of bytes of a page; a page above it is requested again with fewer objects. One object has 3
/// MiB at most.
const MAX_PAGE_BYTES: usize = 16 * 1024 * 1024;

/// The API server ends a watch after this time, and the watch continues with a new request.
const WATCH_SECONDS: u64 = 20;

/// A watch that has not ended after this time has a connection that broke without notice.
const WATCH_LIMIT: Duration = Duration::from_secs(WATCH_SECONDS + 4);

/// A watch that ends earlier has failed.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);

/// The first pause after a failure. Each pause is twice the last, plus a random part of up to its length.
const MIN_PAUSE: Duration = Duration::from_millis(50);

/// Maximum pause, without its random part.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// Pause before a kind that is not installed is listed again.
const MISSING_PAUSE: Duration = Duration::from_secs(3);

/// A watch reports this.
#[derive(Debug)]
pub(crate) enum Update<V> {
    /// The objects; they replace all earlier ones.
    Objects(Vec<Arc<V>>),
    /// There are none to read: the kind is not installed, or reading it is forbidden. Earlier ones stay.
    Unavailable(String),
    /// Nothing could be read this time. Earlier objects stay.
    Failed(String),
}

/// Watches one target until dropped.
pub(crate) struct Watch<D: Decode> {
    client: Client,
    target: WatchTarget,
    replica: WatchReplica<D>,
    status: WatchStatus,
    page: u32,
    pauses: ExponentialBackoff,
    update: Box<dyn Fn(Update<D::Value>) + Send + Sync>,
}

/// Why a watch stopped.
struct Break {
    error: ApiError,
    /// The version to continue from; `None`: everything is listed again.
    version: Option<String>,
}

impl<D: Decode> Watch<D> {
    /// Calls `update` with each change. Objects beyond `max_objects` are ignored.
    pub(crate) fn new(
        client: Client,
        target: WatchTarget,
        decode: D,
        max_objects: usize,
        metrics: WatchMetrics,
        update: impl Fn(Update<D::Value>) + Send + Sync + 'static,
    ) -> Self {
        let status = WatchStatus::new(target.clone(), metrics);
        let replica = WatchReplica::new(decode, max_objects);
        Self { client, target, replica, status, page: PAGE, pauses: pauses(), update: Box::new(update) }
    }

    /// Watches forever.
    pub(crate) async fn run(mut self) {
        let mut version = None;
        loop {
            let result = match version.take() {
                None => self.list().await.map_err(|error| Break { error, version: None }),
                Some(version) => self.watch(version).await,
            };
            match result {
                Ok(next) => version = Some(next),
                Err(Break { error, version: next }) => {
                    version = next;
                    let pause = self.pause(&error);
                    sleep(pause).await;
                }
            }
        }
    }

    /// Reads all objects, and returns the version to watch from.
    async fn list(&mut self) -> Result<String, ApiError> {
        self.status.lists();
        self.replica.begin_list();
        let mut after = None;
        loop {
            let path = self.target.list_path(self.page, after.as_deref());
            let page = match self.client.get(&path, MAX_PAGE_BYTES).await {
                Err(ApiError::TooLarge(_)) if self.page > 1 => {
                    // The token is kept, so the list continues with smaller pages.
                    self.page = self.page.div_ceil(4);
                    continue;
                }
                page => page?,
            };
            match self.replica.read_page(&page)? {
                NextPage::After(token) => after = Some(token),
                NextPage::Complete(version) => {
                    self.page = PAGE;
                    self.publish();
                    return Ok(version);
                }
            }
        }
    }

    /// Applies changes since a version until the API server ends the watch, and returns the version to
    /// continue from.
    async fn watch(&mut self, mut version: String) -> Result<String, Break> {
        let started = Instant::now();
        let path = self.target.watch_path(&version, WATCH_SECONDS);
        let mut lines = match self.client.lines(&path, WATCH_LIMIT).await {
            Ok(lines) => lines,
            Err(error) => return Err(Break::of_request(error, version)),
        };
        self.status.works();
        loop {
            match lines.next().await {
                Ok(Some(line)) => match self.replica.apply(&line) {
                    Ok(applied) => {
                        version = applied.version;
                        self.pauses = pauses();
                        if applied.has_changed {
                            self.publish();
                        }
                    }
                    // An error event, or an event that cannot be read: changes may be missing, so all objects
                    // are listed again.
                    Err(error) => return Err(Break { error, version: None }),
                },
                // Without the pause of a failure, a server that ends every watch would be asked in a tight
                // loop.
                Ok(None) if started.elapsed() < SHORTEST_WATCH => {
                    let problem = "the watch ended at once".to_owned();
                    return Err(Break { error: ApiError::Connection(problem), version: Some(version) });
                }
                Ok(None) => {
                    self.pauses = pauses();
                    return Ok(version);
                }
                Err(error) => return Err(Break { error, version: Some(version) }),
            }
        }
    }

    fn publish(&mut self) {
        let objects = self.replica.objects();
        self.status.has_objects(objects.len(), self.replica.ignored());
        (self.update)(Update::Objects(objects));
    }

    /// Reports a failure, and returns the pause after it.
    fn pause(&mut self, error: &ApiError) -> Duration {
        let problem = format!("{}: {error}", self.target);
        match self.status.failed(error) {
            WatchOutlook::Passing => (self.update)(Update::Failed(problem)),
            WatchOutlook::Unavailable => (self.update)(Update::Unavailable(problem)),
            WatchOutlook::Gone => {
                self.replica.clear();
                self.publish();
            }
        }
        if is_missing(&self.target, error) { MISSING_PAUSE } else { self.pauses.next().unwrap_or(MAX_PAUSE) }
    }
}

impl Break {
    /// A watch that did not begin.
    fn of_request(error: ApiError, version: String) -> Self {
        // The version has expired, or belongs to a kind that is gone and may return with other versions.
        let is_lost = matches!(error.reason(), Reason::Expired | Reason::NotFound);
        Self { error, version: (!is_lost).then_some(version) }
    }
}

/// Whether the error means that the kind is not installed.
fn is_missing(target: &WatchTarget, error: &ApiError) -> bool {
    target.resource.is_custom() && error.reason() == Reason::NotFound
}

fn pauses() -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(MIN_PAUSE)
        .with_max_delay(MAX_PAUSE)
        .without_max_times()
        .with_jitter()
        .build()
}

/// Counters of watches. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct WatchMetrics {
    lists: Family<Labels<1>, Counter>,
    errors: Family<Labels<2>, Counter>,
    objects: Family<Labels<1>, Gauge>,
    ignored: Family<Labels<1>, Gauge>,
    watches: Family<Labels<2>, Gauge>,
}

impl WatchMetrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help =
            "Lists of a kind of objects, by resource: the first one, and those after changes were missed";
        registry.register("kubernetes_lists", help, metrics.lists.clone());
        let help = "Failed lists and watches, by resource and reason";
        registry.register("kubernetes_watch_errors", help, metrics.errors.clone());
        let help = "Objects that the agent uses, by resource; of pods those that are ready";
        registry.register("kubernetes_objects", help, metrics.objects.clone());
        let help = "Objects that the agent cannot use, by resource; the log has the reasons";
        registry.register("kubernetes_ignored_objects", help, metrics.ignored.clone());
        let help = "Watches, by resource and state";
        registry.register("kubernetes_watches", help, metrics.watches.clone());
        metrics
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_from_50_ms_to_at_most_2_s() {
        for _ in 0..100 {
            let pauses: Vec<Duration> = pauses().take(20).collect();
            for (index, pause) in pauses.iter().enumerate() {
                let least = (MIN_PAUSE * 2u32.pow(u32::try_from(index).unwrap())).min(MAX_PAUSE);
                assert!((least..=2 * least).contains(pause), "{pauses:?}");
            }
        }
    }

    #[test]
    fn a_watch_goes_on_where_it_was_unless_that_version_is_gone() {
        let status = |code| ApiError::Status { code, message: String::new() };
        for (error, goes_on) in [
            (status(403), true),
            (status(401), true),
            (status(500), true),
            (ApiError::Timeout(WATCH_LIMIT), true),
            (ApiError::Connection(String::new()), true),
            (status(410), false),
            (status(404), false),
        ] {
            assert_eq!(
                Break::of_request(error.clone(), "7".to_owned()).version.is_some(),
                goes_on,
                "{error}"
            );
        }
    }
}
