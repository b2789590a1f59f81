//! A decision in progress, as plugins see it.

use core::time::Duration;

use crate::epp_rules::EppRules;
use crate::input::prediction::{LatencyLimits, Predictions};
use crate::input::providers::{PeerTopology, Providers};
use crate::input::slot::{Inputs, Slot};
use crate::input::{DecisionInput, SaturationStage};
use crate::pool::load::{FractionalLoad, Load, MAX_REQUEST_TOKENS};
use crate::pool::reading::Reading;
use crate::pool::{Endpoint, Endpoints};
use crate::request::Request;
use crate::state::prefix::{PrefixMatch, TokenScale};
use crate::state::{PluginState, StateChange, Words};

/// A decision in progress: everything that plugins decide by.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The pool.
    pub pool: &'a Endpoints,
    /// The time, on the shell's clock.
    pub now: Duration,
    pub(crate) input: &'a DecisionInput<'a>,
    /// Empty while the agent's readings are too old to be used.
    pub(crate) readings: &'a [Reading],
    /// Blocks of the prompt that were sent to endpoints before, by each prefix producer; empty without a
    /// prompt.
    pub(crate) prefixes: &'a [PrefixMatch],
    /// The session of the request by each session producer.
    pub(crate) sessions: &'a [Option<&'a str>],
    /// The client's limits for the latency; none without a latency predictor.
    pub(crate) limits: LatencyLimits,
    /// The predictions of each latency predictor; `None`: it only learns.
    pub(crate) predictions: &'a [Option<Predictions<'a>>],
    pub(crate) media: MediaLookup<'a>,
    /// The endpoint that an earlier stage of the request picked.
    pub(crate) peer: Option<usize>,
    /// The stage whose saturation is measured; `None`: that of all candidates.
    pub(crate) stage: Option<SaturationStage>,
    pub(crate) providers: &'a Providers,
    /// Age from which a reading gives its endpoint neutral scores; `None`: no age does.
    pub(crate) neutral_score_after: Option<Duration>,
    /// The key of the plugin at work.
    pub(crate) plugin: u64,
    /// The producers that it reads.
    pub(crate) inputs: &'a Inputs,
}

/// The images, videos and audio of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MediaLookup<'a> {
    /// Their hashes, each once.
    pub(crate) items: &'a [u64],
    /// The number of them that each endpoint was sent before, by each producer; empty without items.
    pub(crate) matched: &'a [Vec<u32>],
}

