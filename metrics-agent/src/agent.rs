//! The whole agent: discover, scrape, publish, serve, and end in order.

use core::fmt;
use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use axum::serve::ListenerExt;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::discovery;
use crate::eds::{self, EdsError};
use crate::follower::Follower;
use crate::manifests::watch::Watch;
use crate::manifests::{self, Plan, Problem, Problems};
use crate::page::History;
use crate::report::Reports;
use crate::scrape::{self, Scraper};
use crate::served::Pools;
use crate::server::{self, Shared};
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
    /// The files to keep for Envoy.
    pub eds: Option<eds::Target>,
    /// Most snapshot requests that may wait at the same time.
    pub max_waiters: usize,
}

/// Serves on `listener` until `stop` is cancelled, then drains.
pub async fn run(
    settings: Settings,
    listener: TcpListener,
    stop: CancellationToken,
) -> Result<(), AgentError> {
    if let Some(eds) = &settings.eds {
        eds.check().map_err(AgentError::Eds)?;
    }
    let telemetry = Arc::new(Telemetry::default());
    let clock = Clock::start();
    let pools = Arc::new(Pools::new(clock));
    let file_by_flag = settings.sources.file.is_some();
    let flags_name_endpoints = file_by_flag || !settings.sources.fixed.is_empty();
    let discovery = discovery::start(settings.sources, Arc::clone(&telemetry));
    let manifests = match settings.manifests {
        Some(manifests) => {
            let (eds, path) = (settings.eds.clone(), manifests.path.clone());
            let accept = move |plan: &Plan| accept(&path, plan, eds.as_ref(), flags_name_endpoints);
            Watch::start(manifests, Arc::clone(&telemetry), accept)
        }
        None => Watch::of(Plan::without_manifests(&settings.options)),
    };
    let draining = CancellationToken::new();
    let reports = Arc::new(Reports::new(clock));
    let history = Arc::new(History::new(clock));
    let charting = Arc::clone(&history).follow(Arc::clone(&pools), Arc::clone(&reports));
    let _charting = AbortOnDropHandle::new(tokio::spawn(charting));
    let shared = Arc::new(Shared {
        pools: Arc::clone(&pools),
        plans: manifests.plans(),
        sets: discovery.sets(),
        waiters: Semaphore::new(settings.max_waiters),
        reports,
        history,
        draining: draining.clone(),
        telemetry: Arc::clone(&telemetry),
    });
    let follower = Follower {
        discovery,
        file_by_flag,
        pools,
        scraper: Scraper::new(clock, Arc::clone(&telemetry)),
        scrape: settings.scrape,
        eds: settings.eds,
        eds_files: HashMap::new(),
        telemetry,
    };
    let _follower = AbortOnDropHandle::new(tokio::spawn(follower.run(manifests.plans())));

    let closing = CancellationToken::new();
    let listener = listener.tap_io(|stream| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps Nagle's delay");
        }
    });
    let server = axum::serve(listener, server::router(shared))
        .with_graceful_shutdown(closing.clone().cancelled_owned())
        .into_future();
    let end = async {
        stop.cancelled().await;
        tracing::info!("draining");
        draining.cancel();
        tokio::time::sleep(DRAIN_NOTICE).await;
        closing.cancel();
        tokio::time::sleep(DRAIN_LIMIT).await;
    };
    tokio::select! {
        ended = server => ended.map_err(AgentError::Serve),
        () = end => Ok(()),
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

/// Why the agent ended, or did not begin.
#[derive(Debug)]
#[non_exhaustive]
pub enum AgentError {
    /// The EDS file cannot be kept.
    Eds(EdsError),
    /// The listener failed.
    Serve(io::Error),
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Eds(error) => error.fmt(f),
            Self::Serve(error) => write!(f, "the listener failed: {error}"),
        }
    }
}

impl core::error::Error for AgentError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Eds(error) => error.source(),
            Self::Serve(error) => Some(error),
        }
    }
}
