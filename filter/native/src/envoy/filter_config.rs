//! The configurations of the filter and of routes.

use std::io;
use std::sync::{Arc, LazyLock};

use super::body_router::WorkerRouter;
use super::configured::{CountedFilter, CountedRoute};
use super::filter_pool::{FilterPool, Worker, define_metrics};
use super::model_list::PoolModels;
use super::per_worker::PerWorker;
use crate::abi::ConfigHandle;
use crate::agent::PoolHandle;
use crate::agent::models::ModelsHandle;
use crate::agent::wakes::{self, WakeSubscription};
use crate::config::{ChainConfig, ModuleConfig};
use crate::metrics::flusher::Flusher;
use crate::process::proxy_name::proxy_name;
use crate::process::registry::ProcessRegistry;

/// The event of all wakes.
const WAKE: u64 = 0;

/// A filter's configuration in use.
#[derive(Debug)]
pub(crate) struct FilterConfig {
    workers: PerWorker<WorkerConfig>,
    flusher: Arc<Flusher>,
    _wakes: WakeSubscription,
    _picker: Option<Arc<ConfiguredPicker>>,
    _counted: CountedFilter,
}

/// A filter's configuration as one worker uses it.
#[derive(Debug)]
pub(crate) struct WorkerConfig {
    pub(super) flusher: Arc<Flusher>,
    /// `None`: the picker is off, unless the request's route has one.
    pub(super) worker: Option<Arc<Worker>>,
    /// `None`: requests have their routes without their bodies.
    pub(super) router: Option<WorkerRouter>,
    /// `None`: requests for lists of models are passed on.
    pub(super) models: Option<Arc<PoolModels>>,
}

/// The pickers of the process, by their configurations: hundreds of routes may have the same one, and an
/// update of the routes has them again.
static PICKERS: LazyLock<ProcessRegistry<Box<[u8]>, ConfiguredPicker>> = LazyLock::new(ProcessRegistry::new);

/// The picker of a configuration.
#[derive(Debug)]
struct ConfiguredPicker {
    pool: Arc<FilterPool>,
    handle: PoolHandle,
}

impl ConfiguredPicker {
    /// Takes the configuration of this text into use; `None` if the picker is off. The error is the reason of
    /// a refusal.
    fn new(json: &[u8], config: Option<ModuleConfig>) -> Result<Option<Arc<Self>>, String> {
        let Some(config) = config else { return Ok(None) };
        let start = || {
            let handle = PoolHandle::new(&config.engine.pool, config.agent.as_ref(), &proxy_name())?;
            Ok(Self { pool: FilterPool::new(&config, &handle), handle })
        };
        let picker = PICKERS.get_or_make(json.into(), start).map_err(|error| without_thread(&error))?;
        // Of a known picker too: another configuration may have set other endpoints since.
        if let Some(pool) = config.engine.static_pool() {
            picker.handle.set(&pool);
        }
        Ok(Some(picker))
    }
}

fn without_thread(error: &io::Error) -> String {
    format!("no thread for the agent: {error}")
}

impl FilterConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(handle: &mut ConfigHandle<'_>, json: &[u8]) -> Result<Self, String> {
        let ChainConfig { picker, body_routing, model_list } =
            ChainConfig::parse(json).map_err(|error| error.to_string())?;
        let counted = CountedFilter::new(picker.as_ref().map(|config| &*config.engine.pool));
        let picker = ConfiguredPicker::new(json, picker)?;
        let models = body_routing.as_ref().map(|routing| ModelsHandle::of(&routing.agent));
        let routing = body_routing.zip(models.transpose().map_err(|error| without_thread(&error))?);
        let listed = model_list.as_ref().map(PoolModels::new).transpose();
        let listed = listed.map_err(|error| without_thread(&error))?.map(Arc::new);
        let scheduler = handle.scheduler().ok_or("Envoy has no scheduler for the configuration")?;
        // Routes may have pickers also where this configuration has none.
        define_metrics();
        let flusher = Flusher::new(handle);
        let workers = PerWorker::new(|index| WorkerConfig {
            flusher: Arc::clone(&flusher),
            worker: picker.as_ref().map(|picker| Arc::clone(picker.pool.worker(index))),
            router: routing.as_ref().map(|(config, models)| WorkerRouter::new(config, models)),
            models: listed.clone(),
        });
        let wakes = wakes::subscribe(Box::new(move || scheduler.commit(WAKE)));
        Ok(Self { workers, flusher, _wakes: wakes, _picker: picker, _counted: counted })
    }

    /// The configuration as this worker uses it.
    pub(crate) fn worker(&self, index: u32) -> &Arc<WorkerConfig> {
        self.workers.get(index)
    }

    /// A wake has reached the main thread.
    pub(crate) fn on_scheduled(&self, handle: &mut ConfigHandle<'_>) {
        self.flusher.tick(handle);
    }
}

/// The configuration of a route, or of a cluster among a route's weighted clusters, in use.
#[derive(Debug)]
pub(crate) struct RouteConfig {
    /// `None`: the picker is off for the route.
    picker: Option<Arc<ConfiguredPicker>>,
    _counted: CountedRoute,
}

impl RouteConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(json: &[u8]) -> Result<Self, String> {
        let config = ModuleConfig::parse(json).map_err(|error| error.to_string())?;
        let counted = CountedRoute::new(config.as_ref().map(|config| &*config.engine.pool));
        ConfiguredPicker::new(json, config).map(|picker| Self { picker, _counted: counted })
    }

    /// The pool of a worker; `None`: the picker is off.
    pub(super) fn worker(&self, index: u32) -> Option<&Arc<Worker>> {
        self.picker.as_ref().map(|picker| picker.pool.worker(index))
    }
}
