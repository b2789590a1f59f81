//! Applies changes of manifests and of discovery: Envoy's endpoint files first, then the scrape tasks.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker_wire::v1;
use metrics_agent_catalogue::plan::members::Member;
use metrics_agent_catalogue::scraping::{ScrapePlan, ScrapeSettings};
use metrics_agent_catalogue::watch::{NoPlan, PlanResult};
use metrics_agent_catalogue::{Plan, PoolPlan};
use metrics_agent_gateway::references::{MISSING_SERVICE, PickerReferences};
use metrics_agent_kv_events::subscribers::Subscribers;
use metrics_agent_sources::endpoints::{Discovery, LeftOut, LeftOutMetrics, NoEndpoints};
use metrics_agent_sources::kubernetes::ReadyPods;
use metrics_agent_status::snapshot::milliseconds;
use metrics_agent_support::runtime::ResultCounter;
use tokio::sync::watch;

use super::pool_pods::{self, PoolPods};
use crate::publish::Pools;
use crate::publish::eds::{EdsFile, Target};
use crate::publish::pool_publisher::PoolPublisher;
use crate::publish::snapshot::Topology;
use crate::record::Recorder;
use crate::scrape::{ScrapedPool, Scraper};

/// Time between two checks whether an EDS file has to be written again, because writing failed or the file is
/// gone.
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
    /// `None`: requests are not recorded.
    pub(super) recorder: Option<Arc<Recorder>>,
    pub(super) scrape: ScrapeSettings,
    pub(super) max_endpoints: usize,
    pub(super) eds: Option<Target>,
    pub(super) eds_files: HashMap<Target, EdsFile>,
    pub(super) eds_writes: ResultCounter,
    /// The pods that are left out of each pool.
    pub(super) left_out: BTreeMap<String, LeftOut>,
    pub(super) left_out_metrics: LeftOutMetrics,
}

/// The newest values that the reconciler follows besides the plan.
struct ReconcilerInputs {
    endpoints: Vec<Endpoint>,
    ready: Arc<ReadyPods>,
    /// Pools that serve no requests.
    refused: BTreeSet<String>,
    /// Names of endpoints whose host name is denied.
    denied: Arc<BTreeSet<String>>,
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
        let (mut sets, mut denied) = (self.discovery.sets(), self.discovery.denied());
        let mut pods = self.pods.as_ref().map_or_else(|| watch::channel(Arc::default()).1, PoolPods::pods);
        let mut references = self.picker_references.take();
        let mut last: Option<Arc<Plan>> = None;
        loop {
            let plan = plans.borrow_and_update().clone();
            let plan = match plan {
                Ok(plan) => plan,
                Err(no_plan) => {
                    // Envoy does not start without the file.
                    let written = match no_plan {
                        NoPlan::Pending(_) => true,
                        NoPlan::Refused(_) => self.write_missing_eds_of_any_pool(),
                    };
                    tokio::select! {
                        () = changed(&mut plans) => {}
                        () = self.wait_for_eds_write(written) => {}
                    }
                    continue;
                }
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
                    Ok(()) => {
                        let denied = Arc::clone(&denied.borrow_and_update());
                        self.apply_endpoints(&plan, &ReconcilerInputs { endpoints, ready, refused, denied })
                    }
                    Err(problem) => {
                        let had_set = self.pools.publishers().iter().any(|(_, it)| it.published().is_some());
                        let effect = if had_set { "the last valid ones stay" } else { "there are none yet" };
                        tracing::error!(problem, "the endpoints are refused; {effect}");
                        self.write_missing_eds(&plan)
                    }
                },
                Err(NoEndpoints::Refused(_)) => self.write_missing_eds(&plan),
                Err(NoEndpoints::Pending(_)) => true,
            };
            tokio::select! {
                () = changed(&mut plans) => {}
                () = changed(&mut sets) => {}
                () = changed(&mut denied) => {}
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

    /// Applies a plan with its endpoints. Returns false when writing an EDS file failed.
    fn apply_endpoints(&mut self, plan: &Plan, inputs: &ReconcilerInputs) -> bool {
        let ReconcilerInputs { endpoints, ready, refused, denied } = inputs;
        let mut written = true;
        let mut all_left_out = BTreeMap::new();
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
                members.into_iter().map(|endpoint| Member::declared(endpoint, denied)).collect();
            if let Some(pods) = &self.pods {
                // The pool's pods were never listed, so its endpoints are unknown rather than none.
                let Some(pods) = pods.members(pool, ready) else { continue };
                let left_out = pool_pods::add(&mut members, pods, self.max_endpoints);
                if self.left_out.get(&pool.name).unwrap_or(&LeftOut::default()) != &left_out {
                    left_out.log(&pool.name);
                }
                all_left_out.insert(pool.name.clone(), left_out);
            }
            let endpoints: Vec<_> = members.iter().map(|member| member.endpoint.clone()).collect();
            written &= self.write_eds(&pool.name, &endpoints);
            let mut policy = pool.policy.clone();
            policy.scrape_interval_ms = milliseconds(pool.scraping(&self.scrape).settings.interval);
            policy.record = self.recorder.as_ref().and_then(|recorder| recorder.sample(pool.record_sample));
            policy.refusal = refused.contains(&pool.name).then(|| MISSING_SERVICE.to_owned());
            served.extend(self.served_pool(pool, policy, endpoints, members));
        }
        self.serve(served);
        self.left_out_metrics.set("pods", all_left_out.values());
        self.left_out = all_left_out;
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
        // An endpoint with several ranks counts once for each, so a pool may have more endpoints than
        // discovery.
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

    /// Writes files without endpoints where there are none, because Envoy does not start without them. A file
    /// of an earlier run stays. Returns false when writing one failed.
    fn write_missing_eds(&mut self, plan: &Plan) -> bool {
        let Some(eds) = self.eds.clone() else { return true };
        let mut written = true;
        for pool in plan.pools.iter().filter(|pool| !eds.of_pool(&pool.name).path.exists()) {
            written &= self.write_eds(&pool.name, &[]);
        }
        written
    }

    /// Writes the file without endpoints if there is none and it is the same for every pool, before the pools
    /// are known. Returns false when writing failed.
    fn write_missing_eds_of_any_pool(&mut self) -> bool {
        let is_missing = self.eds.as_ref().is_some_and(|eds| eds.is_of_any_pool() && !eds.path.exists());
        !is_missing || self.write_eds("", &[])
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
