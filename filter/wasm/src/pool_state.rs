//! A VM's copy of the pool, and what it decides with.

mod in_flight;

use core::time::Duration;
use std::rc::Rc;

use endpoint_picker::body::Options;
use endpoint_picker::cycle::{Headers, Load, Request, View};
use endpoint_picker::decision::{Decision, FailureMode, Outcome, Reservation};
use endpoint_picker::explanation::Explanation;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::policy::Policy;
use endpoint_picker::pool::Pool;
use endpoint_picker::reading::Reading;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_wire as wire;
use endpoint_picker_wire::report::EndpointReport;

use crate::board::Board;
use crate::compiled::Compiled;
use crate::one_view::OneView;
use crate::pick::{Charged, Pick};
use crate::policy;
use crate::roster::News;
use crate::shared_log::SharedLog;
use crate::trial::Trial;
use crate::verdict::{Act, How, LONGEST_EXPLANATION, Verdict};

/// Everything one VM knows of its pool.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) pipeline: Pipeline,
    pub(crate) policy: Rc<Policy>,
    pub(crate) rng: SplitMix64,
    trial: Trial,
    /// Until the policy says.
    failure_mode: FailureMode,
    known: Known,
    /// A version of the readings that cannot be used.
    refused: Option<u64>,
    view: OneView,
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

/// What a newer topology changed.
#[derive(Debug)]
pub(crate) struct TopologyChange {
    /// A line for the log.
    pub(crate) summary: String,
    /// The `ip:port` of each endpoint that left the pool.
    pub(crate) left: Vec<String>,
}

impl PoolState {
    pub(crate) fn new(failure_mode: FailureMode, seed: u64, vm: u64, log: SharedLog) -> Self {
        let pipeline = Pipeline::default();
        Self {
            view: OneView::new(vm, log, pipeline.new_states()),
            marks_answers: marks_answers(&pipeline),
            pipeline,
            policy: Rc::default(),
            failure_mode,
            known: Known::default(),
            refused: None,
            rng: SplitMix64::new(seed),
            trial: Trial::new(seed),
        }
    }

    /// The versions of topology and readings this VM has.
    pub(crate) fn versions(&self) -> Option<(u64, u64)> {
        self.known.versions
    }

    /// Whether another configuration is tried beside the acting one.
    pub(crate) fn tries_a_shadow(&self) -> bool {
        self.trial.pipeline().is_some()
    }

    /// What was sent to each endpoint, what of it is in flight, and whether the endpoint is avoided now.
    pub(crate) fn tallies(&self, now: Duration) -> impl Iterator<Item = EndpointReport> {
        let view = self.view.known();
        let counts = view.in_flight.loads().iter().zip(view.in_flight.picks());
        self.known.pool.endpoints().iter().zip(counts).map(move |(endpoint, (load, &picks))| {
            let (endpoint, Load { requests, tokens }) = (endpoint.key(), *load);
            EndpointReport {
                endpoint,
                picks,
                requests,
                tokens,
                failing: view.avoidance.is_avoided(endpoint, now),
            }
        })
    }

