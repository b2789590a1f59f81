//! What one scrape task does.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;

use crate::catalogue::dialect::Dialect;
use crate::catalogue::scraping::{ScrapePlan, ScrapeSettings};

/// Everything that a task depends on. The task keeps running as long as its job stays the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::scrape) struct Job {
    pub(in crate::scrape) endpoint: String,
    /// Where the metrics are.
    pub(in crate::scrape) address: SocketAddr,
    pub(in crate::scrape) settings: Arc<ScrapeSettings>,
    pub(in crate::scrape) dialect: Arc<Dialect>,
}

impl Job {
    pub(in crate::scrape) fn new(plan: &ScrapePlan, endpoint: &Endpoint) -> Self {
        let own = endpoint.address();
        Self {
            endpoint: endpoint.name().to_owned(),
            address: SocketAddr::new(own.ip(), plan.port.map_or(own.port(), NonZeroU16::get)),
            settings: Arc::clone(&plan.settings),
            dialect: Arc::clone(plan.dialects.of_endpoint(endpoint)),
        }
    }
}
