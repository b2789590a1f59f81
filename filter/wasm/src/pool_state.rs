//! A VM's copy of the pool, and what it decides with.

use core::net::SocketAddr;
use core::time::Duration;
use std::rc::Rc;

use endpoint_picker::cycle::{Load, Request, View};
use endpoint_picker::decision::{Charge, Decision, FailureMode, Outcome};
use endpoint_picker::in_flight::InFlight;
use endpoint_picker::memory::Memory;
use endpoint_picker::picks::Picks;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::policy::Policy;
use endpoint_picker::pool::Pool;
use endpoint_picker::reading::Reading;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_wire as wire;
use endpoint_picker_wire::report::EndpointReport;
use endpoint_picker_wire::shared::Entry;
use endpoint_picker_wire::shared::entry::What;

use crate::board::Board;
use crate::roster::News;
use crate::shared_log::SharedLog;
use crate::{entries, host, policy};

/// Everything one VM knows of its pool.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) pipeline: Pipeline,
    pub(crate) policy: Rc<Policy>,
    pub(crate) rng: SplitMix64,
    /// Until the policy says.
    failure_mode: FailureMode,
    known: Known,
    memories: Vec<Memory>,
    in_flight: InFlight,
    picks: Picks,
    /// This VM's number.
    vm: u64,
    /// What the VMs of this Envoy tell each other.
    log: SharedLog,
    /// Another VM has asked for all that this one has under way.
    owes_loads: bool,
    /// Whether any plugin has a header for answers.
    marks_answers: bool,
}

/// The pool as the newest good snapshot described it.
#[derive(Debug, Default)]
struct Known {
    pool: Pool,
    /// Of topology and readings; `None` until there is a snapshot.
    versions: Option<(u64, u64)>,
    readings: Vec<Reading>,
    arrived: Duration,
}

/// What a decision means for the request.
pub(crate) enum Verdict {
    /// Set these headers, and those on the answer; the load is to be given back.
    Route {
        headers: Vec<(&'static str, String)>,
        answer_headers: Vec<(String, String)>,
        charges: Vec<Charged>,
        /// The agent has been silent for so long that no readings were used.
        is_stale: bool,
    },
    /// Everything else, as decided.
    Other(Outcome),
}

/// What a request added to an endpoint's load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charged {
    /// The endpoint's key.
    endpoint: u64,
    until_first_byte: Load,
    until_end: Load,
}

impl PoolState {
    pub(crate) fn new(failure_mode: FailureMode, seed: u64, vm: u64, log: SharedLog) -> Self {
        let pipeline = Pipeline::default();
        Self {
            memories: pipeline.new_memories(None),
            marks_answers: marks_answers(&pipeline),
            pipeline,
            policy: Rc::default(),
            failure_mode,
            known: Known::default(),
            in_flight: InFlight::default(),
            picks: Picks::default(),
            vm,
            log,
            owes_loads: false,
            rng: SplitMix64::new(seed),
        }
    }

    /// The versions of topology and readings this VM has.
    pub(crate) fn versions(&self) -> Option<(u64, u64)> {
        self.known.versions
    }

    /// What was sent to each endpoint, and what of it is under way.
    pub(crate) fn tallies(&self) -> impl Iterator<Item = EndpointReport> {
        self.known.pool.endpoints().iter().zip(self.in_flight.loads()).map(|(endpoint, load)| {
            let (endpoint, Load { requests, tokens }) = (endpoint.key(), *load);
            EndpointReport { endpoint, picks: self.picks.of(endpoint), requests, tokens }
        })
    }

    /// What happens to requests when there is nothing to decide by.
    pub(crate) fn failure_mode(&self) -> FailureMode {
        self.policy.failure_mode.unwrap_or(self.failure_mode)
    }

    /// Decides, remembers where the request goes, and counts it as under way there.
    pub(crate) fn decide(&mut self, request: &Request<'_>, has_body: bool, now: Duration) -> Verdict {
        if self.known.versions.is_none() {
            return Verdict::Other(self.failure_mode().without_snapshot());
        }
        self.hear();
        let view = View {
            pool: &self.known.pool,
            readings: &self.known.readings,
            readings_arrived: self.known.arrived,
            in_flight: self.in_flight.loads(),
            memories: &self.memories,
        };
        let decision = if has_body {
            self.pipeline.decide(request, &view, now, &mut self.rng)
        } else {
            self.pipeline.decide_without_body(request, &view, &mut self.rng)
        };
        let verdict = self.verdict(decision);
        self.flush();
        verdict
    }