    /// What is in flight at each endpoint, of all VMs together: its `ip:port`, requests and tokens.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (&str, u64, u64)> + Clone {
        let loads = self.view.known().in_flight.loads();
        let endpoints = self.known.pool.endpoints().iter().zip(loads);
        endpoints.map(|(endpoint, load)| (endpoint.printed_address(), load.requests, load.tokens))
    }

    /// The `ip:port` of an endpoint of the pool.
    pub(crate) fn address_of(&self, endpoint: u64) -> Option<&str> {
        let pool = &self.known.pool;
        pool.index_of(endpoint).map(|index| pool.endpoints()[index].printed_address())
    }

    /// When the newest snapshot arrived; `None` until there is one.
    pub(crate) fn arrived(&self) -> Option<Duration> {
        self.known.versions.map(|_| self.known.arrived)
    }

    /// What happens to requests when there is nothing to decide by.
    pub(crate) fn failure_mode(&self) -> FailureMode {
        self.policy.failure_mode.unwrap_or(self.failure_mode)
    }

    /// How the body of a request with these headers is read.
    pub(crate) fn body_options(&self, headers: Headers<'_>) -> Options {
        let options = self.pipeline.body_options(headers);
        let tried = self.trial.pipeline().map_or(0, Pipeline::max_prompt_bytes);
        Options { keep_bytes: options.keep_bytes.max(tried), ..options }
    }

    /// Decides, remembers where the request goes, and counts it as in flight there.
    pub(crate) fn decide(&mut self, request: &Request<'_>, how: How, now: Duration) -> Verdict {
        if self.known.versions.is_none() {
            return self.failure_mode().without_snapshot(&request.subset, &mut self.rng).into();
        }
        self.view.sync(&self.known.pool);
        let pending = self.view.pending();
        let verdict = self.try_to_decide(request, how, now);
        if self.view.commit(&self.known.pool) {
            return verdict;
        }
        // Another worker has decided at the same time, maybe for the same endpoint. Once is enough: where this happens all the
        // time, one request more or less is not seen.
        self.view.withdraw(pending);
        let verdict = self.try_to_decide(request, how, now);
        self.view.flush(&self.known.pool);
        verdict
    }

    /// Decides by what is known, with what to append pending.
    fn try_to_decide(&mut self, request: &Request<'_>, how: How, now: Duration) -> Verdict {
        let shared = self.view.known();
        let view = View {
            pool: &self.known.pool,
            readings: &self.known.readings,
            readings_arrived: self.known.arrived,
            in_flight: shared.in_flight.loads(),
            avoided: shared.avoidance.avoided(),
            states: &shared.states,
        };
        let decision = if how.has_body {
            self.pipeline.decide(request, &view, now, &mut self.rng)
        } else {
            self.pipeline.decide_without_body(request, &view, now, &mut self.rng)
        };
        let acted = (&self.pipeline, &decision);
        let opinion = how.has_body.then(|| self.trial.opinion(acted, request, &view, now)).flatten();
        let explanation = how.explains.then(|| {
            let difference = opinion.as_ref().and_then(|opinion| opinion.difference(&self.known.pool));
            let last = difference.unwrap_or_default();
            let why = Explanation::of(&decision, &self.pipeline, request, &view, now);
            why.within(LONGEST_EXPLANATION.saturating_sub(last.len())) + &last
        });
        let act = self.act(decision, request.subset.is_hint(), now);
        let shadow_agrees = opinion.as_ref().map(|opinion| opinion.agrees);
        for event in opinion.iter().flat_map(|opinion| &opinion.decision.events) {
            self.view.remember(event, &self.known.pool);
        }
        Verdict { act, explanation, shadow_agrees, models: None }
    }

    fn act(&mut self, decision: Decision, is_hint: bool, now: Duration) -> Act {
        let tells_scores = self.policy.emit_endpoint_scores;
        let scores = tells_scores.then(|| policy::scores(&decision, &self.known.pool)).flatten();
        let endpoints = match decision.outcome {
            Outcome::Route(endpoints) => endpoints,
            other => return Act::Other(other),
        };
        let pool = &self.known.pool;
        let addresses: Vec<_> =
            endpoints.iter().map(|&endpoint| pool.endpoints()[endpoint].printed_address()).collect();
        let mut headers = decision.headers;
        headers.extend(crate::headers::destination(&addresses, is_hint));
        headers.extend(scores.map(|scores| (crate::headers::SCORES, scores)));
        for event in &decision.events {
            self.view.remember(event, pool);
        }
        let mut reservations = Vec::with_capacity(decision.reservations.len());
        for Reservation { endpoint, prefill, response } in decision.reservations {
            let endpoint = pool.endpoints()[endpoint].key();
            let mut load = prefill;
            load += response;
            self.view.start(endpoint, load);
            reservations.push(Charged { endpoint, prefill, response });
        }
        let destinations = endpoints.iter().map(|&endpoint| pool.endpoints()[endpoint].key()).collect();
        let pick = Pick { destinations, reservations, at: now };
        let Decision { response_headers: answer_headers, prompt, is_stale, .. } = decision;
        Act::Route { headers, answer_headers, pick, prompt, is_stale }
    }

    /// Requests in flight at the pool's endpoints, of all VMs together.
    pub(crate) fn requests_in_flight(&self) -> u64 {
        self.view.known().in_flight.loads().iter().map(|load| load.requests).sum()
    }

    /// Keeps up with the other VMs, also while there are no requests. `news` is what the roster told, if it was looked at.
    /// Returns whether this VM has missed something and must ask the others.
    pub(crate) fn keep_up(&mut self, news: Option<News>) -> bool {
        self.known.versions.is_some() && self.view.keep_up(news, &self.known.pool)
    }

    /// Takes over what the board shows, if it is newer. Returns what changed in the topology.
    ///
    /// A version that cannot be used changes nothing; the error gives the reason, and the version is not read again. One that
    /// arrived later than now did so before the clock was set back; from now on it counts as having arrived now.
    pub(crate) fn catch_up(
        &mut self,
        board: &Board,
        now: Duration,
    ) -> Result<Option<TopologyChange>, String> {
        let version = board.version().map_err(|error| error.to_string())?;
        let known = self.known.versions.filter(|_| self.known.arrived <= now).map(|(_, readings)| readings);
        if version.is_none() || version == known || version == self.refused {
            return Ok(None);
        }
        let Some((arrived, bytes)) = board.readings().map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let snapshot = wire::decode(&bytes).map_err(|error| error.to_string());
        let taken = snapshot.and_then(|snapshot| self.take(snapshot, board, arrived.min(now)));
        taken.inspect_err(|_| self.refused = version)
    }

    fn take(
        &mut self,
        snapshot: wire::v1::Snapshot,
        board: &Board,
        arrived: Duration,
    ) -> Result<Option<TopologyChange>, String> {
        let mut change = None;
        if self.known.versions.map(|(topology, _)| topology) != Some(snapshot.topology_version) {
            let bytes = board.topology().map_err(|error| error.to_string())?;
            let carrier = wire::decode(&bytes).map_err(|error| error.to_string())?;
            let Some(topology) =
                carrier.topology.filter(|_| carrier.topology_version == snapshot.topology_version)
            else {
                // Another VM is between two writes; the next look finds both.
                return Ok(None);
            };
            change = Some(self.adopt(Compiled::new(topology)?));
        }
        self.known.versions = Some((snapshot.topology_version, snapshot.readings_version));
        self.known.readings =
            snapshot.readings.into_iter().map(|reading| wire::reading_into_core(reading, arrived)).collect();
        self.known.arrived = arrived;
        self.view.report_restarts(&self.known.readings, &self.known.pool);
        Ok(change)
    }

    /// Puts endpoints and policy in force. What is known about endpoints that stay, and what plugins that stay remember,
    /// is kept.
    fn adopt(&mut self, Compiled { pool, pipeline, mut policy }: Compiled) -> TopologyChange {
        self.trial.adopt(&mut policy, &pipeline);
        let policy = wire::policy_into_core(policy);
        let pipelines = core::iter::once(&pipeline).chain(self.trial.pipeline());
        self.view.adopt(&self.known.pool, &pool, pipelines, policy.avoid_failing);
        self.marks_answers = marks_answers(&pipeline);
        self.pipeline = pipeline;
        self.policy = Rc::new(policy);
        let older = core::mem::replace(&mut self.known, Known { pool, ..Known::default() }).pool;
        let newer = &self.known.pool;
        let left = older.endpoints().iter().filter(|endpoint| newer.index_at(endpoint.address()).is_none());
        TopologyChange {
            summary: format!("pool {} has {} endpoints", newer.name(), newer.endpoints().len()),
            left: left.map(|endpoint| endpoint.printed_address().to_owned()).collect(),
        }
    }
}

fn marks_answers(pipeline: &Pipeline) -> bool {
    pipeline.marks_responses()
}
