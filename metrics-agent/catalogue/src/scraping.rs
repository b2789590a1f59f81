//! How the endpoints of a pool are scraped.

use core::time::Duration;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use hyper::Uri;

use super::dialect::{Dialects, MultiEngine, TextRules};

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
    /// Failed scrapes in a row after which an endpoint is not ready while others are; `None`: never, as in
    /// the EPP.
    pub unready_after: Option<NonZeroU32>,
    /// How a server with several series of a metric is read; `None`: by its pool's rules.
    pub engines: Option<MultiEngine>,
    /// Whether texts are read as by the EPP.
    pub as_epp: bool,
}

impl ScrapeSettings {
    /// How texts are read.
    pub fn text_rules(&self) -> TextRules {
        let rules = if self.as_epp { TextRules::EPP } else { TextRules::default() };
        TextRules { engines: self.engines.unwrap_or(rules.engines), ..rules }
    }
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
    /// The endpoints' other data sources.
    pub sources: Vec<DataSource>,
}

impl ScrapePlan {
    /// The protocols of all scrapes.
    pub fn schemes(&self) -> impl Iterator<Item = Scheme> {
        let of_sources = self.sources.iter().map(|source| &source.settings);
        of_sources.chain([&self.settings]).map(|settings| settings.scheme)
    }
}

/// A data source of endpoints, on the host of each.
#[derive(Clone, Debug)]
pub struct DataSource {
    /// Its kind.
    pub kind: SourceKind,
    /// Settings for all endpoints.
    pub settings: Arc<ScrapeSettings>,
    /// The source's port; `None`: the endpoint's own.
    pub port: Option<NonZeroU16>,
    /// Whether it has the address of the pod's node, where that is known.
    pub is_on_node: bool,
}

/// A kind of data source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SourceKind {
    /// A DCGM exporter.
    Gpu,
    /// The server's list of models.
    Models,
}

impl SourceKind {
    /// All kinds.
    pub const ALL: [Self; 2] = [Self::Gpu, Self::Models];

    /// The value of a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gpu => "dcgm",
            Self::Models => "models",
        }
    }
}
