//! A decision in progress, as plugins see it.

use core::time::Duration;
use std::sync::Arc;

use crate::epp_rules::EppRules;
use crate::flow_control::SaturationStage;
use crate::headers::Headers;
use crate::input::DecisionInput;
use crate::input::load_estimator::LoadEstimator;
use crate::input::prediction::Predictions;
use crate::plugin::parameter::{LATENCY_PREDICTOR, or_default};
use crate::plugin::{AgentIdentity, MmEmbeddingsCacheProducer, Slot, TopologyExtractor, TopologyLevel};
use crate::pool::load::{FractionalLoad, Load};
use crate::pool::reading::Reading;
use crate::pool::{Endpoint, Endpoints};
use crate::request::Request;
use crate::state::prefix::{PrefixMatch, TokenScale};
use crate::state::{MediaItems, PluginState, StateChange};

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
    pub(crate) prefixes: &'a [Prefix<'a>],
    pub(crate) sessions: &'a [Session<'a>],
    pub(crate) predictions: &'a [Predictions<'a>],
    /// The endpoint that an earlier stage of the request picked.
    pub(crate) peer: Option<usize>,
    /// The stage whose saturation is measured; `None`: that of all candidates.
    pub(crate) stage: Option<SaturationStage>,
    pub(crate) providers: &'a Providers,
    /// Age from which a reading gives its endpoint neutral scores; `None`: no age does.
    pub(crate) neutral_score_after: Option<Duration>,
    /// The key of the plugin at work.
    pub(crate) plugin: u64,
}

/// The parts of a pipeline that plugins of other roles read. They are one field of a cycle, which is copied for each plugin.
#[derive(Clone, Debug)]
pub(crate) struct Providers {
    pub(crate) load_estimator: LoadEstimator,
    pub(crate) agent_identities: Vec<Arc<AgentIdentity>>,
    pub(crate) media_caches: Vec<Slot<MmEmbeddingsCacheProducer>>,
    pub(crate) topologies: Vec<Slot<TopologyExtractor>>,
    pub(crate) epp_rules: EppRules,
}

impl Providers {
    /// The header that names the agent session of a request, and the session.
    pub(crate) fn agent_identity<'h>(&self, headers: Headers<'h>) -> Option<(&str, &'h str)> {
        self.agent_identities.iter().find_map(|plugin| plugin.find(headers))
    }
}

/// Blocks of the prompt that were sent to endpoints before, by one prefix producer.
#[derive(Clone, Debug)]
pub(crate) struct Prefix<'a> {
    /// The producer's name in the configuration.
    pub(crate) producer: &'a str,
    pub(crate) matches: PrefixMatch,
}

/// The session of the request, by one session producer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session<'a> {
    /// The producer's name in the configuration.
    pub(crate) producer: &'a str,
    /// The client's name of the session; not empty.
    pub(crate) id: &'a str,
}

impl<'a> Cycle<'a> {
    /// The same decision for another plugin.
    pub(crate) fn of(self, plugin: u64) -> Self {
        Self { plugin, ..self }
    }

    /// The endpoint of this index.
    pub fn endpoint(&self, endpoint: usize) -> &'a Endpoint {
        self.pool.endpoint(endpoint)
    }

    /// The endpoint's newest reading; an empty one if it was never scraped or the readings are too old to be used.
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
    pub fn state_change(&self, endpoint: usize, words: Vec<u64>) -> StateChange {
        StateChange { plugin: self.plugin, endpoint: self.endpoint(endpoint).key(), at: self.now, words }
    }

    /// The matches of the prefix producer of this name.
    pub fn prefix(&self, producer: &str) -> &'a PrefixMatch {
        let prefix = self.prefixes.iter().find(|prefix| prefix.producer == producer);
        prefix.map_or(&NO_MATCH, |prefix| &prefix.matches)
    }

    /// The session that the session producer of this name found.
    pub fn session(&self, producer: &str) -> Option<&'a str> {
        self.sessions.iter().find(|session| session.producer == producer).map(|session| session.id)
    }

    /// The predictions of the latency predictor of this name (empty: the default one); `None`: it only learns, or there is none.
    pub(crate) fn predictions(&self, predictor: &str) -> Option<&'a Predictions<'a>> {
        let name = or_default(predictor, LATENCY_PREDICTOR);
        self.predictions.iter().find(|predictions| predictions.producer == name)
    }

    /// The version of the EPP whose rules decide.
    pub(crate) fn epp_rules(&self) -> EppRules {
        self.providers.epp_rules
    }

    /// The agent session of the request; `None`: no plugin finds one.
    pub(crate) fn agent_identity(&self) -> Option<&'a str> {
        self.providers.agent_identity(self.request.headers).map(|(_, id)| id)
    }

    /// The distance of endpoints to the endpoint that an earlier stage picked, by the topology extractor of this name (empty: of its type's);
    /// `None`: there is no such endpoint or extractor, or the endpoint's places are not known.
    pub(crate) fn peer_topology(&self, extractor: &str) -> Option<PeerTopology<'a>> {
        let name = or_default(extractor, "topology-extractor");
        let slot = self.providers.topologies.iter().find(|slot| *slot.name == *name)?;
        let peer = self.endpoint(self.peer?);
        let topology = PeerTopology { extractor: &slot.plugin, pool: self.pool, peer };
        slot.plugin.knows(peer).then_some(topology)
    }

    /// How many of the request's distinct images, videos and audio each endpoint was sent before, by the producer of this name, and how many
    /// there are.
    pub(crate) fn media_matches(&self, producer: &str) -> (Vec<u32>, u32) {
        let items = self.request.media_items();
        let mut matched = Vec::new();
        let slot = self.providers.media_caches.iter().find(|slot| *slot.name == *producer);
        let state =
            slot.filter(|_| !items.is_empty()).and_then(|slot| self.of(slot.key).state::<MediaItems>());
        if let Some(state) = state {
            matched.resize(self.pool.as_slice().len(), 0);
            state.count(&items, &mut matched);
        }
        (matched, u32::try_from(items.len()).unwrap_or(u32::MAX))
    }

    /// Tokens that the request would add to the endpoint's load, as `inflight-load-producer` counts them.
    pub fn request_tokens(&self, endpoint: usize) -> u64 {
        let estimator = &self.providers.load_estimator;
        let prefix = self.prefix(&estimator.prefix_producer);
        estimator.tokens(self.request, prefix, endpoint)
    }
}

/// The distance of endpoints to one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerTopology<'a> {
    extractor: &'a TopologyExtractor,
    pool: &'a Endpoints,
    peer: &'a Endpoint,
}

impl PeerTopology<'_> {
    /// The closest place that the endpoint shares; `None`: it shares none.
    pub(crate) fn level(&self, endpoint: usize) -> Option<TopologyLevel> {
        self.extractor.level(self.peer, self.pool.endpoint(endpoint))
    }
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
    cached_since: None,
    attributes: Vec::new(),
    models: None,
};

static NO_MATCH: PrefixMatch =
    PrefixMatch { matched: Vec::new(), total: 0, block_size: 0, scale: TokenScale::ONE };
