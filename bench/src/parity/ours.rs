//! Predicts by our rules, without Envoy, how a case ends: every endpoint that chance may choose, and the
//! totals.

use super::case::{CACHE_SOURCE, Case, ENCODE, PREFILL, RANK, Refusal, Request, SESSION, ServerState};
use crate::parity::setup::{Comparison, Setup};
use anyhow::{Result, ensure};
use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::decision::{Decision, Outcome, ProfileRun};
use endpoint_picker::headers::Headers;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::reading::{Lora, Reading};
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::request::body::{Body, BodyError, request_path};
use endpoint_picker::request::subset::Subset;
use endpoint_picker::response::outcome::RequestKind;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::{input::DecisionInput, request};
use endpoint_picker_engine::ledger::{Change, ChangeKind, LedgerStore, LocalLedger, changes_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Totals this close are equal: sums of the same terms in another order differ by less.
pub const SAME_SCORE: f64 = 1e-9;

/// Any time will do, because all readings are of the same one.
const NOW: Duration = Duration::from_secs(1_000);

/// Our picker: its rules, and the ledger that its decisions change.
#[derive(Debug)]
pub struct Ours {
    pipeline: Pipeline,
    ledger: LocalLedger,
    /// Whether a prompt counts as cached that no engine reads.
    counts_unread: bool,
    /// The words of all changes of plugins' states, by the endpoint's key.
    recorded: BTreeMap<u64, usize>,
    /// Whether chance names servers to copy KV blocks from.
    names_sources: bool,
    picker: Picker,
    addresses: Vec<String>,
}

/// The part that chance has in a pick.
#[derive(Clone, Copy, Debug)]
enum Picker {
    /// It breaks ties.
    Best,
    /// It draws in proportion to the totals.
    Weighted,
    /// It draws any.
    Random,
}

/// The ends of a case that our rules allow.
#[derive(Clone, Debug)]
pub struct Prediction {
    /// The ends themselves.
    pub expected: Expected,
    /// The reasons, endpoint by endpoint.
    pub explanation: String,
    /// The plugins' changes when the best endpoint is chosen.
    events: Vec<Change>,
    /// Changes that take its prompt back, if no engine reads it.
    unread: Vec<Change>,
    /// The load that the request adds then.
    load: Vec<Change>,
}

/// An end of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// One of the best endpoints serves.
    Served {
        /// The best, in the pool's order.
        best: Vec<usize>,
        /// The total of each endpoint; empty when there was no rating.
        totals: BTreeMap<usize, f64>,
        /// The servers that chance may name in each header; `None`: no server.
        named: BTreeMap<&'static str, Vec<Option<usize>>>,
    },
    /// Our picker responds.
    Refused(Refusal),
}

impl Ours {
    /// Our rules, with an empty ledger that changes as the EPP's state: every prompt counts as cached where
    /// it was sent.
    pub fn with_record_of_epp(comparison: &Comparison) -> Result<Self> {
        Self::new(comparison, true)
    }

    /// Our rules, with an empty ledger that changes as our filter's: a prompt that no engine reads does not
    /// count as cached.
    pub fn with_record_of_filter(comparison: &Comparison) -> Result<Self> {
        Self::new(comparison, false)
    }

    fn new(comparison: &Comparison, counts_unread: bool) -> Result<Self> {
        let (setup, pipeline) = (comparison.setup, comparison.pipeline()?);
        let endpoints = (0..setup.servers).map(|index| {
            let labels = setup.labels(index);
            Endpoint::new(format!("default/{}", Setup::endpoint_name(index)), setup.address(index), labels)
        });
        let pool = Endpoints::new("default".to_owned(), endpoints.collect())?;
        let mut ledger = LocalLedger::default();
        ledger.adopt(Arc::new(pool), [&pipeline], Duration::ZERO);
        let picker = if comparison.has_plugin("random-picker") {
            Picker::Random
        } else if comparison.has_plugin("weighted-random-picker") {
            Picker::Weighted
        } else {
            Picker::Best
        };
        Ok(Self {
            pipeline,
            ledger,
            counts_unread,
            recorded: BTreeMap::new(),
            names_sources: comparison.has_plugin("p2p-source-producer"),
            picker,
            addresses: (0..setup.servers).map(|server| setup.address(server).to_string()).collect(),
        })
    }

