//! How the endpoints of a pool are scraped.

use core::time::Duration;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use hyper::Uri;

use super::dialect::{Dialects, MultiEngine};

/// Least time between two scrapes of an endpoint, as in the EPP.
pub const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// How endpoints are scraped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ScrapeSettings {
    /// Time between two scrapes of one endpoint.
    pub interval: Duration,
    /// Longest time one scrape may take, connecting included.
    pub timeout: Duration,
    /// Whether TLS is spoken.
    pub scheme: Scheme,
    /// Path and query of the metrics.
    pub path: Uri,
    /// Largest text that is read.
    pub max_bytes: usize,
    /// Most series of a text.
    pub max_series: usize,
    /// What one line of a text may be.
    pub text: TextLimits,
    /// So many scrapes failed in a row, and the endpoint is out while others are not; `None`: as in the EPP, never.
    pub unready_after: Option<NonZeroU32>,
    /// How a data-parallel server is read.
    pub engines: MultiEngine,
}

/// How metrics are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In plain text.
    Http,
    /// Over TLS.
    Https,
}

/// How the endpoints of one pool are scraped.
#[derive(Clone, Debug)]
pub struct ScrapePlan {
    /// What is the same for all of them.
    pub settings: Arc<ScrapeSettings>,
    /// The port that shows the metrics; `None`: the endpoint's own.
    pub port: Option<NonZeroU16>,
    /// What the engines call their metrics.
    pub dialects: Arc<Dialects>,
}

/// What a text may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TextLimits {
    /// Most bytes of a line; a longer one is passed over.
    pub line_bytes: usize,
    /// Most labels of a series; one with more counts as malformed.
    pub labels: usize,
    /// Most engines of a data-parallel server; with more the field has no value.
    pub engines: usize,
}

impl Default for TextLimits {
    fn default() -> Self {
        Self { line_bytes: 64 * 1024, labels: 128, engines: 256 }
    }
}
