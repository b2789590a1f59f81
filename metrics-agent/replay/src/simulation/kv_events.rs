//! The KV-cache events of a fleet, and the agent that follows them, without sockets: the agent's index and
//! its messages to a proxy.
//!
//! Simplifications: no event is lost, the blocks of a response are stored when it ends, and a token is four
//! bytes of text.

use metrics_agent_kv_events::event::{Block, KvEvent, Removed, StorageTier, Stored};
use metrics_agent_kv_events::index::{CacheId, Index, KeyedModel, Limits};
use metrics_agent_kv_events::prefixes::readers::{
    FollowedEndpoints, PoolReaders, PrefixesRead, ReaderPosition,
};
use metrics_agent_kv_events::tokenizer::Tokenizer;
use metrics_agent_kv_events::tokenizer::vocabulary::{LeadingSpace, Vocabulary};

use super::request::{MODEL, SegmentTexts, SimulatedRequest};
use endpoint_picker::pool::Endpoint;
use endpoint_picker::state::prefix::key;
use endpoint_picker_wire::Message;
use endpoint_picker_wire::prefixes::{CacheState, CachedPrefixes, Model};
use metrics_agent_server_model::{BLOCK_TOKENS, CacheChange, TOKEN_BYTES};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Time from the end of a server's step until the agent has its events: the server's publisher, the way, and
/// the agent's reading.
pub(super) const EVENT_DELAY: Duration = Duration::from_millis(5);

/// Time from a proxy's poll to the agent's response, in which the agent gathers changes.
pub(super) const GATHER: Duration = Duration::from_millis(100);

/// Tokens of a cached prefix, as the agent joins blocks by default.
const PREFIX_TOKENS: u32 = 64;

/// Maximum number of blocks of all servers: more than they have.
const MAX_BLOCKS: usize = 1 << 24;

/// An agent, and the publishers of the servers that it follows.
#[derive(Debug)]
pub(super) struct EventAgent {
    servers: Vec<EventPublisher>,
    index: Index,
    readers: PoolReaders,
    followed: FollowedEndpoints,
    /// The position of the proxy; `None`: it has read nothing.
    position: Option<ReaderPosition>,
}

/// The publisher of a server.
#[derive(Debug)]
struct EventPublisher {
    cache: CacheId,
    /// The requests at the server by their numbers: their tokens are in its blocks.
    requests: HashMap<usize, Arc<SimulatedRequest>>,
}

impl EventAgent {
    /// An agent that follows these servers with empty caches.
    pub(super) fn new(endpoints: &[Endpoint]) -> Self {
        let mut index = Index::new(Limits { blocks: MAX_BLOCKS, prefix_tokens: PREFIX_TOKENS });
        let publisher = |endpoint: &Endpoint| {
            let cache = index.add_cache(endpoint.address(), Some(Arc::clone(&KEYED_MODEL)));
            EventPublisher { cache, requests: HashMap::new() }
        };
        let servers = endpoints.iter().map(publisher).collect();
        let state = |endpoint: &Endpoint| CacheState {
            endpoint: endpoint.key(),
            complete: true,
            complete_by_token_ids: false,
            age_ms: 0,
        };
        let model = Model { names: vec![MODEL.to_owned()], root: key::root(MODEL, None), ..Model::default() };
        let followed = FollowedEndpoints {
            addresses: endpoints.iter().map(|endpoint| (endpoint.key(), endpoint.address())).collect(),
            caches: endpoints.iter().map(state).collect(),
            models: vec![model],
        };
        Self { servers, index, readers: PoolReaders::default(), followed, position: None }
    }

    /// A request was sent to a server.
    pub(super) fn sent(&mut self, server: usize, number: usize, request: &Arc<SimulatedRequest>) {
        self.servers[server].requests.insert(number, Arc::clone(request));
        let adapters = &mut self.followed.models[0].adapters;
        if let Some(adapter) = request.adapter.as_deref()
            && !adapters.iter().any(|known| known == adapter)
        {
            adapters.push(adapter.to_owned());
        }
    }

    /// A request has ended, and the changes that its end made were published.
    pub(super) fn ended(&mut self, server: usize, number: usize) {
        self.servers[server].requests.remove(&number);
    }