    /// Sends the requests that are held while the case's own is decided, and ends the requests of the case
    /// before.
    pub fn hold(&mut self, case: &Case) -> Result<()> {
        self.ledger.set_loads([]);
        for server in case.holders() {
            let held = Case { request: Request::held(server), ..case.clone() };
            let prediction = self.predict(&held)?;
            self.remember(&prediction);
            self.ledger.apply(prediction.load.into());
        }
        Ok(())
    }

    /// Predicts how a case ends; the ledger does not change.
    pub fn predict(&self, case: &Case) -> Result<Prediction> {
        let pool = self.ledger.ledger().pool();
        ensure!(case.servers.len() == pool.as_slice().len(), "every server has a state");
        let readings: Vec<Reading> = case.servers.iter().map(reading).collect();
        let view: DecisionInput<'_> = self.ledger.ledger().input(&readings, NOW);
        let sent = case.request.headers_with(&self.addresses);
        let headers = headers(&case.request.path, &sent, "0").collect();
        let request = request::Request {
            headers: Headers(&headers),
            subset: self.subset(&case.request),
            ..request::Request::default()
        };
        let mut rng = SplitMix64::new(0);
        let Some(text) = &case.request.body else {
            let mut decision = self.pipeline.decide_without_body(&request, &view, NOW, &mut rng);
            let candidates = (0..pool.as_slice().len())
                .filter(|&endpoint| request.subset.allows(&pool.as_slice()[endpoint]));
            let explanation = String::from("no body, any candidate");
            return Ok(self.prediction(case, &mut decision, candidates.collect(), explanation));
        };
        let body = match self.read(&case.request.path, request.headers, text) {
            Ok(body) => body,
            Err(error) => {
                let refusal = refusal(&error.into());
                let explanation = String::from("the body is refused");
                return Ok(Prediction {
                    expected: Expected::Refused(refusal),
                    explanation,
                    events: vec![],
                    unread: vec![],
                    load: vec![],
                });
            }
        };
        let request = request::Request {
            model: body.model.as_deref().unwrap_or_default(),
            cache_salt: body.cache_salt.as_deref(),
            prompt: Some(&body.prompt),
            max_output_tokens: body.max_output_tokens,
            ..request
        };
        let mut decision = self.pipeline.decide(&request, &view, NOW, &mut rng);
        let explanation = self.pipeline.explain(&decision, &request, &view, NOW).to_string();
        // The server to copy from is drawn by the request's id, which Envoy makes.
        let draws = if self.names_sources { DRAWS } else { 1 };
        let sources = (0..draws).map(|draw| {
            let id = format!("{:032x}", u128::from(draw) * 0x9e37_79b9_7f4a_7c15_f39c_0cb7);
            let headers = self::headers(&case.request.path, &sent, &id).collect();
            let request = request::Request { headers: Headers(&headers), ..request.clone() };
            let decision = self.pipeline.decide(&request, &view, NOW, &mut SplitMix64::new(0));
            decision.cache_source.map(|source| source.endpoint)
        });
        let sources: BTreeSet<Option<usize>> = sources.collect();
        let mut prediction = self.prediction(case, &mut decision, vec![], explanation);
        if let Expected::Served { named, .. } = &mut prediction.expected {
            named.insert(CACHE_SOURCE, sources.into_iter().collect());
        }
        Ok(prediction)
    }

