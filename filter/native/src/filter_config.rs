//! The configurations of the filter and of routes.

use std::sync::Arc;

use crate::abi::{ConfigHandle, concurrency};
use crate::attachment::Attachment;
use crate::config::ModuleConfig;
use crate::metrics::Flusher;
use crate::picker::{Picker, Worker};
use crate::proxy_name::proxy_name;

/// The event of all wakes.
const WAKE: u64 = 0;

/// A filter's configuration in use.
#[derive(Debug)]
pub(crate) struct FilterConfig {
    picker: Arc<Picker>,
    flusher: Arc<Flusher>,
    _attachment: Attachment,
}

impl FilterConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(handle: &mut ConfigHandle<'_>, json: &[u8]) -> Result<Self, String> {
        let config = ModuleConfig::parse(json).map_err(|error| error.to_string())?;
        let scheduler = handle.scheduler().ok_or("Envoy has no scheduler for the configuration")?;
        let wake = Box::new(move || scheduler.commit(WAKE));
        let attachment = attach(&config, wake)?;
        Picker::register_metrics(&config.engine.pool);
        let flusher = Flusher::new(handle);
        let picker = Picker::new(&config, &attachment, concurrency(), Some(&flusher));
        Ok(Self { picker, flusher, _attachment: attachment })
    }

    /// The pool of a worker.
    pub(crate) fn worker(&self, index: u32) -> &Arc<Worker> {
        self.picker.worker(index)
    }

    /// A wake has reached the main thread.
    pub(crate) fn on_scheduled(&self, handle: &mut ConfigHandle<'_>) {
        self.flusher.tick(handle);
    }
}

/// The configuration of a route in use.
#[derive(Debug)]
pub(crate) struct RouteConfig {
    picker: Arc<Picker>,
    _attachment: Attachment,
}

impl RouteConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(json: &[u8]) -> Result<Self, String> {
        let config = ModuleConfig::parse(json).map_err(|error| error.to_string())?;
        let attachment = attach(&config, Box::new(|| {}))?;
        let picker = Picker::new(&config, &attachment, concurrency(), None);
        Ok(Self { picker, _attachment: attachment })
    }

    /// The pool of a worker.
    pub(crate) fn worker(&self, index: u32) -> &Arc<Worker> {
        self.picker.worker(index)
    }
}

fn attach(config: &ModuleConfig, wake: crate::users::Wake) -> Result<Attachment, String> {
    let attached = Attachment::new(&config.engine.pool, &config.agent, &proxy_name(), wake);
    attached.map_err(|error| format!("no thread for the agent: {error}"))
}
