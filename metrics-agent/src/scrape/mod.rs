//! Scraping: one task for each endpoint polls its metrics and writes them into the endpoint's slot. DCGM
//! exporters and lists of models have tasks of their own.

mod data_sources;
mod leases;
mod queue;
mod restart;
mod scraper;
pub mod slot;
mod task;
mod turn;

use core::time::Duration;

pub use leases::{LeaseMetrics, Leases};
use metrics_agent_catalogue::scraping::SourceKind;
use metrics_agent_scrape::error::Reason;
use metrics_agent_scrape::exposition::{Fault, Field};
use metrics_agent_support::runtime::Labels;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
pub use scraper::{ScrapedPool, Scraper};

/// Upper bounds in seconds, from a server on this host to the default timeout.
const BUCKETS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

/// Counters of scrapes. Clones count together.
#[derive(Clone, Debug)]
pub struct ScrapeMetrics {
    scrapes: Counter,
    errors: Family<Labels<1>, Counter>,
    duration: Histogram,
    extract_errors: Family<Labels<2>, Counter>,
    source_errors: Family<Labels<2>, Counter>,
}

impl ScrapeMetrics {
    /// Registers the counters. Errors start at zero, because Prometheus sees no increase in the first value
    /// of a new series.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            scrapes: Counter::default(),
            errors: Family::default(),
            duration: Histogram::new(BUCKETS),
            extract_errors: Family::default(),
            source_errors: Family::default(),
        };
        for reason in Reason::ALL {
            drop(metrics.errors.get_or_create(&[("reason", reason.label())]));
            for kind in SourceKind::ALL {
                drop(metrics.source_errors.get_or_create(&source_labels(kind, reason)));
            }
        }
        registry.register(
            "scrapes",
            "Scrapes of model servers, failed ones included",
            metrics.scrapes.clone(),
        );
        registry.register("scrape_errors", "Failed scrapes, by reason", metrics.errors.clone());
        let duration = metrics.duration.clone();
        registry.register_with_unit("scrape_duration", "Time of one scrape", Unit::Seconds, duration);
        let help =
            "Fields without a value in a successful scrape, or with a doubtful one, by field and reason";
        registry.register("extract_errors", help, metrics.extract_errors.clone());
        let help = "Failed scrapes of DCGM exporters and lists of models, by source and reason";
        registry.register("source_errors", help, metrics.source_errors.clone());
        metrics
    }

    /// Counts a scrape, whether it succeeded or failed.
    fn count_scrape(&self, duration: Duration) {
        self.scrapes.inc();
        self.duration.observe(duration.as_secs_f64());
    }

    /// Counts a failed scrape.
    fn count_error(&self, reason: Reason) {
        self.errors.get_or_create(&[("reason", reason.label())]).inc();
    }

    /// Counts a field that a successful scrape gave no value for, or a doubtful one.
    fn count_extract_error(&self, field: Field, fault: Fault) {
        self.extract_errors.get_or_create(&[("field", field.label()), ("reason", fault.label())]).inc();
    }

    /// Counts a scrape of a data source that failed, or gave an endpoint no value.
    fn count_source_error(&self, kind: SourceKind, reason: Reason) {
        self.source_errors.get_or_create(&source_labels(kind, reason)).inc();
    }
}

fn source_labels(kind: SourceKind, reason: Reason) -> Labels<2> {
    [("source", kind.as_str()), ("reason", reason.label())]
}