    fn verdict(&mut self, decision: Decision) -> Verdict {
        let tells_scores = self.policy.emit_endpoint_scores;
        let scores = tells_scores.then(|| policy::scores(&decision, &self.known.pool)).flatten();
        let endpoints = match decision.outcome {
            Outcome::Route(endpoints) => endpoints,
            other => return Verdict::Other(other),
        };
        let pool = &self.known.pool;
        let addresses: Vec<&str> =
            endpoints.iter().map(|&endpoint| pool.endpoints()[endpoint].printed_address()).collect();
        let mut headers = decision.headers;
        headers.push((crate::headers::DESTINATION, addresses.join(",")));
        headers.extend(scores.map(|scores| (crate::headers::SCORES, scores)));
        for event in decision.events {
            self.log.say_all(entries::remembered(self.vm, event, pool, &self.pipeline));
        }
        let mut charges = Vec::with_capacity(decision.charges.len());
        for Charge { endpoint, until_first_byte, until_end } in decision.charges {
            let endpoint = pool.endpoints()[endpoint].key();
            let mut load = until_first_byte;
            load += until_end;
            self.log.say_all([entries::started(self.vm, endpoint, load)]);
            charges.push(Charged { endpoint, until_first_byte, until_end });
        }
        Verdict::Route {
            headers,
            answer_headers: decision.response_headers,
            charges,
            is_stale: decision.is_stale,
        }
    }

    /// Requests under way at the pool's endpoints, of all VMs together.
    pub(crate) fn requests_in_flight(&self) -> u64 {
        self.in_flight.loads().iter().map(|load| load.requests).sum()
    }

    /// The answer has begun: prompts are computed, and stages before the answering one are over.
    pub(crate) fn first_byte(&mut self, charges: &mut [Charged]) {
        for charge in &mut *charges {
            let over = core::mem::take(&mut charge.until_first_byte);
            self.end_load(charge.endpoint, over);
        }
    }

    /// Headers for an answer, from the endpoint that `from` gives.
    pub(crate) fn answer_headers(
        &self,
        from: impl FnOnce() -> host::Result<Option<SocketAddr>>,
    ) -> host::Result<Vec<(String, String)>> {
        if !self.marks_answers {
            return Ok(vec![]);
        }
        let endpoint = from()?.and_then(|address| self.known.pool.index_at(address));
        Ok(endpoint.map_or_else(Vec::new, |index| {
            self.pipeline.response_headers(&self.known.pool.endpoints()[index]).collect()
        }))
    }

    /// The request is over.
    pub(crate) fn end(&mut self, charges: &mut Vec<Charged>) {
        for Charged { endpoint, until_first_byte, mut until_end } in charges.drain(..) {
            until_end += until_first_byte;
            self.end_load(endpoint, until_end);
        }
    }

    /// Said with the next decision or tick, whichever is sooner: a microsecond less for each answer.
    fn end_load(&mut self, endpoint: u64, load: Load) {
        if load != Load::default() {
            self.log.say_all([entries::ended(self.vm, endpoint, load)]);
        }
    }

    /// Takes in what the other VMs did.
    fn hear(&mut self) {
        let Self { log, memories, in_flight, picks, known, pipeline, .. } = self;
        let heard = log.hear(|entry| apply(entry, &known.pool, pipeline, memories, in_flight, picks));
        if let Err(error) = heard {
            log::error!("{error}; what other workers did is not known");
        }
    }

    /// Tells the other VMs what this one did, and takes it in with what they did in between.
    fn flush(&mut self) {
        let Self { log, memories, in_flight, picks, known, pipeline, .. } = self;
        let flushed = log.flush(|entry| apply(entry, &known.pool, pipeline, memories, in_flight, picks));
        if let Err(error) = flushed {
            log::error!("{error}; other workers do not know what this one did");
        }
    }

