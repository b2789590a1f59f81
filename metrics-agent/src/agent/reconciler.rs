//! Applies changes of manifests and of discovery: Envoy's endpoint files first, then the scrape tasks.

use core::time::Duration;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker_wire::v1;
use tokio::sync::watch;

use super::pool_pods::{self, LeftOut, PoolPods};
use crate::catalogue::plan::members::Member;
use crate::catalogue::scraping::{ScrapePlan, ScrapeSettings};
use crate::catalogue::watch::PlanResult;
use crate::catalogue::{Plan, PoolPlan};
use crate::extension::references::{MISSING_SERVICE, PickerReferences};
use crate::kv_events::subscribers::Subscribers;
use crate::publish::Pools;
use crate::publish::eds::{EdsFile, Target};
use crate::publish::pool_publisher::PoolPublisher;
use crate::publish::snapshot::Topology;
use crate::runtime::ResultCounter;
use crate::scrape::{ScrapedPool, Scraper};
use crate::sources::endpoints::{Discovery, NoEndpoints};
use crate::sources::kubernetes::ReadyPods;

/// Time between two checks whether an EDS file has to be written again, because writing failed or the file is gone.
const EDS_CHECK: Duration = Duration::from_secs(1);

/// Keeps scraped pools and EDS files equal to the newest plan and endpoint set.
pub(super) struct Reconciler {
    pub(super) discovery: Discovery,
    /// Whether the flags name an endpoints file; then the manifests' endpoints file is not used.
    pub(super) file_by_flag: bool,
    /// The pods of a cluster, if one is watched.
    pub(super) pods: Option<PoolPods>,
    /// The Services that pools of a cluster name, if they matter.
    pub(super) picker_references: Option<PickerReferences>,
    pub(super) pools: Arc<Pools>,
    pub(super) scraper: Scraper,
    /// `None`: events of KV caches are not followed.
    pub(super) subscribers: Option<Subscribers>,
    pub(super) scrape: ScrapeSettings,
    pub(super) max_endpoints: usize,
    pub(super) eds: Option<Target>,
    pub(super) eds_files: HashMap<Target, EdsFile>,
    pub(super) eds_writes: ResultCounter,
}

/// A pool of the plan with its endpoints.
struct ServedPool {
    qualified_name: String,
    publisher: Arc<PoolPublisher>,
    topology: Topology,
    members: Vec<Member>,
    scraping: ScrapePlan,
}

