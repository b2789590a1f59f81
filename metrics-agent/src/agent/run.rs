//! Starts the stages, connects them, and stops them in order.

use core::sync::atomic::AtomicBool;
use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::acceptance::Acceptance;
use super::error::AgentError;
use super::listeners::Listeners;
use super::metrics::Metrics;
use super::plans::PlanSources;
use super::pool_pods::PoolPods;
use super::reconciler::Reconciler;
use super::settings::Settings;
use crate::api::ApiState;
use crate::api::access::check::Access;
use crate::api::pools::history::History;
use crate::api::reports::Reports;
use crate::publish::cluster::pools::PoolInputs;
use crate::publish::pools::Pools;
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;
use crate::scrape::connection::credentials as scrape_credentials;
use crate::scrape::{Leases, Scraper};
use crate::sharing::{Feeds, Share};
use crate::sources::endpoints::{self, Declared};
use crate::sources::kubernetes::{self, Cluster};

/// After the stop signal, `/readyz` fails for this long before the listener closes.
const DRAIN_NOTICE: Duration = Duration::from_secs(1);

/// Requests that are still in flight after this time are cut off.
const DRAIN_LIMIT: Duration = Duration::from_secs(3);

/// Serves on `listeners` until `stop` is cancelled, then drains. Ends at once with an error when one of its tasks ends.
pub async fn run(
    settings: Settings,
    listeners: Listeners,
    stop: CancellationToken,
) -> Result<(), AgentError> {
    if let Some(eds) = &settings.eds {
        eds.check().map_err(AgentError::Eds)?;
    }
    let metrics = Metrics::new();
    let (tasks, mut ended) = Tasks::new();
    let limits = settings.options.file_limits;
    let reads = &metrics.credential_reads;
    let credentials =
        settings.credentials.watch(limits, &tasks, reads).await.map_err(AgentError::Credentials)?;
    let scrape_credentials =
        settings.scrape_credentials.watch(limits, &tasks, reads).await.map_err(AgentError::Credentials)?;
    listeners.warn_if_open(&credentials);
    let clock = Clock::start();
    let file_by_flag = settings.sources.file.is_some();
    let cluster = watch(settings.kubernetes, &tasks, &metrics).await?;
    let namespace = cluster.as_ref().map(|cluster| cluster.namespace.clone());
    let pools = Arc::new(Pools::new(clock, tasks.clone(), namespace));
    let plans = PlanSources {
        manifests: settings.manifests,
        only_pool: settings.only_pool,
        options: settings.options,
        acceptance: Acceptance {
            eds: settings.eds.clone(),
            scrape: settings.scrape.clone(),
            has_tls: scrape_credentials.tls.is_some(),
            has_endpoints: file_by_flag || settings.sources.fixed != Declared::default(),
        },
    };
    let plans = plans.watch(cluster.as_ref(), &tasks, &metrics);
    let leases = leases(&settings.share, settings.share_readings, clock, &tasks, &metrics);
    let scraper = scraper(clock, scrape_credentials, &tasks, &metrics, leases);
    let discovery = endpoints::start(
        settings.sources,
        endpoints::Limits { endpoints: settings.max_endpoints, files: limits },
        &tasks,
        metrics.discovery.clone(),
    );
    let reports_to_objects = cluster.as_ref().map(|cluster| {
        let inputs = PoolInputs {
            objects: cluster.objects.objects(),
            plans: plans.plans(),
            refusals: plans.refusals(),
        };
        settings.object_reports.start(&cluster.client, inputs, &tasks)
    });
    let pending_pods = cluster.as_ref().map(|cluster| cluster.pods.pending());
    let (pods, objects) = cluster.map(|cluster| (PoolPods::new(cluster.pods), cluster.objects)).unzip();
    let _held = (objects, reports_to_objects);
    let draining = CancellationToken::new();
    let feeds = Feeds::start(settings.share, clock, &pools, &tasks, &metrics.store);
    let reports = Arc::new(Reports::new(clock, settings.limits.max_proxies));
    let history = Arc::new(History::new(clock));
    let record = Arc::clone(&history).record(Arc::clone(&pools), Arc::clone(&reports));
    let _history = tasks.spawn("history", record);
    let reconciler = Reconciler {
        discovery,
        file_by_flag,
        pods,
        pools: Arc::clone(&pools),
        scraper,
        scrape: settings.scrape,
        max_endpoints: settings.max_endpoints,
        eds: settings.eds,
        eds_files: HashMap::new(),
        eds_writes: metrics.eds_writes.clone(),
    };
    let api_metrics = metrics.api;
    let access =
        Access { hosts: settings.allowed_hosts, clients: credentials.clients, metrics: api_metrics.clone() };
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
        waiters: Semaphore::new(settings.max_waiters),
        reports,
        feeds,
        history,
        max_report_bytes: settings.limits.max_report_bytes,
        body_timeout: settings.limits.idle_timeout,
        draining: draining.clone(),
        metrics: api_metrics,
        registry: metrics.registry,
    });
    let _reconciler = tasks.spawn("reconciler", reconciler.run(plans.plans()));

    let closing = CancellationToken::new();
    tokio::select! {
        () = listeners.serve(state, access, credentials.tls, settings.limits, closing.clone()) => {}
        () = drain(stop, draining, closing) => {}
        Some(task) = ended.recv() => return Err(AgentError::Task(task)),
    }
    Ok(())
}

fn scraper(
    clock: Clock,
    credentials: scrape_credentials::Credentials,
    tasks: &Tasks,
    metrics: &Metrics,
    leases: Option<Leases>,
) -> Scraper {
    Scraper::new(clock, Arc::new(credentials), tasks.clone(), metrics.scrape.clone(), leases)
}

/// The leases of the servers, if agents scrape for one another.
fn leases(
    share: &Share,
    shares_readings: bool,
    clock: Clock,
    tasks: &Tasks,
    metrics: &Metrics,
) -> Option<Leases> {
    match share {
        Share::Store(store) if shares_readings => {
            Some(Leases::new(store.clone(), clock, tasks.clone(), metrics.leases.clone()))
        }
        Share::Off | Share::Agent | Share::Store(_) => None,
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

/// Watches the cluster, if there is one.
async fn watch(
    settings: Option<kubernetes::Settings>,
    tasks: &Tasks,
    metrics: &Metrics,
) -> Result<Option<Cluster>, AgentError> {
    let Some(settings) = settings else { return Ok(None) };
    let cluster = Cluster::start(settings, tasks, &metrics.kubernetes).await;
    cluster.map(Some).map_err(AgentError::Kubernetes)
}