    /// Whether a server's engine works for the response.
    fn is_generation(&self, request: &Request) -> bool {
        let (path, has_body) = (request.path.as_str(), request.body.is_some());
        let api = self.pipeline.api(request_path(Some(path), Headers::default()));
        api.is_ok_and(|api| RequestKind::of(api, path, has_body) == RequestKind::Generation)
    }

    /// Applies the plugins' changes of a decision that had no alternative.
    ///
    /// # Panics
    ///
    /// When chance would decide them: see [`Prediction::is_forced`].
    pub fn remember(&mut self, prediction: &Prediction) {
        assert!(
            prediction.is_forced() || !prediction.leaves_traces(),
            "chance must not decide what plugins record"
        );
        for change in &prediction.events {
            if let Change::State(change) = change {
                *self.recorded.entry(change.endpoint).or_default() += change.words.len();
            }
        }
        self.ledger.apply(prediction.events.clone().into());
        if !self.counts_unread {
            self.ledger.apply(prediction.unread.clone().into());
        }
    }

    /// At least the number of blocks that an endpoint's index of prompts was sent, of the endpoint with most.
    /// Blocks that were sent again count again.
    pub fn most_blocks(&self) -> usize {
        self.recorded.values().copied().max().unwrap_or_default()
    }

    fn subset(&self, request: &Request) -> Subset {
        request.subset.as_ref().map_or(Subset::All, |servers| {
            // An index beyond the last server is an address outside the pool.
            let outside = String::from("192.0.2.1:8000");
            let addresses = servers.iter().map(|&server| self.addresses.get(server).unwrap_or(&outside));
            Subset::from_items(addresses.map(String::as_str))
        })
    }

    fn prediction(
        &self,
        case: &Case,
        decision: &mut Decision,
        unrated: Vec<usize>,
        explanation: String,
    ) -> Prediction {
        let expected = match &decision.outcome {
            Outcome::Reject(rejection) => Expected::Refused(refusal(rejection)),
            Outcome::Route(_) | Outcome::Abstain { .. } => self.served(decision, unrated),
        };
        let is_load =
            |change: &Change| matches!(change, Change::Endpoint { kind: ChangeKind::Started(_), .. });
        let pool = self.ledger.ledger().pool();
        let unread = if self.is_generation(&case.request) {
            Vec::new()
        } else {
            let sent = decision.records.sent_prompts.iter();
            sent.map(|sent| Change::State(sent.retraction(NOW))).collect()
        };
        let (load, events) = changes_of(decision, pool).into_iter().partition(is_load);
        Prediction { expected, explanation, events, unread, load }
    }

    fn served(&self, decision: &Decision, unrated: Vec<usize>) -> Expected {
        let mut named: BTreeMap<&'static str, Vec<Option<usize>>> = BTreeMap::new();
        let Some(run) = decision.primary_run() else {
            return Expected::Served {
                best: self.marked(unrated, &mut named),
                totals: BTreeMap::new(),
                named,
            };
        };
        for header in [PREFILL, ENCODE] {
            let address = decision.headers.iter().find(|(name, _)| *name == header).map(|(_, value)| value);
            let Some(server) =
                address.and_then(|address| self.addresses.iter().position(|own| own == address))
            else {
                continue;
            };
            // The servers of two stages are apart.
            let mut stages = decision.runs.iter().filter(|stage| stage.picked.first() == Some(&server));
            let picks = stages.next().map(|stage| self.picks(&totals(stage))).unwrap_or_default();
            named.insert(header, picks.into_iter().map(Some).collect());
        }
        let totals = totals(run);
        let best = self.marked(self.picks(&totals), &mut named);
        if decision.ranks.is_empty() {
            return Expected::Served { best, totals, named };
        }
        named.insert(RANK, best.iter().copied().map(Some).collect());
        // The first rank of a server is at its primary port.
        let primary: BTreeSet<usize> = best.iter().map(|rank| rank - rank % 2).collect();
        Expected::Served { best: primary.into_iter().collect(), totals, named }
    }

