//! The agent's metrics: what it counts itself, and gauges of the pools.
//!
//! What it counts has no labels with values from outside, so the number of series is fixed; for the gauges, [`pools`] bounds it.

mod pools;

use core::fmt;
use core::sync::atomic::AtomicU64;
use core::time::Duration;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::board::Census;
use crate::exposition::{Fault, Field};
use crate::scrape::Reason;
use crate::status::PoolStatus;

/// The media type of [`Telemetry::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Seconds = Gauge<f64, AtomicU64>;

/// Upper bounds in seconds, from a server on this host to the default timeout.
const SCRAPE_BUCKETS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

/// All of them.
const REASONS: [Reason; 9] = [
    Reason::Refused,
    Reason::Connect,
    Reason::Tls,
    Reason::Http,
    Reason::Status,
    Reason::TooLarge,
    Reason::TooManySeries,
    Reason::Timeout,
    Reason::NoMetrics,
];

/// Everything the agent counts.
pub struct Telemetry {
    registry: Registry,
    scrapes: Counter,
    scrape_errors: Family<Labels<1>, Counter>,
    scrape_duration: Histogram,
    extract_errors: Family<Labels<2>, Counter>,
    endpoints: Gauge,
    endpoints_ready: Gauge,
    oldest_reading: Seconds,
    snapshots: Family<Labels<1>, Counter>,
    refusals: Family<Labels<1>, Counter>,
    waiters: Gauge,
    reports: Family<Labels<1>, Counter>,
    reloads: Family<Labels<1>, Counter>,
    manifest_reads: Family<Labels<1>, Counter>,
    credential_reads: Family<Labels<1>, Counter>,
    eds_writes: Family<Labels<1>, Counter>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").finish_non_exhaustive()
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        let mut telemetry = Self {
            registry: Registry::with_prefix("metrics_agent"),
            scrapes: Counter::default(),
            scrape_errors: Family::default(),
            scrape_duration: Histogram::new(SCRAPE_BUCKETS),
            extract_errors: Family::default(),
            endpoints: Gauge::default(),
            endpoints_ready: Gauge::default(),
            oldest_reading: Seconds::default(),
            snapshots: Family::default(),
            refusals: Family::default(),
            waiters: Gauge::default(),
            reports: Family::default(),
            reloads: Family::default(),
            manifest_reads: Family::default(),
            credential_reads: Family::default(),
            eds_writes: Family::default(),
        };
        telemetry.register();
        telemetry.begin_at_zero();
        telemetry
    }
}

impl Telemetry {
    fn register(&mut self) {
        let r = &mut self.registry;
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        r.register("build", "The agent's version", build);
        r.register("scrapes", "Scrapes of model servers, failed ones included", self.scrapes.clone());
        r.register("scrape_errors", "Scrapes that gave no values, by reason", self.scrape_errors.clone());
        let duration = self.scrape_duration.clone();
        r.register_with_unit("scrape_duration", "Time of one scrape", Unit::Seconds, duration);
        let extract = self.extract_errors.clone();
        r.register("extract_errors", "Fields a good scrape gave no value for, by field and reason", extract);
        r.register("endpoints", "Endpoints of all pools", self.endpoints.clone());
        r.register("endpoints_ready", "Endpoints that are ready", self.endpoints_ready.clone());
        let oldest = self.oldest_reading.clone();
        r.register_with_unit("oldest_reading_age", "Age of the oldest reading", Unit::Seconds, oldest);
        r.register("snapshots", "Answers to snapshot requests, by outcome", self.snapshots.clone());
        let refusals = self.refusals.clone();
        r.register("refused_requests", "Requests that did not show what they must, by reason", refusals);
        r.register("snapshot_waiters", "Snapshot requests waiting for news", self.waiters.clone());
        r.register("reports", "Reports of proxies, by outcome", self.reports.clone());
        r.register("config_reloads", "Readings of a changed endpoints file, by result", self.reloads.clone());
        let manifests = self.manifest_reads.clone();
        r.register("manifest_reloads", "Readings of changed manifests, by result", manifests);
        let credentials = self.credential_reads.clone();
        r.register(
            "credential_reloads",
            "Readings of changed certificates, keys and tokens, by result",
            credentials,
        );
        r.register("eds_writes", "Writes of the EDS file, by result", self.eds_writes.clone());
    }

