//! A VM as a worker: its pool, its part in the requests to the agent for all VMs, and the steps of every
//! tick.

use core::cell::RefCell;
use core::fmt;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use endpoint_picker_engine::agent::{
    CallError, CallId, PollTimes, RecentErrors, Reporter, SnapshotClient, TopologyLog,
};
use endpoint_picker_engine::config::{Config, ConfigError};
use endpoint_picker_engine::exchange::refuse_withheld_body;
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::link::{Call, Link};
use endpoint_picker_engine::pool_view::snapshot::{self, ReadError};
use endpoint_picker_engine::pool_view::{PoolView, TopologyRefusal};
use endpoint_picker_engine::proxy::ProxyError;
use endpoint_picker_engine::record::RecordClient;
use endpoint_picker_engine::sharing::SharingClient;
use endpoint_picker_engine::static_pool::StaticPool;
use endpoint_picker_engine::worker_pool::WorkerPool;
use endpoint_picker_engine::worker_pool::store::PoolCopy;
use endpoint_picker_wire::statistics::Count;
use endpoint_picker_workers::{Lease, Replica, SharedSender, SharedSnapshot, next_worker_number};

use crate::body_watch::BodyWatch;
use crate::host::{self, Envoy};
use crate::pool::{HELD_BODIES, LinkedVms, Pool};

/// Times of a poll. A long wait keeps polls few while nothing changes.
const POLL: PollTimes = PollTimes { wait: Duration::from_secs(5), timeout: Duration::from_secs(10) };

/// One VM as a worker.
pub(crate) struct Worker {
    pool: Rc<RefCell<Pool>>,
    bodies: Rc<RefCell<BodyWatch>>,
    /// `None`: the configuration lists the pool's endpoints.
    agent_cluster: Option<Rc<str>>,
    snapshot: SharedSnapshot,
    lease: Lease,
    link: Link,
    /// The link's number of each call in flight, by Envoy's.
    calls: Vec<(u32, CallId)>,
    /// This proxy as a sender of changes, while this VM exchanges them for all VMs.
    sender: Option<SharedSender>,
    proxy_name: String,
    /// Number that no other VM has.
    seed: u64,
    errors: RecentErrors,
    topology_log: TopologyLog,
    /// The pool without an agent, until this VM has logged it for all VMs.
    unlogged: Option<StaticPool>,
}

/// Why a worker does not start.
#[derive(Debug)]
pub(crate) enum StartError {
    Host(ProxyError),
    Config(ConfigError),
    Endpoints(TopologyRefusal),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
            Self::Endpoints(error) => error.fmt(f),
        }
    }
}

impl From<ProxyError> for StartError {
    fn from(error: ProxyError) -> Self {
        Self::Host(error)
    }
}

