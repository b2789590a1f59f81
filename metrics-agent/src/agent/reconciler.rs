//! Takes up what manifests and discovery say: the files for Envoy first, then the scrape tasks.

use core::time::Duration;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use endpoint_picker::pool::{Endpoint, Pool};
use tokio::sync::watch;

use crate::catalogue::scraping::{ScrapePlan, ScrapeSettings};
use crate::catalogue::watch::PlanResult;
use crate::catalogue::{Plan, PoolPlan};
use crate::publish::eds::{EdsFile, Target};
use crate::publish::pool_publisher::PoolPublisher;
use crate::publish::pools::Pools;
use crate::publish::snapshot::Topology;
use crate::scrape::{ScrapedPool, Scraper};
use crate::sources::endpoints::Discovery;
use crate::telemetry::ResultCounter;

/// Time between two checks whether an EDS file is to be written again, because it was not written or is gone.
const EDS_CHECK: Duration = Duration::from_secs(1);

pub(super) struct Reconciler {
    pub(super) discovery: Discovery,
    /// Whether the flags name an endpoints file; then one that the manifests name is not used.
    pub(super) file_by_flag: bool,
    pub(super) pools: Arc<Pools>,
    pub(super) scraper: Scraper,
    pub(super) scrape: ScrapeSettings,
    pub(super) max_endpoints: usize,
    pub(super) eds: Option<Target>,
    pub(super) eds_files: HashMap<Target, EdsFile>,
    pub(super) eds_writes: ResultCounter,
}

/// A pool of the plan with its endpoints.
struct ServedPool {
    publisher: Arc<PoolPublisher>,
    topology: Topology,
    scraping: ScrapePlan,
}

impl Reconciler {
    pub(super) async fn run(mut self, mut plans: watch::Receiver<PlanResult>) {
        let mut sets = self.discovery.sets();
        let mut last: Option<Arc<Plan>> = None;
        loop {
            let plan = plans.borrow_and_update().clone();
            let Ok(plan) = plan else {
                changed(&mut plans).await;
                continue;
            };
            if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &plan)) {
                self.take_up(&plan);
                last = Some(Arc::clone(&plan));
            }
            let set = sets.borrow_and_update().clone();
            let written = match set {
                Ok(found) => self.apply(&plan, &found),
                Err(_) => true,
            };
            tokio::select! {
                () = changed(&mut plans) => {}
                () = changed(&mut sets) => {}
                () = self.eds_is_to_be_written(written) => {}
            }
        }
    }

    /// Waits until the EDS files are to be written again.
    async fn eds_is_to_be_written(&self, written: bool) {
        loop {
            tokio::time::sleep(EDS_CHECK).await;
            if !written || self.eds_files.values().any(EdsFile::is_gone) {
                return;
            }
        }
    }

    /// What a new plan means whoever the endpoints are.
    fn take_up(&mut self, plan: &Plan) {
        self.forget_eds_of_others(plan);
        self.pools.keep(&plan.pools.iter().map(|pool| pool.name.as_str()).collect::<BTreeSet<_>>());
        match &plan.endpoints_file {
            Some(path) if self.file_by_flag => {
                tracing::warn!(file = %path.display(), "file-discovery is not used, because of --endpoints-file");
            }
            Some(path) => self.discovery.watch_file(path.clone()),
            None => {}
        }
    }

    /// False when an EDS file is to be written again.
    fn apply(&mut self, plan: &Plan, found: &[Endpoint]) -> bool {
        let mut written = true;
        let mut served = Vec::with_capacity(plan.pools.len());
        for pool in &plan.pools {
            let members = pool.members.among(found);
            if members.is_empty() && !found.is_empty() {
                tracing::warn!(
                    pool = pool.name,
                    found = found.len(),
                    "no endpoint has the pool's namespace and labels"
                );
            }
            written &= self.write_eds(&pool.name, &members);
            served.extend(self.served_pool(pool, members));
        }
        self.serve(served);
        written
    }

    /// Scrapes these pools from now on, and publishes them.
    fn serve(&mut self, served: Vec<ServedPool>) {
        let scraped = served.iter().map(|pool| ScrapedPool {
            endpoints: pool.topology.pool.endpoints(),
            plan: pool.scraping.clone(),
            changes: pool.publisher.changes(),
        });
        let slots = self.scraper.set_pools(scraped.collect());
        for (pool, slots) in served.into_iter().zip(slots) {
            pool.publisher.install(pool.topology, slots);
        }
    }

    fn served_pool(&self, plan: &PoolPlan, members: Vec<Endpoint>) -> Option<ServedPool> {
        let publisher = self.pools.publisher(&plan.name)?;
        // One endpoint may stand for several ranks, so that a pool may have more than were found.
        if members.len() > self.max_endpoints {
            let (count, max) = (members.len(), self.max_endpoints);
            tracing::error!(
                pool = plan.name,
                "{count} endpoints; at most {max} are allowed (--max-endpoints); it is not scraped"
            );
            return None;
        }
        match Pool::new(plan.name.clone(), members) {
            Ok(pool) => {
                let topology = Topology { pool, policy: Some(plan.policy.clone()) };
                Some(ServedPool { publisher, topology, scraping: plan.scraping(&self.scrape) })
            }
            Err(error) => {
                tracing::error!(pool = plan.name, %error, "these endpoints make no pool; it is not scraped");
                None
            }
        }
    }

    /// Removes the files of pools that are no more.
    fn forget_eds_of_others(&mut self, plan: &Plan) {
        let Some(eds) = &self.eds else { return };
        let kept: HashSet<_> = plan.pools.iter().map(|pool| eds.of_pool(&pool.name)).collect();
        for (target, file) in self.eds_files.extract_if(|target, _| !kept.contains(target)) {
            match file.remove() {
                Ok(()) => {
                    tracing::info!(file = %target.path.display(), "the file of a removed pool is removed");
                }
                Err(error) => tracing::error!(%error, "the file of a removed pool stays"),
            }
        }
    }

    fn write_eds(&mut self, pool: &str, endpoints: &[Endpoint]) -> bool {
        let Some(target) = self.eds.as_ref().map(|eds| eds.of_pool(pool)) else { return true };
        let eds = self.eds_files.entry(target.clone()).or_insert_with(|| EdsFile::new(target));
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match eds.write(endpoints, &since_epoch.as_micros().to_string()) {
            Ok(false) => true,
            Ok(true) => {
                self.eds_writes.count(true);
                true
            }
            Err(error) => {
                self.eds_writes.count(false);
                tracing::error!(%error, "Envoy keeps its old hosts");
                false
            }
        }
    }
}

/// Waits for something new, for ever if it cannot come.
async fn changed<T>(news: &mut watch::Receiver<T>) {
    if news.changed().await.is_err() {
        core::future::pending::<()>().await;
    }
}
