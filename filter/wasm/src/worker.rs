//! A VM as a worker: its pool, its part in polling the agent for all VMs, and what it does at every tick.

use core::cell::RefCell;
use core::fmt;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use endpoint_picker_engine::agent::{
    AgentAnswer, CallError, CallId, PollOutcome, PollTimes, RecentErrors, Reporter, SnapshotClient,
    TopologyLog,
};
use endpoint_picker_engine::config::{Config, ConfigError};
use endpoint_picker_engine::exchange::refuse_withheld_body;
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::pool_view::snapshot::{self, ReadError};
use endpoint_picker_engine::proxy::ProxyError;
use endpoint_picker_engine::worker_pool::store::PoolCopy;
use endpoint_picker_engine::worker_pool::{TopologyChange, WorkerPool};
use endpoint_picker_workers::{Lease, Replica, SharedSnapshot, next_worker_number};

use crate::body_watch::BodyWatch;
use crate::host::{self, Envoy};
use crate::sharing::Sharing;

/// Times of a poll. A long wait keeps polls few while nothing changes.
const POLL: PollTimes = PollTimes { wait: Duration::from_secs(5), timeout: Duration::from_secs(10) };

/// The pool that all streams of a VM use.
pub(crate) type Pool = WorkerPool<PoolCopy<Replica<Envoy>>, Envoy>;

/// One VM as a worker.
pub(crate) struct Worker {
    pool: Rc<RefCell<Pool>>,
    bodies: Rc<RefCell<BodyWatch>>,
    agent_cluster: String,
    snapshot: SharedSnapshot,
    lease: Lease,
    client: SnapshotClient,
    reporter: Reporter,
    sharing: Sharing,
    errors: RecentErrors,
    topology_log: TopologyLog,
}