    /// The endpoints that a request may be sent to, and that the client may be told of.
    fn marked(&self, best: Vec<usize>, named: &mut BTreeMap<&'static str, Vec<Option<usize>>>) -> Vec<usize> {
        let pool = self.ledger.ledger().pool();
        let is_marked = pool.as_slice().first().is_some_and(|endpoint| {
            self.pipeline.response_headers(endpoint).any(|(name, _)| name == SESSION)
        });
        if is_marked {
            named.insert(SESSION, best.iter().copied().map(Some).collect());
        }
        best
    }

    /// The endpoints that chance may pick.
    fn picks(&self, totals: &BTreeMap<usize, f64>) -> Vec<usize> {
        let all = || totals.keys().copied().collect();
        match self.picker {
            Picker::Best => best(totals),
            Picker::Random => all(),
            Picker::Weighted if totals.values().all(|total| *total <= 0.0) => all(),
            Picker::Weighted => totals.iter().filter(|(_, total)| **total > 0.0).map(|(&it, _)| it).collect(),
        }
    }

    fn read<'a>(&self, path: &str, headers: Headers<'_>, text: &'a str) -> Result<Body<'a>, BodyError> {
        let api = self.pipeline.api(request_path(Some(path), Headers::default()))?;
        let options = self.pipeline.body_options(headers);
        let body = Body::read_bytes(text.as_bytes(), api, &options)?;
        if api.names_model() && body.model.is_none() { Err(BodyError::NoModel) } else { Ok(body) }
    }
}

impl Prediction {
    /// Whether chance has no part in it, so that both pickers' plugins record the same.
    pub fn is_forced(&self) -> bool {
        match &self.expected {
            Expected::Served { best, named, .. } => {
                let is_one = |header| named.get(header).is_none_or(|servers| servers.len() == 1);
                best.len() == 1 && [PREFILL, ENCODE, RANK].into_iter().all(is_one)
            }
            Expected::Refused(_) => true,
        }
    }

    /// Whether plugins record anything of it.
    pub fn leaves_traces(&self) -> bool {
        !self.events.is_empty()
    }
}

fn reading(state: &ServerState) -> Reading {
    Reading {
        ready: true,
        updated: Some(NOW),
        waiting: Some(state.waiting),
        running: Some(state.running),
        kv_usage: Some(state.kv),
        lora: state.lora.as_ref().map(|lora| Lora {
            running: lora.running.clone(),
            waiting: lora.waiting.clone(),
            max: lora.max,
        }),
        block_size: state.cache.map(|(block_size, _)| block_size),
        num_blocks: state.cache.map(|(_, blocks)| blocks),
        // The custom metrics of the configurations.
        attributes: vec![
            ("running".to_owned(), state.running as f64),
            ("backlog".to_owned(), state.waiting as f64),
        ],
        ..Reading::default()
    }
}

fn totals(run: &ProfileRun) -> BTreeMap<usize, f64> {
    run.scored.iter().copied().zip(run.totals.iter().copied()).collect()
}

fn best(totals: &BTreeMap<usize, f64>) -> Vec<usize> {
    let highest = totals.values().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_best = |(_, total): &(&usize, &f64)| highest - **total < SAME_SCORE;
    totals.iter().filter(is_best).map(|(&server, _)| server).collect()
}

/// Number of request ids: enough to draw each of a few servers whose weight is a hundredth or more.
const DRAWS: u64 = 400;

/// The headers of a request with this path and id.
fn headers<'a>(
    path: &'a str,
    sent: &'a [(String, String)],
    id: &'a str,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    let own = [(":path", path), ("x-request-id", id)];
    own.into_iter().chain(sent.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

fn refusal(rejection: &Rejection) -> Refusal {
    Refusal {
        status: rejection.code.status(),
        reason: rejection.reason.map(|reason| reason.as_str().to_owned()),
        message: rejection.message.clone().into_owned(),
    }
}
