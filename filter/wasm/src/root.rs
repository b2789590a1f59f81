//! The root context: one per filter configuration and VM.

use core::cell::RefCell;
use core::time::Duration;
use std::rc::Rc;

use endpoint_picker::period::Period;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use crate::board::Board;
use crate::config::{Config, Explain, Limits};
use crate::fetcher::{Fetcher, Poll};
use crate::host;
use crate::pool_state::{PoolState, TopologyChange};
use crate::reporter::Reporter;
use crate::roster::Roster;
use crate::shared_log::SharedLog;
use crate::stats::Stats;
use crate::stream::Stream;

/// How often a VM looks whether another has hung up a newer snapshot.
const TICK: Duration = Duration::from_millis(20);

/// Time between two tellings of the statistics that no single request is counted in.
const TELLING_PERIOD: Duration = Duration::from_secs(1);

/// Empty until Envoy hands over the configuration.
#[derive(Default)]
pub(crate) struct Root {
    running: Option<Running>,
}

struct Running {
    shared: Rc<Shared>,
    board: Board,
    fetcher: Fetcher,
    reporter: Reporter,
    roster: Roster,
    /// Until statistics are flushed next.
    stats_pause: Period,
    /// The last troubles, so that each is logged once.
    troubles: Vec<String>,
}

/// What a root context and its streams have in common.
pub(crate) struct Shared {
    pub(crate) pool_name: String,
    pub(crate) pool: RefCell<PoolState>,
    pub(crate) stats: Stats,
    pub(crate) limits: Limits,
    pub(crate) explain: Explain,
}

impl Root {
    fn start() -> Result<Running, String> {
        let refused = |error: host::HostError| error.to_string();
        let json = host::plugin_configuration().map_err(refused)?;
        let config = Config::parse(&json)?;
        let vm = Board::next_vm_number().map_err(refused)?;
        let now = host::now().map_err(refused)?;
        host::set_tick_period(TICK).map_err(refused)?;
        // VMs start at almost the same time; the number keeps their sequences apart.
        let seed = u64::from(now.subsec_nanos()) ^ (now.as_secs() << 30) ^ vm.rotate_left(48);
        let log = SharedLog::new(&config.pool).map_err(refused)?;
        let mut running = Running {
            shared: Rc::new(Shared {
                pool_name: config.pool.clone(),
                pool: RefCell::new(PoolState::new(config.failure_mode, seed, vm, log)),
                stats: Stats::new(&config.pool, config.count_tokens),
                limits: config.limits,
                explain: config.explain,
            }),
            board: Board::new(&config.pool),
            fetcher: Fetcher::new(vm, &config.pool, &config.agent_cluster),
            reporter: Reporter::new(&config.pool, &config.agent_cluster, seed),
            roster: Roster::new(&config.pool, vm),
            stats_pause: Period::default(),
            troubles: Vec::new(),
        };
        // A VM that takes the place of another one knows the pool from its first request on.
        let caught_up = running.catch_up(now);
        running.note(vec![caught_up]);
        Ok(running)
    }
}

impl Running {
    /// Does what is due. Each step is taken whatever becomes of the others.
    fn tick(&mut self) {
        let results = match host::now() {
            Ok(now) => {
                let caught_up = self.catch_up(now);
                self.tell(now);
                vec![caught_up, self.meet_others(now), self.fetch(now), self.report(now)]
            }
            Err(error) => vec![Err(error.to_string())],
        };
        self.note(results);
    }

    fn meet_others(&mut self, now: Duration) -> Result<(), String> {
        let (news, result) = match self.roster.sign_in(now) {
            Ok(news) => (news, Ok(())),
            Err(error) => (None, Err(error.to_string())),
        };
        let mut pool = self.shared.pool.borrow_mut();
        if pool.keep_up(news) {
            self.roster.ask();
        }
        self.shared.stats.in_flight.set(pool.requests_in_flight());
        result
    }

    fn fetch(&mut self, now: Duration) -> Result<(), String> {
        let have = self.shared.pool.borrow().versions();
        self.fetcher.run(&self.board, have, now).map_err(|error| error.to_string())
    }

    fn report(&mut self, now: Duration) -> Result<(), String> {
        if !self.fetcher.holds_lease(now) {
            return Ok(());
        }
        let Shared { pool, stats, .. } = &*self.shared;
        self.reporter.run(&pool.borrow(), stats, now).map_err(|error| error.to_string())
    }

    /// Tells Envoy how things stand, if it is time to: this VM what it did, and the one that fetches what all know alike.
    fn tell(&mut self, now: Duration) {
        if self.stats_pause.contains(now) {
            return;
        }
        self.stats_pause = Period::new(now, TELLING_PERIOD);
        let Shared { pool, stats, .. } = &*self.shared;
        stats.tell();
        if self.fetcher.holds_lease(now) {
            let pool = pool.borrow();
            stats.tell_in_flight(pool.in_flight());
            if let Some(arrived) = pool.arrived() {
                let age = now.saturating_sub(arrived).as_millis();
                stats.snapshot_age.set(u64::try_from(age).unwrap_or(u64::MAX));
            }
        }
    }

    fn catch_up(&mut self, now: Duration) -> Result<(), String> {
        let change = self.shared.pool.borrow_mut().catch_up(&self.board, now)?;
        if let Some(TopologyChange { summary, left }) = change {
            log::info!("{summary}");
            self.shared.stats.remove_endpoints(left.iter().map(String::as_str));
            // Others have known these endpoints for longer, and said things of them that meant nothing here.
            self.roster.ask();
        }
        Ok(())
    }

    fn finish_poll(&mut self, token: u32) {
        let now = match host::now() {
            Ok(now) => now,
            Err(error) => return self.note(vec![Err(error.to_string())]),
        };
        let have = self.shared.pool.borrow().versions();
        match self.fetcher.finish(token, &self.board, have, now) {
            Poll::News => {
                self.shared.stats.snapshots.increment();
                self.tick();
            }
            Poll::Nothing => self.tick(),
            Poll::Failed { reason, is_new } => {
                self.shared.stats.snapshot_failures.increment();
                if is_new {
                    log::warn!("no snapshot: {reason}; deciding by what is known, trying on");
                }
            }
            Poll::Unknown => {}
        }
    }

    /// Logs troubles, but for those that were there the last time.
    fn note(&mut self, results: Vec<Result<(), String>>) {
        let troubles: Vec<String> = results.into_iter().filter_map(Result::err).collect();
        for trouble in troubles.iter().filter(|trouble| !self.troubles.contains(trouble)) {
            log::warn!("{trouble}");
        }
        self.troubles = troubles;
    }
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, _headers: usize, _body_size: usize, _trailers: usize) {
        if let Some(running) = &mut self.running
            && !running.reporter.finish(token)
        {
            running.finish_poll(token);
        }
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, _size: usize) -> bool {
        match Self::start() {
            Ok(running) => {
                self.running = Some(running);
                true
            }
            Err(error) => {
                log::error!("the endpoint picker's configuration is refused: {error}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        if let Some(running) = &mut self.running {
            running.tick();
        }
    }

    fn create_http_context(&self, _id: u32) -> Option<Box<dyn HttpContext>> {
        let running = self.running.as_ref()?;
        Some(Box::new(Stream::new(Rc::clone(&running.shared))))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
