//! What one scrape task does.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;

use crate::catalogue::dialect::Dialect;
use crate::catalogue::scraping::{ScrapePlan, ScrapeSettings};

/// Everything that a task depends on. The task keeps running as long as its job stays the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Job {
    pub(super) endpoint: String,
    /// Where the metrics are.
    pub(super) address: SocketAddr,
    pub(super) settings: Arc<ScrapeSettings>,
    pub(super) dialect: Arc<Dialect>,
}

impl Job {
    pub(super) fn new(plan: &ScrapePlan, endpoint: &Endpoint) -> Self {
        let own = endpoint.address();
        Self {
            endpoint: endpoint.name().to_owned(),
            address: SocketAddr::new(own.ip(), plan.port.map_or(own.port(), NonZeroU16::get)),
            settings: Arc::clone(&plan.settings),
            dialect: Arc::clone(plan.dialects.of_endpoint(endpoint)),
        }
    }
}