    /// Shows counters before they count, because Prometheus cannot tell a first event from a series that is merely new.
    fn begin_at_zero(&self) {
        for reason in REASONS {
            drop(self.scrape_errors.get_or_create(&[("reason", reason_label(reason))]));
        }
        for result in ["ok", "refused"] {
            for counts in [&self.reloads, &self.manifest_reads, &self.credential_reads, &self.eds_writes] {
                drop(counts.get_or_create(&[("result", result)]));
            }
        }
        for outcome in ["accepted", "refused"] {
            drop(self.reports.get_or_create(&[("outcome", outcome)]));
        }
    }

    /// A scrape ended, well or badly.
    pub fn scraped(&self, took: Duration) {
        self.scrapes.inc();
        self.scrape_duration.observe(took.as_secs_f64());
    }

    /// A scrape gave no values.
    pub fn scrape_error(&self, reason: Reason) {
        self.scrape_errors.get_or_create(&[("reason", reason_label(reason))]).inc();
    }

    /// A good scrape gave no value for a field.
    pub fn extract_error(&self, field: Field, fault: Fault) {
        let field = match field {
            Field::Waiting => "waiting",
            Field::Running => "running",
            Field::KvUsage => "kv_usage",
            Field::Lora => "lora",
            Field::BlockSize => "block_size",
            Field::NumBlocks => "num_blocks",
            Field::Attribute => "attribute",
        };
        let fault = match fault {
            Fault::Missing => "missing",
            Fault::Invalid => "invalid",
        };
        self.extract_errors.get_or_create(&[("field", field), ("reason", fault)]).inc();
    }

    /// A snapshot request was answered.
    pub fn snapshot(&self, outcome: &'static str) {
        self.snapshots.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// A request did not show what it must.
    pub fn refused(&self, reason: &'static str) {
        self.refusals.get_or_create(&[("reason", reason)]).inc();
    }

    /// A snapshot request begins to wait; it has stopped waiting when the guard is dropped.
    pub fn waiter(&self) -> impl Drop + use<> {
        Waiting::begin(self.waiters.clone())
    }

    /// A proxy's report was taken or refused.
    pub fn report(&self, outcome: &'static str) {
        self.reports.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// The endpoints file was read anew.
    pub fn reload(&self, good: bool) {
        self.reloads.get_or_create(&[("result", result(good))]).inc();
    }

    /// The manifests were read anew.
    pub fn manifests_read(&self, good: bool) {
        self.manifest_reads.get_or_create(&[("result", result(good))]).inc();
    }

    /// Certificates, keys or tokens were read anew.
    pub fn credentials_read(&self, good: bool) {
        self.credential_reads.get_or_create(&[("result", result(good))]).inc();
    }

    /// The EDS file was written.
    pub fn eds_write(&self, good: bool) {
        self.eds_writes.get_or_create(&[("result", result(good))]).inc();
    }

    /// All metrics as text. The numbers of endpoints are those of `census`, the gauges those of `pools`.
    pub fn text(&self, census: Census, pools: &[PoolStatus]) -> Result<String, fmt::Error> {
        self.endpoints.set(i64::try_from(census.endpoints).unwrap_or(i64::MAX));
        self.endpoints_ready.set(i64::try_from(census.ready).unwrap_or(i64::MAX));
        self.oldest_reading.set(census.oldest.unwrap_or_default().as_secs_f64());
        let mut text = String::new();
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &pools::registry(pools))?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

fn result(good: bool) -> &'static str {
    if good { "ok" } else { "refused" }
}

fn reason_label(reason: Reason) -> &'static str {
    match reason {
        Reason::Refused => "refused",
        Reason::Connect => "connect",
        Reason::Tls => "tls",
        Reason::Http => "http",
        Reason::Status => "status",
        Reason::TooLarge => "too_large",
        Reason::TooManySeries => "too_many_series",
        Reason::Timeout => "timeout",
        Reason::NoMetrics => "no_metrics",
    }
}

struct Waiting(Gauge);

impl Waiting {
    fn begin(waiters: Gauge) -> Self {
        waiters.inc();
        Self(waiters)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.dec();
    }
}
