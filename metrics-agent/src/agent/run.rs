//! Starts the stages, connects them, and stops them in order.

use core::error::Error;
use core::sync::atomic::AtomicBool;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use metrics_agent_catalogue::scraping::{Scheme, ScrapeSettings};
use metrics_agent_catalogue::watch::PlanWatch;
use metrics_agent_catalogue::{Options, Plan, PoolPlan, cluster, watch};
use metrics_agent_gateway::object_reports::{ObjectReports, PoolInputs};
use metrics_agent_kv_events::KvEvents;
use metrics_agent_kv_events::subscribers::Subscribers;
use metrics_agent_sources::endpoints::{self, Declared};
use metrics_agent_sources::kubernetes::{Cluster, ClusterSettings, ConnectError};
use metrics_agent_sources::manifests::{Problem, Problems};
use metrics_agent_support::runtime::{Clock, Tasks};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::extension_server::{self, ExtensionServer};
use super::pool_pods::PoolPods;
use super::reconciler::Reconciler;
use super::{AgentMetrics, Listeners, Settings};
use crate::api::ApiState;
use crate::api::access::Access;
use crate::api::pools::history::History;
use crate::api::reports::Reports;
use crate::api::waiters::Waiters;
use crate::publish::{Pools, eds};
use crate::record::Recorder;
use crate::scrape::{Leases, Scraper};
use crate::sharing::{Feeds, Share};

/// After the stop signal, `/readyz` fails for this long before the listener closes.
const DRAIN_NOTICE: Duration = Duration::from_secs(1);

/// Requests that are still in flight after this time are cut off.
const DRAIN_LIMIT: Duration = Duration::from_secs(3);

