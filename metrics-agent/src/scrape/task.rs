//! The scrape task of one endpoint.

use core::hash::{Hash, Hasher};
use core::time::Duration;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use endpoint_picker::pool::reading::Reading;
use hyper::StatusCode;
use hyper::header::HeaderValue;
use rustls::pki_types::ServerName;
use tokio::time::{MissedTickBehavior, interval_at, sleep, timeout};
use xxhash_rust::xxh64::Xxh64;

use super::ScrapeMetrics;
use super::error::{Reason, ScrapeError};
use super::exposition::{Extraction, Reader};
use super::leases::SharedScrape;
use super::restart::RestartWatch;
use super::slot::Slot;
use crate::catalogue::dialect::Dialect;
use crate::catalogue::plan::members::Member;
use crate::catalogue::scraping::{Scheme, ScrapePlan, ScrapeSettings};
use crate::client::credentials::ClientCredentials;
use crate::client::{Connection, ConnectionError, Get, GetError};
use crate::runtime::{self, Clock};

const PROMETHEUS_TEXT: HeaderValue = HeaderValue::from_static("text/plain; version=0.0.4");

/// Refused connections in a row after which the endpoint is not ready.
const REFUSALS_TO_UNREADY: u32 = 3;

/// Maximum pause after a scrape that timed out or was too large, without the random part of up to the same length.
const MAX_PAUSE: Duration = Duration::from_millis(2500);

/// Scrapes one endpoint until dropped.
pub(super) struct Task {
    endpoint: String,
    address: SocketAddr,
    settings: Arc<ScrapeSettings>,
    slot: Arc<Slot>,
    clock: Clock,
    metrics: ScrapeMetrics,
    client: EndpointClient,
    restarts: RestartWatch,
    /// Whether discovery knows if the server is ready. Otherwise refused connections show that it is not.
    is_ready_by_discovery: bool,
    /// Failed scrapes since the last success.
    failures: u32,
    /// Why the last scrape failed.
    failure: Option<Reason>,
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
        let Job { endpoint, address, settings, dialect, pod } = job.clone();
        let reader = Reader::with_limits(&dialect, settings.engines, settings.text);
        let client = EndpointClient { reader, credentials, connection: None, refusals: 0 };
        let pauses = pauses(settings.interval);
        Self {
            endpoint,
            address,
            settings,
            slot,
            clock,
            metrics,
            client,
            restarts,
            is_ready_by_discovery: pod.is_some(),
            failures: 0,
            failure: None,
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
        self.client.refusals = 0;
    }

