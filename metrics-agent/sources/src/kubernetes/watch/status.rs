//! The state of one watch, for the log and the counters.

use core::time::Duration;

use prometheus_client::metrics::gauge::Gauge;
use tokio::time::Instant;

use super::target::WatchTarget;
use super::{WatchMetrics, is_missing};
use crate::kubernetes::client::{ApiError, Reason};

/// Grace period for 401 and 403: an API server that has just started refuses valid tokens for a moment.
const PASSING_REFUSAL: Duration = Duration::from_secs(5);

/// After this time without its kind, an object is gone. The API server deletes the objects of a kind before
/// the kind.
const PASSING_ABSENCE: Duration = Duration::from_secs(10);

/// The state of one watch. Its part of the gauges is removed when it is dropped.
pub(super) struct WatchStatus {
    target: WatchTarget,
    metrics: WatchMetrics,
    state: WatchState,
    objects: i64,
    ignored: i64,
    /// The first refusal since the watch worked.
    refused: Option<Instant>,
    /// When the kind was first found not to be installed.
    missing: Option<Instant>,
}

/// Meaning of a failure for the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WatchOutlook {
    /// The next attempt may read them. Earlier ones stay.
    Passing,
    /// There is nothing to read soon. Earlier ones stay.
    Unavailable,
    /// Earlier ones are gone with their kind.
    Gone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    /// Nothing was listed yet, and nothing has failed.
    Starting,
    /// Changes arrive.
    Synced,
    /// The kind is not installed.
    Missing,
    /// Reading is forbidden.
    Forbidden,
    /// The API server cannot be reached, or sends no usable response.
    Failing,
}

impl WatchState {
    fn label(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Synced => "synced",
            Self::Missing => "missing",
            Self::Forbidden => "forbidden",
            Self::Failing => "failing",
        }
    }
}

impl WatchStatus {
    /// The status of a watch that starts. Errors start at zero, because Prometheus sees no increase in the
    /// first value of a new series.
    pub(super) fn new(target: WatchTarget, metrics: WatchMetrics) -> Self {
        let status = Self {
            target,
            metrics,
            state: WatchState::Starting,
            objects: 0,
            ignored: 0,
            refused: None,
            missing: None,
        };
        for reason in Reason::ALL {
            let labels = [("resource", status.resource()), ("reason", reason.label())];
            drop(status.metrics.errors.get_or_create(&labels));
        }
        status.gauge(WatchState::Starting).inc();
        status
    }

    fn resource(&self) -> &'static str {
        self.target.resource.name
    }

    /// A list begins.
    pub(super) fn lists(&self) {
        self.metrics.lists.get_or_create(&[("resource", self.resource())]).inc();
    }

    /// Changes arrive from now on.
    pub(super) fn works(&mut self) {
        (self.refused, self.missing) = (None, None);
        match self.state {
            WatchState::Synced => {}
            WatchState::Starting => tracing::info!(watch = %self.target, objects = self.objects, "watched"),
            WatchState::Missing | WatchState::Forbidden | WatchState::Failing => {
                tracing::info!(watch = %self.target, objects = self.objects, "watched again");
            }
        }
        self.enter(WatchState::Synced);
    }

    /// Objects were read.
    pub(super) fn has_objects(&mut self, objects: usize, ignored: usize) {
        let count = |count| i64::try_from(count).unwrap_or(i64::MAX);
        self.set_counts(count(objects), count(ignored));
    }

    /// Counts a failure.
    pub(super) fn failed(&mut self, error: &ApiError) -> WatchOutlook {
        let reason = error.reason();
        let labels = [("resource", self.resource()), ("reason", reason.label())];
        self.metrics.errors.get_or_create(&labels).inc();
        let watch = &self.target;
        let next = if is_missing(watch, error) {
            WatchState::Missing
        } else if reason == Reason::Forbidden {
            let since = *self.refused.get_or_insert_with(Instant::now);
            if since.elapsed() >= PASSING_REFUSAL { WatchState::Forbidden } else { WatchState::Failing }
        } else if reason == Reason::Expired {
            // Part of normal life: changes were missed, and everything is listed again.
            tracing::debug!(%watch, %error, "listed again");
            return WatchOutlook::Passing;
        } else {
            WatchState::Failing
        };
        if next != self.state {
            match next {
                WatchState::Missing => {
                    tracing::info!(%watch, "not installed; looked for again every few seconds");
                }
                WatchState::Forbidden => {
                    tracing::error!(%watch, %error, "forbidden; the agent's Role must allow get, list, watch");
                }
                WatchState::Starting | WatchState::Synced | WatchState::Failing => {
                    tracing::warn!(%watch, %error, "the watch fails; the last objects stay");
                }
            }
        }
        self.enter(next);
        match next {
            WatchState::Missing => self.missing(),
            WatchState::Forbidden => WatchOutlook::Unavailable,
            WatchState::Starting | WatchState::Synced | WatchState::Failing => WatchOutlook::Passing,
        }
    }

    /// The kind is not installed.
    fn missing(&mut self) -> WatchOutlook {
        let since = *self.missing.get_or_insert_with(Instant::now);
        if self.objects == 0 || since.elapsed() < PASSING_ABSENCE {
            return WatchOutlook::Unavailable;
        }
        tracing::warn!(watch = %self.target, objects = self.objects, "not installed any more; its objects are gone");
        WatchOutlook::Gone
    }

    fn enter(&mut self, next: WatchState) {
        if next != self.state {
            self.gauge(self.state).dec();
            self.gauge(next).inc();
            self.state = next;
        }
    }

    fn gauge(&self, state: WatchState) -> Gauge {
        let labels = [("resource", self.resource()), ("state", state.label())];
        self.metrics.watches.get_or_create_owned(&labels)
    }

    /// Changes the gauges by the difference, because the watches of one resource share them.
    fn set_counts(&mut self, objects: i64, ignored: i64) {
        let labels = [("resource", self.resource())];
        self.metrics.objects.get_or_create(&labels).inc_by(objects - self.objects);
        self.metrics.ignored.get_or_create(&labels).inc_by(ignored - self.ignored);
        (self.objects, self.ignored) = (objects, ignored);
    }
}