/// Serves on `listeners` until `stop` is cancelled, then drains. Ends at once with an error when one of its
/// tasks ends.
pub async fn run(
    settings: Settings,
    listeners: Listeners,
    stop: CancellationToken,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    settings.eds.iter().try_for_each(eds::Target::check)?;
    let metrics = AgentMetrics::new();
    let (tasks, mut ended) = Tasks::new();
    let watching = (&tasks, &metrics.credential_reads);
    let credentials = settings.credentials.watch(watching).await?;
    let scrape_credentials = settings.scrape_credentials.read(Some(watching)).await?;
    listeners.warn_if_open(&credentials);
    let clock = Clock::start();
    let file_by_flag = settings.sources.file.is_some();
    let mut cluster = start_cluster(settings.kubernetes, &tasks, &metrics).await?;
    let namespace = cluster.as_ref().map(|cluster| cluster.namespace.clone());
    let pools = Arc::new(Pools::new(clock, tasks.clone(), namespace));
    let plans = PlanSources {
        manifests: settings.manifests,
        only_pool: settings.only_pool,
        options: settings.options,
        acceptance: Acceptance {
            eds: settings.eds.clone(),
            scrape: settings.scrape.clone(),
            has_tls: scrape_credentials.has_tls(),
            has_endpoints: file_by_flag || settings.sources.fixed != Declared::default(),
        },
    };
    let plans = plans.watch(cluster.as_ref(), &tasks, &metrics);
    let leases = leases(&settings.share, clock, &tasks, &metrics);
    let scrape_credentials = Arc::new(scrape_credentials);
    let kv_events = settings.kv_events.map(|it| KvEvents::new(it, clock, metrics.kv_events.clone()));
    let subscribers = kv_events.clone().map(|it| Subscribers::new(it, &scrape_credentials, tasks.clone()));
    let scraper = Scraper::new(clock, scrape_credentials, tasks.clone(), metrics.scrape.clone(), leases);
    let discovery =
        endpoints::start(settings.sources, settings.max_endpoints, &tasks, metrics.discovery.clone());
    let reports_to_objects = start_reports(settings.object_reports, cluster.as_ref(), &plans, &tasks);
    let pool_status =
        extension_server::start_status(settings.extension.as_ref(), cluster.as_mut(), &plans, &tasks);
    let (pool_status, picker_references) = pool_status.unzip();
    let extension = ExtensionServer::new(settings.extension, cluster.as_ref(), watching).await?;
    let pending_pods = cluster.as_ref().map(|cluster| cluster.pods.pending());
    let (pods, objects) = cluster.map(|cluster| (PoolPods::new(cluster.pods), cluster.objects)).unzip();
    let _held = (objects, reports_to_objects, pool_status);
    let (draining, closing) = (CancellationToken::new(), CancellationToken::new());
    let feeds = Feeds::start(settings.share, clock, &pools, &tasks, &metrics.store);
    let reports = Arc::new(Reports::new(clock, settings.limits.max_proxies));
    let (history, _history) = start_history(clock, &pools, &reports, &tasks);
    let recorder = settings.record.map(|record| Recorder::start(record, &tasks, metrics.record));
    let recorder = recorder.transpose()?.map(Arc::new);
    let reconciler = Reconciler {
        discovery,
        file_by_flag,
        pods,
        picker_references,
        pools: Arc::clone(&pools),
        scraper,
        subscribers,
        recorder: recorder.clone(),
        scrape: settings.scrape,
        max_endpoints: settings.max_endpoints,
        eds: settings.eds,
        eds_files: HashMap::new(),
        eds_writes: metrics.eds_writes.clone(),
        left_out: BTreeMap::new(),
        left_out_metrics: metrics.discovery.left_out.clone(),
    };
    let access = Access::new(settings.allowed_hosts, credentials.clients, metrics.api.clone());
    let state = Arc::new(ApiState {
        clock,
        pools,
        plans: plans.plans(),
        refused_manifests: plans.refusals(),
        endpoints_file: reconciler.discovery.watched_file(),
        endpoints: reconciler.discovery.sets(),
        unresolved: reconciler.discovery.unresolved(),
        pending_pods,
        was_ready: AtomicBool::new(false),
        waiters: Waiters::new(settings.max_waiters),
        reports,
        feeds,
        recorder,
        kv_events,
        history,
        extension: extension.as_ref().map(ExtensionServer::status),
        body_timeout: settings.limits.idle_timeout,
        draining: draining.clone(),
        metrics: metrics.api,
        registry: metrics.registry,
    });
    let _reconciler = tasks.spawn("reconciler", reconciler.run(plans.plans()));

    tokio::select! {
        () = listeners.serve(state, access, credentials.tls, settings.limits, extension, closing.clone()) => {}
        () = drain(stop, draining, closing) => {}
        Some(task) = ended.recv() => return Err(task.into()),
    }
    Ok(())
}

/// Begins to watch the cluster, if there is one.
async fn start_cluster(
    settings: Option<ClusterSettings>,
    tasks: &Tasks,
    metrics: &AgentMetrics,
) -> Result<Option<Cluster>, ConnectError> {
    let Some(settings) = settings else { return Ok(None) };
    Cluster::start(settings, tasks, &metrics.kubernetes).await.map(Some)
}

/// Begins to report to the objects of the cluster, if there is one.
fn start_reports(
    reports: ObjectReports,
    cluster: Option<&Cluster>,
    plans: &PlanWatch,
    tasks: &Tasks,
) -> Option<Vec<AbortOnDropHandle<()>>> {
    let cluster = cluster?;
    let inputs =
        PoolInputs { objects: cluster.objects.objects(), plans: plans.plans(), refusals: plans.refusals() };
    Some(reports.start(&cluster.client, inputs, tasks))
}

/// Begins to keep the last minutes of the pools, for the page.
fn start_history(
    clock: Clock,
    pools: &Arc<Pools>,
    reports: &Arc<Reports>,
    tasks: &Tasks,
) -> (Arc<History>, AbortOnDropHandle<()>) {
    let history = Arc::new(History::new(clock));
    let record = Arc::clone(&history).record(Arc::clone(pools), Arc::clone(reports));
    (history, tasks.spawn("history", record))
}

