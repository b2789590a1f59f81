//! What one scrape task does.

use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use crate::catalogue::dialect::Dialect;
use crate::catalogue::plan::members::Member;
use crate::catalogue::scraping::{ScrapePlan, ScrapeSettings};

/// Everything that a task depends on. The task keeps running as long as its job stays the same.
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
}
