//! How the endpoints of a pool are scraped.

use core::time::Duration;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use hyper::Uri;

use super::dialect::{Dialects, MultiEngine};

/// Minimum time between two scrapes of an endpoint, as in the EPP.
pub const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Settings for scraping, the same for all endpoints of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScrapeSettings {
    /// Time between two scrapes of one endpoint.
    pub interval: Duration,
    /// Maximum time one scrape may take, connecting included.
    pub timeout: Duration,
    /// HTTP or HTTPS.
    pub scheme: Scheme,
    /// Path and query of the metrics.
    pub path: Uri,
    /// Maximum number of bytes of a text.
    pub max_bytes: usize,
    /// Maximum number of series of a text.
    pub max_series: usize,
    /// Limits on the lines of a text.
    pub text: TextLimits,
    /// Failed scrapes in a row after which an endpoint is not ready while others are; `None`: never, as in the EPP.
    pub unready_after: Option<NonZeroU32>,
    /// How a data-parallel server is read.
    pub engines: MultiEngine,
}

/// The protocol of scrapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS.
    Https,
}

/// How the endpoints of one pool are scraped.
#[derive(Clone, Debug)]
pub struct ScrapePlan {
    /// Settings for all endpoints.
    pub settings: Arc<ScrapeSettings>,
    /// The port of the metrics; `None`: the endpoint's own port.
    pub port: Option<NonZeroU16>,
    /// The metrics of each engine.
    pub dialects: Arc<Dialects>,
}

/// Limits on a text's lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextLimits {
    /// Maximum number of bytes of a line; longer lines are skipped.
    pub line_bytes: usize,
    /// Maximum number of labels of a series; a series with more is malformed.
    pub labels: usize,
    /// Maximum number of engines of a data-parallel server; with more the field has no value.
    pub engines: usize,
}

impl Default for TextLimits {
    fn default() -> Self {
        Self { line_bytes: 64 * 1024, labels: 128, engines: 256 }
    }
}