    /// The events of a server about changes of its cache.
    pub(super) fn events(&self, server: usize, changes: Vec<CacheChange>) -> Vec<KvEvent> {
        changes.into_iter().filter_map(|change| self.servers[server].event(change)).collect()
    }

    /// Applies events of a server.
    pub(super) fn apply(&mut self, server: usize, events: &[KvEvent], now: Duration) {
        let now = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let cache = self.servers[server].cache;
        for event in events {
            self.index.apply(cache, event, now);
        }
    }

    /// The messages about all changes since the last poll.
    pub(super) fn poll(&mut self, now: Duration) -> Vec<Vec<u8>> {
        let Self { index, readers, followed, position, .. } = self;
        let mut messages = Vec::new();
        while let PrefixesRead::Message(bytes) =
            readers.read(index.prefixes_mut(), followed.clone(), *position, false, now).encode()
        {
            let Ok(message) = CachedPrefixes::decode(&*bytes) else { break };
            *position = Some(ReaderPosition { log: message.log, version: message.version });
            messages.push(bytes);
        }
        messages
    }
}

impl EventPublisher {
    /// The event of a change; `None` of blocks that no request has, which cannot happen.
    fn event(&self, change: CacheChange) -> Option<KvEvent> {
        let (place, blocks) = match change {
            CacheChange::Stored { place, blocks } => (place, blocks),
            CacheChange::Removed(block) => {
                let removed = Removed { blocks: vec![block], tier: StorageTier::Gpu, group: 0 };
                return Some(KvEvent::Removed(removed));
            }
        };
        let has_them = |request: &&Arc<SimulatedRequest>| {
            request.work().blocks().get(place..).is_some_and(|own| own.starts_with(&blocks))
        };
        let request = self.requests.values().find(has_them)?;
        let parent = place.checked_sub(1).map(|before| request.work().blocks()[before]);
        let [start, count] = [place, blocks.len()]
            .map(|blocks| u32::try_from(blocks).unwrap_or(u32::MAX).saturating_mul(BLOCK_TOKENS));
        let mut text = Vec::new();
        request.write_tokens(&TEXTS, start..start + count, &mut text);
        let tokens = text.chunks_exact(TOKEN_BYTES).map(token).collect();
        Some(KvEvent::Stored(Stored {
            parent,
            blocks: blocks.into_iter().map(|hash| Block { hash, extra: Vec::new() }).collect(),
            block_size: BLOCK_TOKENS as usize,
            tokens,
            tier: StorageTier::Gpu,
            group: 0,
            is_full_attention: true,
            adapter: request.adapter.as_deref().map(|name| name.as_bytes().to_vec()),
            salt: None,
        }))
    }
}

/// The texts of all requests.
pub(super) static TEXTS: LazyLock<SegmentTexts> = LazyLock::new(SegmentTexts::new);

/// The letters of texts.
const LETTERS: &[u8; 27] = b"abcdefghijklmnopqrstuvwxyz ";

/// The token of four letters: its digits are their places in the alphabet.
fn token(text: &[u8]) -> u32 {
    let digit = |letter: &u8| LETTERS.iter().position(|own| own == letter).unwrap_or(0);
    u32::try_from(text.iter().fold(0, |token, letter| token * LETTERS.len() + digit(letter))).unwrap_or(0)
}

/// The model of all servers. Each of its tokens is another sequence of four letters.
static KEYED_MODEL: LazyLock<Arc<KeyedModel>> = LazyLock::new(|| {
    let weights = [27 * 27 * 27, 27 * 27, 27, 1];
    let mut vocabulary = Vocabulary::new(LeadingSpace::Never);
    for id in 0..27 * weights[0] {
        let text = weights.map(|weight| LETTERS[id / weight % 27]);
        vocabulary.insert(token(&text), &text, false).ok();
    }
    let tokenizer = Tokenizer {
        vocabulary,
        digest: 0,
        chat_template: String::new(),
        bos_token: String::new(),
        eos_token: String::new(),
        adds_bos: false,
        normalizes: false,
    };
    Arc::new(KeyedModel::new(MODEL, Some(Arc::new(tokenizer)), false))
});