impl Worker {
    /// Starts a worker with the filter's configuration and a tick of this period.
    pub(crate) fn start(tick: Duration) -> Result<Self, StartError> {
        let config = Config::parse(&host::plugin_configuration()?).map_err(StartError::Config)?;
        let number = next_worker_number(&Envoy)?;
        let now = host::now()?;
        host::set_tick_period(tick)?;
        // VMs start at almost the same time; the number keeps their random sequences apart.
        let seed = u64::from(now.subsec_nanos()) ^ (now.as_secs() << 30) ^ number.rotate_left(48);
        let proxy_name = host::node_id().unwrap_or_else(|error| {
            log::warn!("{error}; reports to the agent do not name this proxy");
            None
        });
        let name = &config.pool;
        let proxy_name = proxy_name.unwrap_or_default();
        let replica = Replica::new(Envoy, name, number)?;
        let mut link = Link::new(1);
        let static_pool = config.static_pool();
        let agent_cluster = if static_pool.is_some() {
            None
        } else {
            let reporter = Reporter::new(name, proxy_name.clone(), Form::Wasm, seed);
            link.start_polls(SnapshotClient::new(name, POLL), reporter, RecordClient::new(name));
            Some(config.required_agent_cluster().map_err(StartError::Config)?.into())
        };
        let snapshot = SharedSnapshot::new(name);
        let lease = Lease::new(&Envoy, name, number)?;
        let pool = WorkerPool::new(config, PoolCopy::new(replica), &Envoy, Form::Wasm, seed);
        let mut worker = Self {
            agent_cluster,
            snapshot,
            lease,
            link,
            calls: Vec::new(),
            sender: None,
            proxy_name,
            seed,
            pool: Rc::new(RefCell::new(pool.with_held_bodies(&HELD_BODIES))),
            bodies: Rc::default(),
            errors: RecentErrors::default(),
            topology_log: TopologyLog::default(),
            unlogged: None,
        };
        if let Some(pool) = static_pool {
            let view = pool.view(&PoolView::default()).map_err(StartError::Endpoints)?;
            worker.pool.borrow_mut().adopt(Arc::new(view));
            worker.unlogged = Some(pool);
        }
        // A VM that replaces another one has the newest snapshot from its first request on.
        let adopted = worker.adopt_newest(now).map_err(|error| error.to_string());
        worker.log_new(vec![adopted], now);
        Ok(worker)
    }

    /// The watch over the bodies of all requests of this VM.
    pub(crate) fn bodies(&self) -> Rc<RefCell<BodyWatch>> {
        Rc::clone(&self.bodies)
    }

    pub(crate) fn pool(&self) -> Rc<RefCell<Pool>> {
        Rc::clone(&self.pool)
    }

    /// Takes all steps that are due. An error in one step does not prevent the others.
    pub(crate) fn tick(&mut self) {
        let now = host::now();
        let results = match now.clone() {
            Ok(now) => {
                let text = |error: ProxyError| error.to_string();
                let adopted = self.adopt_newest(now).map_err(|error| error.to_string());
                // After the snapshot: entries of the log about endpoints that this VM does not have yet would
                // be lost.
                let kept_up = self.pool.borrow_mut().store_mut().ledger_mut().keep_up(now).map_err(text);
                let kept = self.lease.keep(&Envoy, now).map_err(text);
                let is_leader = self.lease.is_held(now);
                let led = if is_leader {
                    self.lead(now).map_err(text)
                } else {
                    self.follow(now);
                    Ok(())
                };
                self.pool.borrow_mut().publish_metrics(is_leader, now);
                vec![adopted, kept_up, kept, led]
            }
            Err(error) => vec![Err(error.to_string())],
        };
        self.log_new(results, now.unwrap_or_default());
    }

    /// Rejects requests whose bodies Envoy withholds from the filter. It must be the last step of a tick,
    /// because further calls to Envoy are about those requests.
    pub(crate) fn refuse_withheld_bodies(&mut self) {
        let stuck = self.bodies.borrow_mut().tick();
        let pool = self.pool.borrow();
        for context in stuck {
            if host::use_context(context)
                && let Err(error) = refuse_withheld_body(&pool, &mut Envoy)
            {
                log::debug!("{error}");
            }
        }
    }