    /// Keeps up with the other VMs, also while there are no requests. `news` is what the roster told, if it was looked at.
    /// Returns whether this VM has missed something and must ask the others.
    pub(crate) fn keep_up(&mut self, news: Option<News>) -> bool {
        if self.known.versions.is_none() {
            return false;
        }
        self.hear();
        self.flush();
        if let Some(News { members, is_asked }) = news {
            let gone: Vec<u64> = self.in_flight.senders().filter(|vm| !members.contains(vm)).collect();
            for vm in gone {
                self.in_flight.forget(vm);
            }
            self.owes_loads |= is_asked;
        }
        // What is still unsaid is not counted yet, and must not be said before the count.
        if self.owes_loads && self.log.has_said_all() {
            self.owes_loads = false;
            self.log.say_all([entries::loads(self.vm, self.in_flight.of(self.vm))]);
            self.flush();
        }
        self.log.take_missed()
    }

    /// Takes over what the board shows, if it is newer. Returns what to log when the topology changed.
    ///
    /// Nothing changes when it cannot be read; the error says why.
    pub(crate) fn catch_up(&mut self, board: &Board) -> Result<Option<String>, String> {
        let version = board.version().map_err(|error| error.to_string())?;
        if version.is_none() || version == self.known.versions.map(|(_, readings)| readings) {
            return Ok(None);
        }
        let Some((arrived, bytes)) = board.readings().map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let snapshot = wire::decode(&bytes).map_err(|error| error.to_string())?;
        let mut news = None;
        if self.known.versions.map(|(topology, _)| topology) != Some(snapshot.topology_version) {
            let bytes = board.topology().map_err(|error| error.to_string())?;
            let carrier = wire::decode(&bytes).map_err(|error| error.to_string())?;
            let Some(topology) =
                carrier.topology.filter(|_| carrier.topology_version == snapshot.topology_version)
            else {
                // Another VM is between two writes; the next look finds both.
                return Ok(None);
            };
            self.adopt(topology)?;
            news = Some(format!(
                "pool {} has {} endpoints",
                self.known.pool.name(),
                self.known.pool.endpoints().len()
            ));
        }
        self.known.versions = Some((snapshot.topology_version, snapshot.readings_version));
        self.known.readings =
            snapshot.readings.into_iter().map(|reading| wire::reading_into_core(reading, arrived)).collect();
        self.known.arrived = arrived;
        Ok(news)
    }

    /// Puts endpoints and policy in force. What is known about endpoints that stay, and what plugins that stay remember,
    /// is kept.
    fn adopt(&mut self, mut topology: wire::v1::Topology) -> Result<(), String> {
        let mut policy = topology.policy.take().unwrap_or_default();
        let pool = wire::topology_into_core(topology).map_err(|error| error.to_string())?;
        let pipeline = policy::pipeline(&mut policy)?;
        let moves = self.known.pool.moves_to(&pool);
        self.memories = pipeline.new_memories(Some((&self.pipeline, core::mem::take(&mut self.memories))));
        for memory in &mut self.memories {
            memory.remap(&moves);
        }
        self.in_flight.adopt(&pool);
        self.picks.adopt(&pool);
        self.marks_answers = marks_answers(&pipeline);
        self.pipeline = pipeline;
        self.policy = Rc::new(wire::policy_into_core(policy));
        self.known = Known { pool, ..Known::default() };
        Ok(())
    }
}

/// Takes in one entry of the VMs' log.
fn apply(
    entry: Entry,
    pool: &Pool,
    pipeline: &Pipeline,
    memories: &mut [Memory],
    in_flight: &mut InFlight,
    picks: &mut Picks,
) {
    let Entry { vm, endpoint, what: Some(what) } = entry else { return };
    match what {
        What::Started(load) => {
            in_flight.start(vm, endpoint, entries::into_load(load));
            picks.count(endpoint);
        }
        What::Ended(load) => in_flight.end(vm, endpoint, entries::into_load(load)),
        What::Loads(loads) => {
            let loads = loads.loads.into_iter();
            in_flight.set(vm, loads.map(|it| (it.endpoint, entries::into_load(it.load.unwrap_or_default()))));
        }
        other => {
            if let Some(event) = entries::event(endpoint, other, pool, pipeline)
                && let Some(memory) = memories.get_mut(event.plugin)
            {
                memory.apply(&event.change);
            }
        }
    }
}

fn marks_answers(pipeline: &Pipeline) -> bool {
    pipeline.plugins().iter().any(|instance| instance.plugin.as_response_marker().is_some())
}
