//! What all requests share.

use core::sync::atomic::AtomicBool;
use core::time::Duration;
use std::sync::Arc;

use prometheus_client::registry::Registry;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::metrics::ApiMetrics;
use super::pools::build;
use super::pools::history::History;
use super::pools::status::{PoolStatus, UnresolvedStatus};
use super::reports::Reports;
use crate::catalogue::watch::PlanResult;
use crate::catalogue::{Problem, Refusal, Refusals};
use crate::publish::pool_publisher::PoolPublisher;
use crate::publish::pools::Pools;
use crate::runtime::clock::Clock;
use crate::sharing::Feeds;
use crate::sources::endpoints::{EndpointSet, WatchedFile};
use crate::sources::kubernetes::PendingPods;
use crate::sources::names::Unresolved;

/// What all requests share.
#[derive(Debug)]
pub struct ApiState {
    /// The clock of readings and reports.
    pub clock: Clock,
    /// The pools by name.
    pub pools: Arc<Pools>,
    /// The newest plan of the manifests.
    pub plans: watch::Receiver<PlanResult>,
    /// The refused objects of the cluster and the refused manifest files.
    pub refused_manifests: watch::Receiver<Refusals>,
    /// The endpoints file, once it was read.
    pub endpoints_file: watch::Receiver<Option<WatchedFile>>,
    /// The newest endpoint set.
    pub endpoints: watch::Receiver<EndpointSet>,
    /// Host names of model servers that have a problem.
    pub unresolved: watch::Receiver<Arc<[Unresolved]>>,
    /// The pods of a cluster that were not listed yet; `None`: no cluster is watched.
    pub pending_pods: Option<PendingPods>,
    /// Whether the agent was ready once.
    pub was_ready: AtomicBool,
    /// One permit for each snapshot request that may wait for a newer version.
    pub waiters: Semaphore,
    /// Reports of proxies.
    pub reports: Arc<Reports>,
    /// The changes that proxies share; `None`: they do not share any.
    pub feeds: Option<Arc<Feeds>>,
    /// The last minutes, for the page.
    pub history: Arc<History>,
    /// Largest report of a proxy, in bytes.
    pub max_report_bytes: usize,
    /// Longest time in which the body of a request must arrive.
    pub body_timeout: Duration,
    /// Cancelled when the agent is about to end.
    pub draining: CancellationToken,
    /// Counters of the API.
    pub metrics: ApiMetrics,
    /// All counters of the agent.
    pub registry: Registry,
}

impl ApiState {
    /// A pool with its proxies' reports and what they share; `None` until it has an endpoint set.
    pub(super) fn status(&self, publisher: &PoolPublisher) -> Option<PoolStatus> {
        let mut status =
            build::of_pool(publisher, &self.reports, self.history.state_times(), self.clock.now())?;
        let shared = self.feeds.as_ref().map(|feeds| feeds.status(&status.pool));
        status.unknown_pools = self.reports.unknown_pools.recent();
        status.sharing = shared.map(build::of_shared);
        status.unresolved = self.unresolved_of(&status.pool);
        Some(status)
    }

    /// The refused objects of the cluster and the refused files.
    pub(super) fn refusals(&self) -> Vec<Refusal> {
        let mut refusals = self.refused_manifests.borrow().to_vec();
        if let Some(problem) = self.problem_of_endpoints() {
            let mut publishers = self.pools.publishers().into_iter();
            let is_served = publishers.any(|(_, publisher)| publisher.published().is_some());
            refusals.extend(Refusal::of_files(&problem.into(), is_served));
        }
        refusals
    }

    /// Why the endpoints file is refused, by itself or with the newest plan.
    fn problem_of_endpoints(&self) -> Option<Problem> {
        let file = self.endpoints_file.borrow().clone()?;
        file.problem.or_else(|| {
            let plan = self.plans.borrow().clone().ok()?;
            let without_port = plan.check_ports(self.endpoints.borrow().as_ref().ok()?).err()?;
            Some(Problem::of_file(&file.path, without_port))
        })
    }

    /// The host names with a problem whose servers belong to this pool.
    fn unresolved_of(&self, pool: &str) -> Vec<UnresolvedStatus> {
        let unresolved = Arc::clone(&self.unresolved.borrow());
        if unresolved.is_empty() {
            return Vec::new();
        }
        let plan = self.plans.borrow().clone();
        let plan = plan.ok().and_then(|plan| plan.pools.iter().find(|plan| plan.name == pool).cloned());
        let Some(plan) = plan else { return Vec::new() };
        let belongs =
            |name: &&Unresolved| !plan.members.among(core::slice::from_ref(&name.placeholder)).is_empty();
        unresolved.iter().filter(belongs).map(build::of_unresolved).collect()
    }
}
