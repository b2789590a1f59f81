//! A decision in progress, as plugins see it.

use core::time::Duration;

use crate::decision::PromptBlocks;
use crate::plugin::InflightLoadProducer;
use crate::pool::{Endpoint, Pool};
use crate::reading::Reading;
use crate::state::prefix::PrefixMatch;
use crate::state::{PluginState, PluginStates};

// Until every user imports these from their own modules.
pub use crate::headers::Headers;
pub use crate::load::Load;
pub use crate::request::Request;
pub use crate::view::View;

/// A decision in progress: what plugins may look at.
#[derive(Clone, Copy, Debug)]
pub struct Cycle<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// The pool.
    pub pool: &'a Pool,
    /// The time, on the shell's clock.
    pub now: Duration,
    pub(crate) readings: &'a [Reading],
    pub(crate) in_flight: &'a [Load],
    pub(crate) states: &'a PluginStates,
    /// Of all plugin instances, in their order.
    pub(crate) keys: &'a [u64],
    pub(crate) prefixes: &'a [Prefix],
    pub(crate) sessions: &'a [Session<'a>],
    pub(crate) load_producer: &'a InflightLoadProducer,
    /// Age from which readings give no opinion; `None`: they always do.
    pub(crate) neutral_score_after: Option<Duration>,
    /// The plugin instance at work.
    pub(crate) own: usize,
}

/// How much of the prompt the endpoints have seen, according to one prefix producer.
#[derive(Clone, Debug)]
pub struct Prefix {
    /// The producer's name in the configuration.
    pub producer: String,
    /// What it found.
    pub matches: PrefixMatch,
}

/// Which session the request belongs to, according to one session producer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Session<'a> {
    /// The producer's name in the configuration.
    pub(crate) producer: &'a str,
    /// What the client calls the session; not empty.
    pub(crate) id: &'a str,
}

impl<'a> Cycle<'a> {
    /// The same decision, seen by another plugin instance.
    pub(crate) fn of(self, plugin: usize) -> Self {
        Self { own: plugin, ..self }
    }

    /// The endpoint of this index.
    pub fn endpoint(&self, endpoint: usize) -> &'a Endpoint {
        self.pool.endpoint(endpoint)
    }

    /// What the endpoint last said; nothing, if it was never scraped or the readings are too old to be used.
    pub fn reading(&self, endpoint: usize) -> &'a Reading {
        self.readings.get(endpoint).unwrap_or(&NOTHING_SAID)
    }

    /// Whether a scorer that goes by readings has an opinion of the endpoint.
    pub(crate) fn is_known(&self, endpoint: usize) -> bool {
        self.neutral_score_after
            .is_none_or(|limit| self.reading(endpoint).age(self.now).is_some_and(|age| age <= limit))
    }

    /// What is in flight at the endpoint.
    pub fn load(&self, endpoint: usize) -> Load {
        self.in_flight.get(endpoint).copied().unwrap_or_default()
    }

    /// What the plugin instance at work remembers.
    pub fn state(&self) -> &'a PluginState {
        self.keys.get(self.own).map_or(&PluginState::None, |&key| self.states.of(key))
    }

    /// What of the prompt an endpoint was sent before, by the first prefix producer.
    pub(crate) fn prompt_blocks(&self, endpoint: usize) -> PromptBlocks {
        let seen = |Prefix { matches, .. }: &Prefix| PromptBlocks {
            matched: matches.blocks(endpoint),
            total: matches.total,
        };
        self.prefixes.first().map(seen).unwrap_or_default()
    }

    /// What the prefix producer of this name found.
    pub fn prefix(&self, producer: &str) -> &'a PrefixMatch {
        self.prefixes
            .iter()
            .find(|prefix| prefix.producer == producer)
            .map_or(&NO_MATCH, |prefix| &prefix.matches)
    }

    /// The session that the session producer of this name found.
    pub fn session(&self, producer: &str) -> Option<&'a str> {
        self.sessions.iter().find(|session| session.producer == producer).map(|session| session.id)
    }

    /// Tokens the request would add to the endpoint's load, as `inflight-load-producer` counts them.
    pub fn request_tokens(&self, endpoint: usize) -> u64 {
        self.load_producer.request_tokens(self, endpoint)
    }
}

/// An endpoint that said nothing.
pub(crate) static NOTHING_SAID: Reading = Reading {
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
};

static NO_MATCH: PrefixMatch = PrefixMatch { matched: Vec::new(), total: 0, block_size: 0 };