impl Reconciler {
    pub(super) async fn run(mut self, mut plans: watch::Receiver<PlanResult>) {
        let mut sets = self.discovery.sets();
        let mut pods = self.pods.as_ref().map_or_else(|| watch::channel(Arc::default()).1, PoolPods::pods);
        let mut references = self.picker_references.take();
        let mut last: Option<Arc<Plan>> = None;
        loop {
            let plan = plans.borrow_and_update().clone();
            let Ok(plan) = plan else {
                changed(&mut plans).await;
                continue;
            };
            if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &plan)) {
                self.apply_plan(&plan);
                last = Some(Arc::clone(&plan));
            }
            let set = sets.borrow_and_update().clone();
            let ready = pods.borrow_and_update().clone();
            if let Some(pods) = &mut self.pods {
                pods.watch(&plan, &ready);
            }
            let refused = references.as_mut().map(|it| it.broken().clone()).unwrap_or_default();
            let written = match set {
                Ok(endpoints) => match plan.check_ports(&endpoints) {
                    Ok(()) => self.apply_endpoints(&plan, &endpoints, &ready, &refused),
                    Err(problem) => {
                        tracing::error!(problem, "the endpoints are refused; the last valid ones stay");
                        self.write_missing_eds(&plan)
                    }
                },
                Err(NoEndpoints::Refused(_)) => self.write_missing_eds(&plan),
                Err(NoEndpoints::Pending(_)) => true,
            };
            tokio::select! {
                () = changed(&mut plans) => {}
                () = changed(&mut sets) => {}
                () = changed(&mut pods) => {}
                () = references_changed(&mut references) => {}
                () = self.wait_for_eds_write(written) => {}
            }
        }
    }

    /// Waits until the EDS files have to be written again.
    async fn wait_for_eds_write(&self, written: bool) {
        loop {
            tokio::time::sleep(EDS_CHECK).await;
            if !written || self.eds_files.values().any(EdsFile::is_gone) {
                return;
            }
        }
    }

    /// Applies the parts of a new plan that do not depend on endpoints.
    fn apply_plan(&mut self, plan: &Plan) {
        self.remove_other_eds_files(plan);
        self.pools.keep(&plan.pools.iter().map(|pool| pool.name.as_str()).collect::<BTreeSet<_>>());
        match &plan.endpoints_file {
            Some(path) if self.file_by_flag => {
                tracing::warn!(file = %path.display(), "file-discovery is not used, because --endpoints-file is set");
            }
            Some(path) => self.discovery.watch_file(path.clone()),
            None => {}
        }
    }

    /// Applies a plan with its endpoints. Pools that `refused` names serve no requests. Returns false when writing an EDS file failed.
    fn apply_endpoints(
        &mut self,
        plan: &Plan,
        endpoints: &[Endpoint],
        ready: &ReadyPods,
        refused: &BTreeSet<String>,
    ) -> bool {
        let mut written = true;
        let mut served = Vec::with_capacity(plan.pools.len());
        for pool in &plan.pools {
            let members = pool.members.among(endpoints);
            if members.is_empty() && !endpoints.is_empty() {
                tracing::warn!(
                    pool = pool.name,
                    endpoints = endpoints.len(),
                    "no endpoint has the pool's namespace and labels"
                );
            }
            let mut members: Vec<_> =
                members.into_iter().map(|endpoint| Member { endpoint, pod: None }).collect();
            if let Some(pods) = &self.pods {
                // The pool's pods were never listed, so its endpoints are unknown rather than none.
                let Some(pods) = pods.members(pool, ready) else { continue };
                report(&pool.name, pool_pods::add(&mut members, pods, self.max_endpoints));
            }
            let endpoints: Vec<_> = members.iter().map(|member| member.endpoint.clone()).collect();
            written &= self.write_eds(&pool.name, &endpoints);
            let mut policy = pool.policy.clone();
            policy.refusal = refused.contains(&pool.name).then(|| MISSING_SERVICE.to_owned());
            served.extend(self.served_pool(pool, policy, endpoints, members));
        }
        self.serve(served);
        written
    }

    /// Scrapes these pools from now on, and publishes them.
    fn serve(&mut self, served: Vec<ServedPool>) {
        let scraped = served.iter().map(|pool| ScrapedPool {
            name: pool.topology.pool.name(),
            qualified_name: &pool.qualified_name,
            members: &pool.members,
            plan: pool.scraping.clone(),
            changes: pool.publisher.changes(),
        });
        let slots = self.scraper.set_pools(scraped.collect());
        if let Some(subscribers) = &mut self.subscribers {
            subscribers.set(
                served
                    .iter()
                    .map(|pool| (pool.topology.pool.name(), pool.members.as_slice(), &pool.scraping)),
            );
        }
        for (pool, slots) in served.into_iter().zip(slots) {
            pool.publisher.install(pool.topology, slots);
        }
    }

    fn served_pool(
        &self,
        plan: &PoolPlan,
        policy: v1::Policy,
        endpoints: Vec<Endpoint>,
        members: Vec<Member>,
    ) -> Option<ServedPool> {
        let publisher = self.pools.publisher(&plan.name)?;
        // An endpoint with several ranks counts once for each, so a pool may have more endpoints than discovery.
        if members.len() > self.max_endpoints {
            let (count, max) = (members.len(), self.max_endpoints);
            tracing::error!(
                pool = plan.name,
                "{count} endpoints; at most {max} are allowed (--max-endpoints); the pool is not scraped"
            );
            return None;
        }
        match Endpoints::new(plan.name.clone(), endpoints) {
            Ok(pool) => {
                let topology = Topology::new(pool, Some(policy));
                let (qualified_name, scraping) = (plan.qualified_name(), plan.scraping(&self.scrape));
                Some(ServedPool { qualified_name, publisher, topology, members, scraping })
            }
            Err(error) => {
                tracing::error!(pool = plan.name, %error, "the endpoints are refused; the pool is not scraped");
                None
            }
        }
    }

    /// Removes the files of pools that are not in the plan.
    fn remove_other_eds_files(&mut self, plan: &Plan) {
        let Some(eds) = &self.eds else { return };
        let current: HashSet<_> = plan.pools.iter().map(|pool| eds.of_pool(&pool.name)).collect();
        for (target, file) in self.eds_files.extract_if(|target, _| !current.contains(target)) {
            match file.remove() {
                Ok(()) => {
                    tracing::info!(file = %target.path.display(), "the EDS file of a removed pool is deleted");
                }
                Err(error) => tracing::error!(%error, "the EDS file of a removed pool is not deleted"),
            }
        }
    }

    /// Writes files without endpoints where there are none, because Envoy does not start without them. A file of an earlier run stays.
    /// Returns false when writing one failed.
    fn write_missing_eds(&mut self, plan: &Plan) -> bool {
        let Some(eds) = self.eds.clone() else { return true };
        let mut written = true;
        for pool in plan.pools.iter().filter(|pool| !eds.of_pool(&pool.name).path.exists()) {
            written &= self.write_eds(&pool.name, &[]);
        }
        written
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
                tracing::error!(%error, "the EDS file is not written; Envoy keeps its hosts");
                false
            }
        }
    }
}

fn report(pool: &str, LeftOut { same_address, beyond_limit }: LeftOut) {
    if same_address > 0 {
        tracing::warn!(
            pool,
            endpoints = same_address,
            "left out, because another endpoint has their address"
        );
    }
    if beyond_limit > 0 {
        tracing::error!(
            pool,
            endpoints = beyond_limit,
            "left out, because the pool is full (--max-endpoints)"
        );
    }
}

/// Waits for a change of the references; forever without them.
async fn references_changed(references: &mut Option<PickerReferences>) {
    match references {
        Some(references) => references.changed().await,
        None => core::future::pending().await,
    }
}

/// Waits for a new value; forever if the sender is gone.
async fn changed<T>(receiver: &mut watch::Receiver<T>) {
    if receiver.changed().await.is_err() {
        core::future::pending::<()>().await;
    }
}
