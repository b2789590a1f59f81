//! What one scrape task does.

use core::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use xxhash_rust::xxh64::Xxh64;

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

    /// A hash of the job, the same in every agent.
    pub(in crate::scrape) fn fingerprint(&self) -> u64 {
        let mut hasher = Xxh64::new(0);
        self.hash(&mut hasher);
        hasher.finish()
    }
}