    /// Adopts the newest published snapshot, if there is an agent and a newer one.
    fn adopt_newest(&mut self, now: Duration) -> Result<(), ReadError> {
        if self.agent_cluster.is_none() {
            return Ok(());
        }
        let mut pool = self.pool.borrow_mut();
        let view = pool.view();
        let own = view.versions().map(|versions| (versions.readings, view.arrived()));
        let newer = self.snapshot.newer(&Envoy, own, now).map_err(ReadError::Proxy)?;
        let Some(newer) = newer else { return Ok(()) };
        let topology = || self.snapshot.topology(&Envoy);
        match snapshot::read(&view, newer.bytes.into(), newer.arrived, topology) {
            Ok(None) => {}
            Ok(Some(newer)) => {
                let newer = Arc::new(newer);
                // All VMs adopt it; one logs it.
                if pool.adopt(Arc::clone(&newer)) && self.lease.is_held(now) {
                    pool.metrics.count(Count::TopologyChanges);
                    self.topology_log.log(&newer, now);
                }
            }
            Err(error) => {
                // Without this, it would be decoded and refused again at every tick.
                self.snapshot.refuse(newer.version);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Sends the requests to the agent that are due for all VMs.
    fn lead(&mut self, now: Duration) -> Result<(), ProxyError> {
        if let Some(pool) = self.unlogged.take() {
            log::info!("{pool}");
        }
        if self.agent_cluster.is_none() {
            return Ok(());
        }
        let taken_over = self.take_over_sharing();
        self.send_due(now, |link, pool, now| link.due(pool, now));
        // A VM that takes over continues there, so it does not get all changes again.
        if let (Some(sender), Some(sync)) = (&mut self.sender, self.link.sync()) {
            sender.store(&Envoy, sync.positions())?;
        }
        taken_over
    }

    /// Sends the requests to the agent that `due` returns.
    fn send_due(
        &mut self,
        now: Duration,
        mut due: impl FnMut(&mut Link, &mut LinkedVms<'_>, Duration) -> Option<Call>,
    ) {
        let Self { pool, snapshot, link, calls, agent_cluster, .. } = self;
        let Some(agent_cluster) = agent_cluster else { return };
        let mut linked = LinkedVms { pool: &mut pool.borrow_mut(), snapshot };
        while let Some(call) = due(link, &mut linked, now) {
            match host::call_agent(agent_cluster, &call.request) {
                Ok(number) => calls.push((number, call.id)),
                Err(error) => {
                    link.finish(call.id, Err(error), &mut linked, now);
                }
            }
        }
    }

    /// Leaves the requests to the agent to another VM, except this VM's own recorded requests.
    fn follow(&mut self, now: Duration) {
        self.send_due(now, |link, pool, now| link.due_record(pool, now));
        if self.sender.take().is_some() {
            let Self { pool, snapshot, link, .. } = self;
            link.stop_sync(&mut LinkedVms { pool: &mut pool.borrow_mut(), snapshot });
        }
    }

    /// Begins to exchange changes with other proxies, where the VM before has ended.
    fn take_over_sharing(&mut self) -> Result<(), ProxyError> {
        if self.sender.is_none() {
            let name = &self.pool.borrow().config.pool;
            let sender = SharedSender::take_over(&Envoy, name, self.seed)?;
            let positions = sender.positions().clone();
            let client = SharingClient::new(name, self.proxy_name.clone(), sender.identity(), positions);
            self.link.start_sync(client);
            self.sender = Some(sender);
        }
        Ok(())
    }

    /// Takes the response of the agent that is being delivered. `headers` is the number of its headers as
    /// Envoy reports it.
    pub(crate) fn take_response(&mut self, number: u32, headers: usize) {
        let Some(index) = self.calls.iter().position(|(other, _)| *other == number) else { return };
        let (_, call) = self.calls.swap_remove(index);
        let now = host::now();
        // Without a time, a response cannot be used: its arrival would count as 1970.
        let response = now.clone().map_err(CallError::from).and_then(|_| host::agent_response(headers));
        let is_next_due = {
            let Self { pool, snapshot, link, .. } = &mut *self;
            let mut linked = LinkedVms { pool: &mut pool.borrow_mut(), snapshot };
            link.finish(call, response, &mut linked, now.unwrap_or_default())
        };
        // At once, not at the next tick: the snapshot is adopted here, and the next long poll begins.
        if is_next_due {
            self.tick();
        }
    }

    /// Logs errors that did not occur lately.
    fn log_new(&mut self, results: Vec<Result<(), String>>, now: Duration) {
        for error in results.into_iter().filter_map(Result::err) {
            if self.errors.is_new(error.clone(), now) {
                log::warn!("{error}");
            }
        }
    }
}
