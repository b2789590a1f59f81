//! The scrape task of one endpoint.

use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use endpoint_picker::pool::reading::Reading;
use metrics_agent_catalogue::dialect::Engine;
use metrics_agent_catalogue::plan::members::Member;
use metrics_agent_catalogue::scraping::{ScrapePlan, ScrapeSettings};
use metrics_agent_scrape::client::Client;
use metrics_agent_scrape::download::shortened;
use metrics_agent_scrape::error::{Reason, ScrapeError, UnreadResponse};
use metrics_agent_scrape::exposition::{Doubt, Extraction, Reader};
use metrics_agent_support::client::credentials::ClientCredentials;
use metrics_agent_support::runtime::{self, Clock};
use tokio::time::{MissedTickBehavior, interval_at, sleep, timeout};
use xxhash_rust::xxh64::Xxh64;

use super::ScrapeMetrics;
use super::leases::SharedScrape;
use super::restart::RestartWatch;
use super::slot::{ReadingOrigin, Slot};

/// Refused connections in a row after which the endpoint is not ready, and attempts to connect in a row
/// without a response of its host after which it is not ready while others are.
const REFUSALS_TO_UNREADY: u32 = 3;

/// Maximum pause after a scrape that timed out or was too large, without the random part of up to the same
/// length.
const MAX_PAUSE: Duration = Duration::from_millis(2500);

/// Scrapes one endpoint until dropped.
pub(super) struct Task {
    endpoint: String,
    address: SocketAddr,
    engines: Arc<[Engine]>,
    settings: Arc<ScrapeSettings>,
    slot: Arc<Slot>,
    clock: Clock,
    metrics: ScrapeMetrics,
    client: Client,
    reader: Reader,
    restarts: RestartWatch,
    /// Whether discovery knows if the server is ready. Otherwise refused connections show that it is not.
    is_ready_by_discovery: bool,
    /// Failed scrapes since the last success.
    failures: u32,
    /// Why the last scrape failed.
    failure: Option<Reason>,
    /// The doubtful fields that were logged.
    doubts: Vec<Doubt>,
    /// Whether another server has responded at the address since name servers deny the host name.
    is_foreign: bool,
    /// The endpoint's part in scraping once for all agents; `None`: this agent scrapes for itself.
    shared: Option<SharedScrape>,
    /// Pauses after costly failures in a row, each twice the last.
    pauses: ExponentialBackoff,
}

impl Task {
    pub(super) fn new(
        job: &Job,
        slot: Arc<Slot>,
        clock: Clock,
        credentials: Arc<ClientCredentials>,
        metrics: ScrapeMetrics,
        restarts: RestartWatch,
        shared: Option<SharedScrape>,
    ) -> Self {
        let Job { endpoint, address, settings, engines, pod } = job.clone();
        let reader = Reader::of_engines(&engines, settings.text_rules());
        let client = Client::new(credentials);
        let pauses = pauses(settings.interval);
        Self {
            endpoint,
            address,
            engines,
            settings,
            slot,
            clock,
            metrics,
            client,
            reader,
            restarts,
            is_ready_by_discovery: pod.is_some(),
            failures: 0,
            failure: None,
            doubts: Vec::new(),
            is_foreign: false,
            shared,
            pauses,
        }
    }

