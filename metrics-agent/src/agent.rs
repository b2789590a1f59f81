//! The whole agent: discover, scrape, publish, serve, and end in order.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::credentials::{self, CredentialError};
use crate::discovery;
use crate::eds::{self, EdsError};
use crate::follower::Follower;
use crate::manifests::watch::Watch;
use crate::manifests::{self, Plan, PoolPlan, Problem, Problems};
use crate::page::History;
use crate::report::Reports;
use crate::scrape::{self, Scheme, Scraper};
use crate::served::Pools;
use crate::server::access::Access;
use crate::server::hosts::AllowedHosts;
use crate::server::{self, Shared, listen};
use crate::tasks::{TaskEnded, Tasks};
use crate::telemetry::Telemetry;

/// After the stop signal, `/readyz` says so for this long before the listener closes.
const DRAIN_NOTICE: Duration = Duration::from_secs(1);

/// Requests that are still being answered then are cut off.
const DRAIN_LIMIT: Duration = Duration::from_secs(3);

/// What one agent does.
#[derive(Debug)]
pub struct Settings {
    /// What the flags say of pools.
    pub options: manifests::Options,
    /// The manifests that say which pools there are.
    pub manifests: Option<manifests::watch::Settings>,
    /// Where endpoints come from.
    pub sources: discovery::Sources,
    /// How they are scraped.
    pub scrape: scrape::Settings,
    /// What is shown to model servers, and asked of them.
    pub scrape_credentials: credentials::scraping::Files,
    /// The files to keep for Envoy.
    pub eds: Option<eds::Target>,
    /// Most endpoints of all sources together, and of one pool.
    pub max_endpoints: usize,
    /// Most snapshot requests that may wait at the same time.
    pub max_waiters: usize,
    /// What clients may take.
    pub limits: listen::Limits,
    /// By which names clients may ask, beside the agent's address.
    pub allowed_hosts: AllowedHosts,
    /// What is shown to clients, and asked of them.
    pub credentials: credentials::serving::Files,
}

/// Serves on `listener` until `stop` is cancelled, then drains. Ends at once with an error when one of its tasks ends.
pub async fn run(
    settings: Settings,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), AgentError> {
    if let Some(eds) = &settings.eds {
        eds.check().map_err(AgentError::Eds)?;
    }
    let telemetry = Arc::new(Telemetry::default());
    let (tasks, mut ended) = Tasks::new();
    let limits = settings.options.file_limits;
    let credentials =
        settings.credentials.follow(limits, &tasks, &telemetry).await.map_err(AgentError::Credentials)?;
    let scrape_credentials = settings
        .scrape_credentials
        .follow(limits, &tasks, &telemetry)
        .await
        .map_err(AgentError::Credentials)?;
    warn_of_strangers(&listener, &credentials);
    let clock = Clock::start();
    let pools = Arc::new(Pools::new(clock, tasks.clone()));
    let file_by_flag = settings.sources.file.is_some();
    let flags_name_endpoints = file_by_flag || !settings.sources.fixed.is_empty();
    let discovery =
        discovery::start(settings.sources, settings.max_endpoints, limits, &tasks, Arc::clone(&telemetry));
    let manifests = match settings.manifests {
        Some(manifests) => {
            let (eds, path) = (settings.eds.clone(), manifests.path.clone());
            let (scrape, speaks_tls) = (settings.scrape.clone(), scrape_credentials.tls.is_some());
            let accept = move |plan: &Plan| {
                accept_tls(&path, plan, &scrape, speaks_tls)?;
                accept(&path, plan, eds.as_ref(), flags_name_endpoints)
            };
            Watch::start(manifests, &tasks, Arc::clone(&telemetry), accept)
        }
        None => Watch::of(Plan::without_manifests(&settings.options)),
    };
    let draining = CancellationToken::new();
    let reports = Arc::new(Reports::new(clock, settings.limits.max_proxies));
    let history = Arc::new(History::new(clock));
    let charting = Arc::clone(&history).follow(Arc::clone(&pools), Arc::clone(&reports));
    let _charting = tasks.spawn("history", charting);
    let shared = Arc::new(Shared {
        pools: Arc::clone(&pools),
        plans: manifests.plans(),
        sets: discovery.sets(),
        waiters: Semaphore::new(settings.max_waiters),
        reports,
        history,
        max_report_bytes: settings.limits.max_report_bytes,
        body_timeout: settings.limits.idle_timeout,
        draining: draining.clone(),
        telemetry: Arc::clone(&telemetry),
    });
    let follower = Follower {
        discovery,
        file_by_flag,
        pools,
        scraper: Scraper::new(clock, Arc::new(scrape_credentials), tasks.clone(), Arc::clone(&telemetry)),
        scrape: settings.scrape,
        max_endpoints: settings.max_endpoints,
        eds: settings.eds,
        eds_files: HashMap::new(),
        telemetry: Arc::clone(&telemetry),
    };
    let _follower = tasks.spawn("follower", follower.run(manifests.plans()));

    let closing = CancellationToken::new();
    let credentials::serving::Credentials { tls, asks_for_certificate, tokens } = credentials;
    let router = server::router(
        shared,
        Access { hosts: settings.allowed_hosts, asks_for_certificate, tokens, telemetry },
    );
    let server = listen::serve(listener, router, tls, settings.limits, closing.clone());
    let end = async {
        stop.cancelled().await;
        tracing::info!("draining");
        draining.cancel();
        tokio::time::sleep(DRAIN_NOTICE).await;
        closing.cancel();
        tokio::time::sleep(DRAIN_LIMIT).await;
    };
    tokio::select! {
        () = server => {}
        () = end => {}
        Some(task) = ended.recv() => return Err(AgentError::Task(task)),
    }
    Ok(())
}