    /// Scrapes once, and returns the pause before the next scrape, if there is one.
    async fn scrape(&mut self) -> Option<Duration> {
        let started = self.clock.now();
        self.slot.mark_tried(started);
        let limit = self.settings.timeout;
        let scrape = self.client.scrape(self.address, &self.settings);
        let outcome = timeout(limit, scrape).await.unwrap_or(Err(ScrapeError::Timeout(limit)));
        let ended = self.clock.now();
        self.metrics.count_scrape(ended.saturating_sub(started));
        let is_costly = outcome.as_ref().is_err_and(|error| error.reason().is_costly());
        // A refused connection has reached the server's host. After other failures another agent may have more success.
        let is_released = outcome.as_ref().is_err_and(|error| error.reason() != Reason::Refused);
        let mut changed = match outcome {
            Ok(extraction) => self.succeeded(extraction, ended),
            Err(error) => self.failed(&error),
        };
        let accepts = self.client.refusals < REFUSALS_TO_UNREADY;
        if !accepts {
            self.restarts.refused();
        }
        changed |= self.slot.set_ready(accepts || self.is_ready_by_discovery);
        let is_failing = self.settings.unready_after.is_some_and(|max| self.failures >= max.get());
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

    fn succeeded(&mut self, extraction: Extraction, now: Duration) -> bool {
        for (field, fault) in extraction.faults {
            self.metrics.count_extract_error(field, fault);
        }
        let cached_since = self.restarts.scraped(extraction.process, runtime::since_epoch());
        self.slot.set_values(Reading { cached_since, ..extraction.reading }, now);
        self.slot.set_kv_usage_metric(extraction.kv_usage_metric);
        if self.failure.take().is_some() {
            self.slot.set_scrape_failure(None);
        }
        if core::mem::take(&mut self.failures) > 0 {
            tracing::info!(endpoint = self.endpoint, "scrapes succeed again");
        }
        true
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

fn pauses(interval: Duration) -> ExponentialBackoff {
    ExponentialBuilder::new()
        .with_min_delay(interval.min(MAX_PAUSE))
        .with_max_delay(MAX_PAUSE)
        .without_max_times()
        .with_jitter()
        .build()
}

/// The endpoint's connection and the reader of its texts.
struct EndpointClient {
    reader: Reader,
    credentials: Arc<ClientCredentials>,
    connection: Option<Connection>,
    /// Connections refused since the last one that was opened.
    refusals: u32,
}

impl EndpointClient {
    async fn scrape(
        &mut self,
        address: SocketAddr,
        settings: &ScrapeSettings,
    ) -> Result<Extraction, ScrapeError> {
        let mut reused = self.connection.is_some();
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.connect(address, settings.scheme).await?,
        };
        let authorization = self.credentials.authorization();
        loop {
            self.reader.start();
            let get = Get {
                path: &settings.path,
                accept: PROMETHEUS_TEXT,
                authorization: authorization.as_deref(),
                max_bytes: settings.max_bytes,
            };
            let head =
                |status| if status == StatusCode::OK { Ok(()) } else { Err(ScrapeError::Status(status)) };
            let read = |chunk: &[u8]| {
                self.reader.feed(chunk);
                let is_within_limit = self.reader.series() <= settings.max_series;
                if is_within_limit { Ok(()) } else { Err(ScrapeError::TooManySeries(settings.max_series)) }
            };
            match connection.get(get, head, read).await {
                Ok(()) => break,
                // The server has closed the idle connection, which is not a failure.
                Err(GetError::BeforeResponse(_)) if reused => {
                    connection = self.connect(address, settings.scheme).await?;
                }
                Err(GetError::BeforeResponse(error)) => {
                    let error = ScrapeError::Connection(ConnectionError::Http(error));
                    return Err(error.with_scheme(settings.scheme));
                }
                Err(GetError::Response(error @ ScrapeError::Status(_))) => {
                    return Err(error.with_scheme(settings.scheme));
                }
                Err(GetError::Response(error)) => return Err(error),
            }
            reused = false;
        }
        self.connection = Some(connection);
        let extraction = self.reader.finish();
        if extraction.is_empty() { Err(ScrapeError::NoMetrics) } else { Ok(extraction) }
    }

    async fn connect(&mut self, address: SocketAddr, scheme: Scheme) -> Result<Connection, ScrapeError> {
        let tls = match scheme {
            Scheme::Http => None,
            Scheme::Https => {
                let tls = self.credentials.tls(ServerName::IpAddress(address.ip().into()));
                Some(tls.expect("plans with https are refused without TLS credentials"))
            }
        };
        let opened = Connection::open(address, &address.to_string(), tls).await.map_err(ScrapeError::from);
        match opened.as_ref().map_err(ScrapeError::reason) {
            // A handshake that fails shows that the server accepts connections.
            Ok(_) | Err(Reason::Tls) => self.refusals = 0,
            Err(Reason::Refused) => self.refusals = self.refusals.saturating_add(1),
            Err(_) => {}
        }
        opened
    }
}

/// Everything that a task depends on. The task keeps running while its job stays the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::scrape) struct Job {
    pub(in crate::scrape) endpoint: String,
    /// Where the metrics are.
    pub(in crate::scrape) address: SocketAddr,
    pub(in crate::scrape) settings: Arc<ScrapeSettings>,
    pub(in crate::scrape) dialect: Arc<Dialect>,
    /// The uid of the endpoint's pod. Discovery knows whether a pod is ready, and a new pod is a new server.
    pub(in crate::scrape) pod: Option<Arc<str>>,
}

impl Job {
    pub(in crate::scrape) fn new(plan: &ScrapePlan, Member { endpoint, pod }: &Member) -> Self {
        let own = endpoint.address();
        Self {
            endpoint: endpoint.name().to_owned(),
            address: SocketAddr::new(own.ip(), plan.port.map_or(own.port(), NonZeroU16::get)),
            settings: Arc::clone(&plan.settings),
            dialect: Arc::clone(plan.dialects.of_endpoint(endpoint)),
            pod: pod.clone(),
        }
    }

    /// A hash of the job, the same in every agent.
    pub(in crate::scrape) fn fingerprint(&self) -> u64 {
        let mut hasher = Xxh64::new(0);
        self.hash(&mut hasher);
        hasher.finish()
    }
}
