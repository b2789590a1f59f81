//! The whole agent: discover, scrape, publish, serve, and end in order.

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::serve::ListenerExt;
use endpoint_picker::pool::{Endpoint, Pool};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::board::Board;
use crate::clock::Clock;
use crate::discovery::{self, Discovered};
use crate::eds::{self, EdsError, EdsFile};
use crate::scrape::{self, Scraper};
use crate::server::{self, Served, Shared};
use crate::telemetry::Telemetry;

/// After the stop signal, `/readyz` says so for this long before the listener closes.
const DRAIN_NOTICE: Duration = Duration::from_secs(1);

/// Requests that are still being answered then are cut off.
const DRAIN_LIMIT: Duration = Duration::from_secs(3);

/// Time between two tries to write the EDS file.
const EDS_RETRY: Duration = Duration::from_secs(1);

/// What one agent does.
#[derive(Debug)]
pub struct Settings {
    /// The pool's name.
    pub pool: String,
    /// Where its endpoints come from.
    pub sources: discovery::Sources,
    /// How they are scraped.
    pub scrape: scrape::Settings,
    /// The file to keep for Envoy.
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
    let clock = Clock::start();
    let telemetry = Arc::new(Telemetry::default());
    let board = Arc::new(Board::new(clock));
    let discovery = discovery::start(settings.sources, Arc::clone(&telemetry));
    let draining = CancellationToken::new();
    let pool = Served { board: Arc::clone(&board), sets: discovery.sets() };
    let shared = Arc::new(Shared {
        pools: BTreeMap::from([(settings.pool.clone(), pool)]),
        waiters: Semaphore::new(settings.max_waiters),
        draining: draining.clone(),
        telemetry: Arc::clone(&telemetry),
    });

    let publisher = Arc::clone(&board);
    let _publisher = AbortOnDropHandle::new(tokio::spawn(async move { publisher.publish_changes().await }));
    let follower = Follower {
        pool: settings.pool,
        eds: settings.eds.map(EdsFile::new),
        scraper: Scraper::new(settings.scrape, clock, Arc::clone(&telemetry), board),
        telemetry,
    };
    let _follower = AbortOnDropHandle::new(tokio::spawn(follower.run(discovery.sets())));

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

/// Takes up each new endpoint set: the file for Envoy first, then the scrape tasks.
struct Follower {
    pool: String,
    eds: Option<EdsFile>,
    scraper: Scraper,
    telemetry: Arc<Telemetry>,
}

impl Follower {
    async fn run(mut self, mut sets: watch::Receiver<Discovered>) {
        loop {
            let set = sets.borrow_and_update().clone();
            let Ok(endpoints) = set else {
                changed(&mut sets).await;
                continue;
            };
            let mut written = self.write_eds(&endpoints);
            match Pool::new(self.pool.clone(), endpoints.clone()) {
                Ok(pool) => self.scraper.follow(pool),
                Err(error) => tracing::error!(%error, "discovery let a bad set pass; the last one stays"),
            }
            while !written {
                tokio::select! {
                    () = changed(&mut sets) => break,
                    () = tokio::time::sleep(EDS_RETRY) => written = self.write_eds(&endpoints),
                }
            }
            if written {
                changed(&mut sets).await;
            }
        }
    }

    /// False when the file is to be written again.
    fn write_eds(&mut self, endpoints: &[Endpoint]) -> bool {
        let Some(eds) = &mut self.eds else { return true };
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        match eds.write(endpoints, &since_epoch.as_micros().to_string()) {
            Ok(false) => true,
            Ok(true) => {
                self.telemetry.eds_write(true);
                true
            }
            Err(error) => {
                self.telemetry.eds_write(false);
                tracing::error!(%error, "Envoy keeps its old hosts");
                false
            }
        }
    }
}

/// Waits for another set, for ever if none can come.
async fn changed(sets: &mut watch::Receiver<Discovered>) {
    if sets.changed().await.is_err() {
        core::future::pending::<()>().await;
    }
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