/// What the pool's names, loads and labels are worth is the operator's to say; that they are open to all must not go unseen.
fn warn_of_strangers(listener: &TcpListener, credentials: &credentials::serving::Credentials) {
    let Ok(address) = listener.local_addr() else { return };
    let asks = credentials.tokens.is_some() || credentials.asks_for_certificate;
    let is_guarded = asks && credentials.tls.is_some();
    if !is_guarded && !address.ip().is_loopback() {
        tracing::warn!(
            %address,
            "everyone who reaches this address can read the pools, or listen in on who may: give --tls-cert and --tls-key, \
             and --bearer-token-file or --tls-client-ca; or --listen on a loopback address"
        );
    }
}

/// Whether the agent's flags can serve the pools.
fn accept(
    path: &Path,
    plan: &Plan,
    eds: Option<&eds::Target>,
    flags_name_endpoints: bool,
) -> Result<(), Problems> {
    let pools = plan.pools.len();
    if pools > 1 && eds.is_some_and(|eds| !eds.tells_pools_apart()) {
        let text = format!("has {pools} pools; allowed is one, unless --eds-file contains {{pool}}");
        return Err(Problem::of_file(path, text).into());
    }
    if !flags_name_endpoints && plan.endpoints_file.is_none() {
        let text = "names no endpoints; needed is --endpoint, --endpoints-file or a file-discovery plugin";
        return Err(Problem::of_file(path, text).into());
    }
    Ok(())
}

/// Whether TLS is spoken where the plan asks for it.
fn accept_tls(path: &Path, plan: &Plan, flags: &scrape::Settings, speaks_tls: bool) -> Result<(), Problems> {
    let https = |pool: &&PoolPlan| pool.scraping(flags).settings.scheme == Scheme::Https;
    match plan.pools.iter().find(https) {
        Some(pool) if !speaks_tls => {
            let text = format!(
                "asks for https to the model servers of pool {:?}; needed is --scrape-ca, or \
                 --model-server-metrics-https-insecure-skip-verify",
                pool.name
            );
            Err(Problem::of_file(path, text).into())
        }
        _ => Ok(()),
    }
}

/// Why the agent ended, or did not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum AgentError {
    /// The EDS file cannot be kept.
    Eds(EdsError),
    /// A file of certificates, keys or tokens is not as it must be.
    Credentials(CredentialError),
    /// One of its tasks ended.
    Task(TaskEnded),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eds(error) => error.fmt(f),
            Self::Credentials(error) => error.fmt(f),
            Self::Task(ended) => ended.fmt(f),
        }
    }
}

impl core::error::Error for AgentError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Eds(error) => error.source(),
            Self::Credentials(error) => error.source(),
            Self::Task(ended) => ended.source(),
        }
    }
}
