//! A VM's copy of the pool, and what it decides with.

use core::net::SocketAddr;
use core::time::Duration;
use std::rc::Rc;

use endpoint_picker::cycle::{Load, Request, View};
use endpoint_picker::decision::{Charge, Decision, FailureMode, Outcome};
use endpoint_picker::in_flight::InFlight;
use endpoint_picker::memory::Memory;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::policy::Policy;
use endpoint_picker::pool::Pool;
use endpoint_picker::reading::Reading;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_wire as wire;

use crate::board::Board;
use crate::host;
use crate::policy;

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
    },
    /// Everything else, as decided.
    Other(Outcome),
}

/// What a request added to an endpoint's load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charged {
    address: SocketAddr,
    until_first_byte: Load,
    until_end: Load,
}

impl PoolState {
    pub(crate) fn new(failure_mode: FailureMode, seed: u64) -> Self {
        let pipeline = Pipeline::default();
        Self {
            memories: pipeline.new_memories(None),
            marks_answers: marks_answers(&pipeline),
            pipeline,
            policy: Rc::default(),
            failure_mode,
            known: Known::default(),
            in_flight: InFlight::default(),
            rng: SplitMix64::new(seed),
        }
    }

    /// The versions of topology and readings this VM has.
    pub(crate) fn versions(&self) -> Option<(u64, u64)> {
        self.known.versions
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
        for event in &decision.events {
            self.memories[event.plugin].apply(&event.change);
        }
        self.verdict(decision)
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
        let mut charges = Vec::with_capacity(decision.charges.len());
        for charge in decision.charges {
            let address = pool.endpoints()[charge.endpoint].address();
            let Charge { until_first_byte, until_end, .. } = charge;
            self.in_flight.add(pool, address, until_first_byte);
            self.in_flight.add(pool, address, until_end);
            charges.push(Charged { address, until_first_byte, until_end });
        }
        Verdict::Route { headers, answer_headers: decision.response_headers, charges }
    }

    /// The answer has begun: prompts are computed, and stages before the answering one are over.
    pub(crate) fn first_byte(&mut self, charges: &mut [Charged]) {
        for charge in &mut *charges {
            let over = core::mem::take(&mut charge.until_first_byte);
            self.in_flight.subtract(&self.known.pool, charge.address, over);
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
        let endpoint = from()?.and_then(|address| self.known.pool.index_of(address));
        Ok(endpoint.map_or_else(Vec::new, |index| {
            self.pipeline.response_headers(&self.known.pool.endpoints()[index]).collect()
        }))
    }

    /// The request is over.
    pub(crate) fn end(&mut self, charges: &mut Vec<Charged>) {
        for charge in charges.drain(..) {
            self.in_flight.subtract(&self.known.pool, charge.address, charge.until_first_byte);
            self.in_flight.subtract(&self.known.pool, charge.address, charge.until_end);
        }
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
        let pipeline = policy::pipeline(policy.picker_config.take())?;
        let moves = self.known.pool.moves_to(&pool);
        self.memories = pipeline.new_memories(Some((&self.pipeline, core::mem::take(&mut self.memories))));
        for memory in &mut self.memories {
            memory.remap(&moves);
        }
        self.in_flight.adopt(&pool);
        self.marks_answers = marks_answers(&pipeline);
        self.pipeline = pipeline;
        self.policy = Rc::new(wire::policy_into_core(policy));
        self.known = Known { pool, ..Known::default() };
        Ok(())
    }
}

fn marks_answers(pipeline: &Pipeline) -> bool {
    pipeline.plugins().iter().any(|instance| instance.plugin.as_response_marker().is_some())
}