/// Why a worker does not start.
#[derive(Debug)]
pub(crate) enum StartError {
    Host(ProxyError),
    Config(ConfigError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(error) => error.fmt(f),
            Self::Config(error) => error.fmt(f),
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
        let mut worker = Self {
            agent_cluster: config.required_agent_cluster().map_err(StartError::Config)?.to_owned(),
            snapshot: SharedSnapshot::new(name),
            lease: Lease::new(&Envoy, name, number)?,
            client: SnapshotClient::new(name, POLL),
            sharing: Sharing::new(name, proxy_name.clone(), seed),
            reporter: Reporter::new(name, proxy_name, Form::Wasm, seed),
            pool: Rc::new(RefCell::new(WorkerPool::new(
                config,
                PoolCopy::new(replica),
                &Envoy,
                Form::Wasm,
                seed,
            ))),
            bodies: Rc::default(),
            errors: RecentErrors::default(),
            topology_log: TopologyLog::default(),
        };
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

    /// Does everything that is due. An error in one step does not keep the others from being taken.
    pub(crate) fn tick(&mut self) {
        let now = host::now();
        let results = match now.clone() {
            Ok(now) => {
                let text = |error: ProxyError| error.to_string();
                let adopted = self.adopt_newest(now).map_err(|error| error.to_string());
                let kept_up = self.pool.borrow_mut().store_mut().ledger_mut().keep_up(now).map_err(text);
                let polled = self.poll(now).map_err(text);
                let is_leader = self.lease.is_held(now);
                if is_leader {
                    self.report(now);
                }
                let shared = self.share(is_leader, now).map_err(text);
                self.pool.borrow_mut().publish_metrics(is_leader, now);
                vec![adopted, kept_up, polled, shared]
            }
            Err(error) => vec![Err(error.to_string())],
        };
        self.log_new(results, now.unwrap_or_default());
    }

    /// Answers requests whose bodies Envoy keeps from the filter. Last of all, because further calls are about those requests.
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

    /// Adopts the newest published snapshot, if there is a newer one.
    fn adopt_newest(&mut self, now: Duration) -> Result<(), ReadError> {
        let mut pool = self.pool.borrow_mut();
        let view = pool.view();
        let own = view.versions().map(|versions| (versions.readings, view.arrived()));
        let newer = self.snapshot.newer(&Envoy, own, now).map_err(ReadError::Proxy)?;
        let Some(newer) = newer else { return Ok(()) };
        let topology = || self.snapshot.topology(&Envoy);
        match snapshot::read(&view, &newer.bytes, newer.arrived, topology) {
            Ok(None) => {}
            Ok(Some(view)) => {
                let version = view.versions().map_or(0, |versions| versions.topology);
                let change = pool.adopt(Arc::new(view));
                // All VMs adopt it; one logs it.
                if let Some(TopologyChange { pool: name, endpoints }) = change
                    && self.lease.is_held(now)
                {
                    pool.metrics.count_topology_changes(1);
                    self.topology_log.log(&name, endpoints, version, now);
                }
            }
            Err(error) => {
                self.snapshot.refuse(newer.version);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Keeps the lease, and with it polls the agent.
    fn poll(&mut self, now: Duration) -> Result<(), ProxyError> {
        self.lease.keep(&Envoy, now)?;
        if !self.lease.is_held(now) {
            return Ok(());
        }
        let have = self.pool.borrow().view().versions();
        if let Some(request) = self.client.next_poll(have, now) {
            match host::call_agent(&self.agent_cluster, &request) {
                Ok(call) => self.client.sent(call),
                Err(error) => self.finish_poll(Err(error), now),
            }
        }
        Ok(())
    }

    fn report(&mut self, now: Duration) {
        let report = {
            let pool = self.pool.borrow();
            self.reporter.next_report(pool.store(), || pool.totals(), now)
        };
        if let Some(request) = report {
            match host::call_agent(&self.agent_cluster, &request) {
                Ok(call) => self.reporter.sent(call),
                Err(error) => self.finish_report(Err(error), now),
            }
        }
    }

    /// Exchanges changes with other proxies for all VMs, in the VM that polls.
    fn share(&mut self, is_leader: bool, now: Duration) -> Result<(), ProxyError> {
        let Self { pool, sharing, agent_cluster, .. } = self;
        let mut pool = pool.borrow_mut();
        let replica = pool.store_mut().ledger_mut();
        if !is_leader {
            sharing.stop(replica);
            return Ok(());
        }
        let result = sharing.tick(replica, agent_cluster, now);
        let (counts, proxies) = sharing.take_counts(now);
        pool.metrics.count_sharing(counts, proxies);
        result
    }

    /// Takes the answer of the agent that is being delivered. `headers` is their number as Envoy reports it.
    pub(crate) fn take_answer(&mut self, call: CallId, headers: usize) {
        let now = host::now();
        let answer = now.clone().map_err(CallError::from).and_then(|_| host::agent_answer(headers));
        let now = now.unwrap_or_default();
        if self.reporter.awaits(call) {
            self.finish_report(answer.map(|answer| answer.status), now);
        } else if self.client.awaits(call) {
            self.finish_poll(answer, now);
        } else if self.sharing.awaits(call) {
            let mut pool = self.pool.borrow_mut();
            self.sharing.finish(pool.store_mut().ledger_mut(), answer, now);
        }
    }

    fn finish_report(&mut self, status: Result<u16, CallError>, now: Duration) {
        if let Some(problem) = self.reporter.finish(status, now) {
            log::warn!("a report failed: {problem}; the agent's page lacks picks until one succeeds");
        }
    }

    fn finish_poll(&mut self, answer: Result<AgentAnswer, CallError>, now: Duration) {
        let Self { pool, snapshot, client, .. } = self;
        let have = pool.borrow().view().versions();
        let outcome = client.finish(answer, have, now, |newer| {
            snapshot.publish(&Envoy, newer.bytes, newer.readings.readings_version, newer.has_topology, now)
        });
        match outcome {
            PollOutcome::Published => {
                pool.borrow().metrics.count_snapshots(1);
                self.tick();
            }
            PollOutcome::Unchanged => self.tick(),
            PollOutcome::Failed { error, is_new } => {
                pool.borrow().metrics.count_failed_polls(1);
                if is_new {
                    log::warn!(
                        "no snapshot: {error}; the last one stays in use. Polls continue, and further failures are only counted, in \
                         snapshot_failures"
                    );
                }
            }
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