impl<'a> Cycle<'a> {
    /// The same decision for another plugin.
    pub(crate) fn of<'s, T: ?Sized>(self, slot: &'s Slot<T>) -> Cycle<'s>
    where
        'a: 's,
    {
        Cycle { plugin: slot.key, inputs: &slot.inputs, ..self }
    }

    /// The endpoint of this index.
    pub fn endpoint(&self, endpoint: usize) -> &'a Endpoint {
        self.pool.endpoint(endpoint)
    }

    /// The endpoint's newest reading; an empty one if it was never scraped or the readings are too old to be
    /// used.
    pub fn reading(&self, endpoint: usize) -> &'a Reading {
        self.readings.get(endpoint).unwrap_or(&NO_READING)
    }

    /// Whether the endpoint's reading is fresh enough for scorers that read it.
    pub(crate) fn is_known(&self, endpoint: usize) -> bool {
        self.neutral_score_after
            .is_none_or(|limit| self.reading(endpoint).age(self.now).is_some_and(|age| age <= limit))
    }

    /// The scores of these candidates by the plugin at work, if they were computed before.
    pub(crate) fn known_scores(&self, candidates: &[usize]) -> Option<&'a [f64]> {
        let is_current = !self.readings.is_empty() && self.neutral_score_after.is_none();
        self.input.precomputed.filter(|_| is_current)?.scores(self.plugin, candidates)
    }

    /// Load in flight at the endpoint, to be compared with a limit.
    pub fn load(&self, endpoint: usize) -> Load {
        self.input.in_flight.get(endpoint).copied().unwrap_or_default()
    }

    /// Load in flight at the endpoint without the [deferred part](crate::state::deferred_load), to be
    /// compared with the loads of other endpoints. Whole numbers unless other proxies share their changes.
    pub fn comparable_load(&self, endpoint: usize) -> FractionalLoad {
        let load = FractionalLoad::from(self.load(endpoint));
        let Some(deferred) = self.input.deferred.get(endpoint) else { return load };
        FractionalLoad {
            requests: (load.requests - deferred.requests).max(0.0),
            tokens: (load.tokens - deferred.tokens).max(0.0),
        }
    }

    /// The state of the plugin at work; `None` if it has none of this type.
    pub fn state<S: PluginState>(&self) -> Option<&'a S> {
        self.input.states.of(self.plugin)
    }

    /// A change of the state of the plugin at work, now.
    pub fn state_change(&self, endpoint: usize, words: Words) -> StateChange {
        StateChange { plugin: self.plugin, endpoint: self.endpoint(endpoint).key(), at: self.now, words }
    }

    /// The matches of the prefix producer that the plugin at work reads.
    pub fn prefix(&self) -> &'a PrefixMatch {
        self.prefix_of(self.inputs.prefix_producer)
    }

    /// The matches of the prefix producer of this index.
    pub(crate) fn prefix_of(&self, producer: Option<u16>) -> &'a PrefixMatch {
        nth(self.prefixes, producer).unwrap_or(&NO_MATCH)
    }

    /// The session by each session producer that the plugin at work reads, in the order of its needs; `None`:
    /// the request has none.
    pub(crate) fn sessions(&self) -> impl Iterator<Item = Option<&'a str>> {
        let Self { inputs, sessions, .. } = *self;
        inputs.session_producers.iter().map(move |&producer| nth(sessions, producer).copied().flatten())
    }

    /// The predictions of the latency predictor that the plugin at work reads; `None`: it only learns.
    pub(crate) fn predictions(&self) -> Option<&'a Predictions<'a>> {
        nth(self.predictions, self.inputs.latency_predictor)?.as_ref()
    }

    /// The version of the EPP whose rules decide.
    pub(crate) fn epp_rules(&self) -> EppRules {
        self.providers.epp_rules
    }

    /// The agent session of the request; `None`: no plugin finds one.
    pub(crate) fn agent_identity(&self) -> Option<&'a str> {
        self.providers.agent_identity(self.request.headers).map(|(_, id)| id)
    }

    /// The distance of endpoints to the endpoint that an earlier stage picked, by the topology extractor that
    /// the plugin at work reads; `None`: there is no such endpoint or extractor, or the endpoint's places are
    /// not known.
    pub(crate) fn peer_topology(&self) -> Option<PeerTopology<'a>> {
        let topology = nth(&self.providers.topologies, self.inputs.topology)?;
        topology.peer(self.pool, self.endpoint(self.peer?))
    }

    /// The number of the request's images, videos and audio that the endpoint was sent before, by the
    /// producer that the plugin at work reads.
    pub(crate) fn media_matched(&self, endpoint: usize) -> u32 {
        let matched = nth(self.media.matched, self.inputs.media_cache);
        matched.and_then(|matched| matched.get(endpoint)).copied().unwrap_or(0)
    }

    /// Maximum number of tokens of one request at the endpoint: its KV cache, which no context exceeds.
    pub(crate) fn max_request_tokens(&self, endpoint: usize) -> u64 {
        self.reading(endpoint).kv_tokens().unwrap_or(MAX_REQUEST_TOKENS)
    }

    /// Tokens that the request would add to the endpoint's load, as `inflight-load-producer` counts them.
    pub fn request_tokens(&self, endpoint: usize) -> u64 {
        let estimator = &self.providers.load_estimator;
        let prefix = self.prefix_of(self.providers.load_prefixes);
        estimator.tokens(self.request, prefix, endpoint, self.max_request_tokens(endpoint))
    }
}

/// The producer's part of a list that has one for each.
fn nth<T>(of_producers: &[T], producer: Option<u16>) -> Option<&T> {
    of_producers.get(usize::from(producer?))
}

/// The reading of an endpoint without values.
pub(crate) static NO_READING: Reading = Reading {
    ready: false,
    updated: None,
    waiting: None,
    running: None,
    kv_usage: None,
    lora: None,
    block_size: None,
    num_blocks: None,
    cache_tokens: None,
    cached_since: None,
    attributes: Vec::new(),
    models: None,
};

static NO_MATCH: PrefixMatch =
    PrefixMatch { matched: Vec::new(), total: 0, block_size: 0, scale: TokenScale::ONE };