impl Drop for WatchStatus {
    fn drop(&mut self) {
        self.set_counts(0, 0);
        self.gauge(self.state).dec();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::kubernetes::watch::target::{Resource, Selector};

    const POOLS: Resource =
        Resource { group: "example.com", version: "v1", kind: "Pool", name: "pools.example.com" };
    const PODS: Resource = Resource { group: "", version: "v1", kind: "Pod", name: "pods" };

    fn target(resource: Resource) -> WatchTarget {
        WatchTarget { resource, namespace: None, selector: Selector::All }
    }

    fn status(resource: Resource) -> WatchStatus {
        WatchStatus::new(target(resource), WatchMetrics::default())
    }

    fn refused(code: u16) -> ApiError {
        ApiError::Status { code, message: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_when_it_does_not_pass() {
        let mut status = status(PODS);
        assert_eq!(status.failed(&refused(403)), WatchOutlook::Passing);
        tokio::time::advance(PASSING_REFUSAL / 2).await;
        status.works();
        assert_eq!(status.failed(&refused(403)), WatchOutlook::Passing, "it is the first one again");
        tokio::time::advance(PASSING_REFUSAL).await;
        assert_eq!(status.failed(&refused(403)), WatchOutlook::Unavailable);
        assert_eq!(status.state, WatchState::Forbidden);
    }

    #[tokio::test(start_paused = true)]
    async fn objects_are_gone_when_their_kind_does_not_come_back_soon() {
        let mut status = status(POOLS);
        assert_eq!(status.failed(&refused(404)), WatchOutlook::Unavailable);
        tokio::time::advance(PASSING_ABSENCE).await;
        assert_eq!(status.failed(&refused(404)), WatchOutlook::Unavailable, "there are no objects");
        status.works();
        status.has_objects(2, 0);
        assert_eq!(status.failed(&refused(404)), WatchOutlook::Unavailable);
        tokio::time::advance(PASSING_ABSENCE / 2).await;
        assert_eq!(status.failed(&refused(404)), WatchOutlook::Unavailable);
        tokio::time::advance(PASSING_ABSENCE / 2).await;
        assert_eq!(status.failed(&refused(404)), WatchOutlook::Gone);
        status.has_objects(0, 0);
        assert_eq!(status.failed(&refused(404)), WatchOutlook::Unavailable);
    }

    #[tokio::test]
    async fn only_a_custom_kind_can_be_missing_and_expiry_changes_nothing() {
        for (resource, state, outlook) in [
            (POOLS, WatchState::Missing, WatchOutlook::Unavailable),
            (PODS, WatchState::Failing, WatchOutlook::Passing),
        ] {
            let mut status = status(resource);
            assert_eq!(status.failed(&refused(404)), outlook);
            assert_eq!(status.state, state);
            assert_eq!(status.failed(&refused(410)), WatchOutlook::Passing);
            assert_eq!(status.state, state);
        }
    }

    #[tokio::test]
    async fn watches_of_one_resource_are_counted_together_until_they_end() {
        let mut registry = Registry::default();
        let metrics = WatchMetrics::register(&mut registry);
        let text = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        let mut first = WatchStatus::new(target(PODS), metrics.clone());
        let mut second = WatchStatus::new(target(PODS), metrics.clone());
        first.has_objects(3, 1);
        second.has_objects(4, 0);
        first.works();
        for line in [
            r#"kubernetes_objects{resource="pods"} 7"#,
            r#"kubernetes_ignored_objects{resource="pods"} 1"#,
            r#"kubernetes_watches{resource="pods",state="synced"} 1"#,
            r#"kubernetes_watches{resource="pods",state="starting"} 1"#,
        ] {
            assert!(text().contains(line), "{line}: {}", text());
        }
        drop(first);
        assert!(text().contains(r#"kubernetes_objects{resource="pods"} 4"#), "{}", text());
        assert!(text().contains(r#"kubernetes_watches{resource="pods",state="synced"} 0"#), "{}", text());
    }
}