    /// Scrapes at time `first`, then once each interval. Ticks during a slow scrape or a pause are skipped.
    pub(super) async fn run(mut self, first: Duration) {
        let mut ticks = interval_at(self.clock.at(first), self.settings.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut was_scraped_by_other = false;
        loop {
            ticks.tick().await;
            if let Some(shared) = &self.shared
                && !shared.is_own_turn().await
            {
                was_scraped_by_other = true;
                continue;
            }
            if core::mem::take(&mut was_scraped_by_other) {
                self.take_over();
            }
            if let Some(pause) = self.scrape().await {
                sleep(pause).await;
            }
        }
    }

    /// Continues after another agent has scraped.
    fn take_over(&mut self) {
        self.restarts.take_over(self.slot.reading().cached_since);
        self.failures = 0;
        self.failure = None;
        (self.client.refusals, self.client.unreachable) = (0, 0);
        self.is_foreign = false;
    }

    /// Scrapes once, and returns the pause before the next scrape, if there is one.
    async fn scrape(&mut self) -> Option<Duration> {
        let started = self.clock.now();
        self.slot.mark_tried(started);
        let limit = self.settings.timeout;
        let get = self.client.get(self.address, &self.settings, &mut self.reader);
        let body = timeout(limit, get).await.unwrap_or_else(|_| {
            self.client.timed_out();
            Err(ScrapeError::Timeout(limit))
        });
        let outcome = body.and_then(|()| self.extraction());
        let ended = self.clock.now();
        self.metrics.count_scrape(ended.saturating_sub(started));
        let is_costly = outcome.as_ref().is_err_and(|error| error.reason().is_costly());
        // A refused connection has reached the server's host. After other failures another agent may have
        // more success.
        let is_released = outcome.as_ref().is_err_and(|error| error.reason() != Reason::Refused);
        let is_of_another = outcome.as_ref().is_err_and(ScrapeError::is_of_another_server);
        // A server whose metrics were never read may have none at this path.
        self.is_foreign = outcome.is_err()
            && self.slot.is_denied()
            && (self.is_foreign || (is_of_another && self.slot.has_reading()));
        let mut changed = match outcome {
            Ok(extraction) => self.succeeded(extraction, ended),
            Err(error) => self.failed(&error),
        };
        let accepts = self.client.refusals < REFUSALS_TO_UNREADY && !self.is_foreign;
        if !accepts {
            self.restarts.refused();
        }
        changed |= self.slot.set_ready(accepts || self.is_ready_by_discovery);
        let is_unreachable = self.client.unreachable >= REFUSALS_TO_UNREADY && !self.is_ready_by_discovery;
        let is_failing =
            is_unreachable || self.settings.unready_after.is_some_and(|max| self.failures >= max.get());
        if self.slot.set_failing(is_failing) {
            changed = true;
            if is_failing {
                let failures = self.failures;
                tracing::warn!(endpoint = self.endpoint, failures, "not ready while other endpoints are");
            }
        }
        match &self.shared {
            Some(shared) if is_released => shared.release(),
            Some(shared) => shared.publish(),
            None => {}
        }
        if changed {
            self.slot.notify_readers();
        }
        if !is_costly {
            self.pauses = pauses(self.settings.interval);
        }
        is_costly.then(|| self.pauses.next()).flatten()
    }

    fn extraction(&mut self) -> Result<Extraction, ScrapeError> {
        let extraction = self.reader.finish();
        if !extraction.is_empty() {
            return Ok(extraction);
        }
        let names: Vec<_> = self.engines.iter().map(|engine| &*engine.name).collect();
        let content_type =
            self.client.content_type().map(|value| shortened(&String::from_utf8_lossy(value.as_bytes())));
        let is_named = names.len() == 1;
        Err(ScrapeError::NoMetrics(UnreadResponse { engines: names.join(", "), is_named, content_type }))
    }

    fn succeeded(&mut self, extraction: Extraction, now: Duration) -> bool {
        for (field, fault) in extraction.faults {
            self.metrics.count_extract_error(field, fault);
        }
        let cached_since = self.restarts.scraped(extraction.process, runtime::since_epoch());
        self.slot.set_values(Reading { cached_since, ..extraction.reading }, now);
        let Extraction { engine, kv_usage_metric, doubts, .. } = extraction;
        self.slot.set_origin(ReadingOrigin { engine, kv_usage_metric });
        self.note_doubts(doubts);
        if self.failure.take().is_some() {
            self.slot.set_scrape_failure(None);
        }
        if core::mem::take(&mut self.failures) > 0 {
            tracing::info!(endpoint = self.endpoint, "scrapes succeed again");
        }
        true
    }

    /// Logs each doubtful field once, however often a server changes its labels.
    fn note_doubts(&mut self, doubts: Vec<Doubt>) {
        for doubt in doubts {
            if !self.doubts.iter().any(|logged| logged.is_same(&doubt)) {
                let (endpoint, field, metric) = (&self.endpoint, doubt.field.label(), &doubt.metric);
                tracing::warn!(endpoint, field, %metric, "{doubt}");
                self.doubts.push(doubt);
            }
        }
    }

    /// Counts the failure; the last values stay, and only their age grows.
    fn failed(&mut self, error: &ScrapeError) -> bool {
        self.metrics.count_error(error.reason());
        self.failures = self.failures.saturating_add(1);
        if self.failure.replace(error.reason()) != Some(error.reason()) {
            self.slot.set_scrape_failure(Some(error.brief().into()));
        }
        if self.failures == 1 {
            tracing::warn!(endpoint = self.endpoint, address = %self.address, %error, "scrapes fail");
        }
        false
    }
}

/// Pauses after costly failures in a row.
pub(super) fn pauses(interval: Duration) -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(interval.min(MAX_PAUSE))
        .with_max_delay(MAX_PAUSE)
        .without_max_times()
        .with_jitter()
        .build()
}

/// Everything that a task depends on. The task keeps running while its job stays the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::scrape) struct Job {
    pub(in crate::scrape) endpoint: String,
    /// Where the metrics are.
    pub(in crate::scrape) address: SocketAddr,
    pub(in crate::scrape) settings: Arc<ScrapeSettings>,
    /// The engines that the server may have.
    pub(in crate::scrape) engines: Arc<[Engine]>,
    /// The uid of the endpoint's pod. Discovery knows whether a pod is ready, and a new pod is a new server.
    pub(in crate::scrape) pod: Option<Arc<str>>,
}

impl Job {
    pub(in crate::scrape) fn new(plan: &ScrapePlan, member: &Member) -> Self {
        let endpoint = &member.endpoint;
        let own = endpoint.address();
        Self {
            endpoint: endpoint.name().to_owned(),
            address: SocketAddr::new(own.ip(), plan.port.map_or(own.port(), NonZeroU16::get)),
            settings: Arc::clone(&plan.settings),
            engines: plan.dialects.of_endpoint(endpoint),
            pod: member.pod_uid(),
        }
    }

    /// A hash of the job, the same in every agent.
    pub(in crate::scrape) fn fingerprint(&self) -> u64 {
        let mut hasher = Xxh64::new(0);
        self.hash(&mut hasher);
        hasher.finish()
    }
}