/// The leases of the servers, if there are other agents with the same store.
fn leases(share: &Share, clock: Clock, tasks: &Tasks, metrics: &AgentMetrics) -> Option<Leases> {
    match share {
        Share::Store(store) => Some(Leases::new(store.clone(), clock, tasks.clone(), metrics.leases.clone())),
        Share::Off | Share::Agent => None,
    }
}

/// Waits for `stop`, and ends the API in order.
async fn drain(stop: CancellationToken, draining: CancellationToken, closing: CancellationToken) {
    stop.cancelled().await;
    tracing::info!("draining");
    draining.cancel();
    tokio::time::sleep(DRAIN_NOTICE).await;
    closing.cancel();
    tokio::time::sleep(DRAIN_LIMIT).await;
}

/// Where the agent's plan comes from: a cluster and manifests, manifests alone, or flags alone.
pub(super) struct PlanSources {
    pub(super) manifests: Option<watch::ManifestSettings>,
    pub(super) only_pool: Option<String>,
    pub(super) options: Options,
    pub(super) acceptance: Acceptance,
}

impl PlanSources {
    /// Follows the plan. `cluster` is the cluster that is watched.
    pub(super) fn watch(self, cluster: Option<&Cluster>, tasks: &Tasks, metrics: &AgentMetrics) -> PlanWatch {
        let Self { manifests, only_pool, options, acceptance } = self;
        let reads = metrics.manifest_reads.clone();
        if let Some(cluster) = cluster {
            let settings = cluster::CatalogueSettings {
                namespace: cluster.namespace.clone(),
                pool: only_pool,
                options,
                has_tls: acceptance.has_tls,
            };
            let path = manifests.map(|manifests| manifests.path);
            return PlanWatch::of_cluster(cluster.objects.objects(), settings, path, tasks, reads);
        }
        match manifests {
            Some(manifests) => {
                let path = manifests.path.clone();
                PlanWatch::start(manifests, tasks, reads, move |plan| acceptance.check(&path, plan))
            }
            None => PlanWatch::of(Plan::without_manifests(&options)),
        }
    }
}

/// The flags that plans depend on.
#[derive(Debug)]
pub(super) struct Acceptance {
    pub(super) eds: Option<eds::Target>,
    pub(super) scrape: ScrapeSettings,
    /// Whether the flags set up TLS to model servers.
    pub(super) has_tls: bool,
    /// Whether the flags name endpoints, or a file of them.
    pub(super) has_endpoints: bool,
}

impl Acceptance {
    /// Refuses a plan of the manifests at `path` that the agent cannot serve.
    pub(super) fn check(&self, path: &Path, plan: &Plan) -> Result<(), Problems> {
        let refuse = |text: String| Err(Problem::of_file(path, text).into());
        let https = |pool: &&PoolPlan| pool.scraping(&self.scrape).schemes().any(|it| it == Scheme::Https);
        if let Some(pool) = plan.pools.iter().find(https).filter(|_| !self.has_tls) {
            return refuse(format!(
                "has https to the model servers or exporters of pool {:?}, which requires --scrape-ca or \
                 --model-server-metrics-https-insecure-skip-verify",
                pool.name
            ));
        }
        let pools = plan.pools.len();
        if pools > 1 && self.eds.as_ref().is_some_and(|eds| !eds.has_file_per_pool()) {
            return refuse(format!("has {pools} pools; allowed is one, unless --eds-file contains {{pool}}"));
        }
        if !self.has_endpoints && plan.endpoints_file.is_none() {
            let text = "has no source of endpoints; one is required: --endpoint, --endpoints-file or a file-discovery plugin";
            return refuse(text.to_owned());
        }
        Ok(())
    }
}
