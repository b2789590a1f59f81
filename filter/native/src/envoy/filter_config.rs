//! The configurations of the filter and of routes.

use std::sync::Arc;

use super::filter_pool::{FilterPool, Worker};
use crate::abi::{ConfigHandle, concurrency};
use crate::agent::PoolHandle;
use crate::config::ModuleConfig;
use crate::metrics::flusher::Flusher;
use crate::process::proxy_name::proxy_name;
use crate::process::subscribers::Wake;

/// The event of all wakes.
const WAKE: u64 = 0;

/// A filter's configuration in use.
#[derive(Debug)]
pub(crate) struct FilterConfig {
    pool: Arc<FilterPool>,
    flusher: Arc<Flusher>,
    _handle: PoolHandle,
}

impl FilterConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(handle: &mut ConfigHandle<'_>, json: &[u8]) -> Result<Self, String> {
        let config = ModuleConfig::parse(json).map_err(|error| error.to_string())?;
        let scheduler = handle.scheduler().ok_or("Envoy has no scheduler for the configuration")?;
        let wake = Box::new(move || scheduler.commit(WAKE));
        let pool_handle = attach(&config, wake)?;
        FilterPool::register_metrics(&config.engine.pool);
        let flusher = Flusher::new(handle);
        let pool = FilterPool::new(&config, &pool_handle, concurrency(), Some(&flusher));
        Ok(Self { pool, flusher, _handle: pool_handle })
    }

    /// The pool of a worker.
    pub(crate) fn worker(&self, index: u32) -> &Arc<Worker> {
        self.pool.worker(index)
    }

    /// A wake has reached the main thread.
    pub(crate) fn on_scheduled(&self, handle: &mut ConfigHandle<'_>) {
        self.flusher.tick(handle);
    }
}

/// The configuration of a route in use.
#[derive(Debug)]
pub(crate) struct RouteConfig {
    pool: Arc<FilterPool>,
    _handle: PoolHandle,
}

impl RouteConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(json: &[u8]) -> Result<Self, String> {
        let config = ModuleConfig::parse(json).map_err(|error| error.to_string())?;
        let handle = attach(&config, Box::new(|| {}))?;
        let pool = FilterPool::new(&config, &handle, concurrency(), None);
        Ok(Self { pool, _handle: handle })
    }

    /// The pool of a worker.
    pub(crate) fn worker(&self, index: u32) -> &Arc<Worker> {
        self.pool.worker(index)
    }
}

fn attach(config: &ModuleConfig, wake: Wake) -> Result<PoolHandle, String> {
    let attached = PoolHandle::new(&config.engine.pool, &config.agent, &proxy_name(), wake);
    attached.map_err(|error| format!("no thread for the agent: {error}"))
}
