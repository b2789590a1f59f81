//! The prompt prefixes in the caches of servers, as the servers' KV-cache events show them: an index of texts
//! and of token ids.
//!
//! A *node* is a block of tokens that a cache holds, given by the text that these tokens stand for, or by
//! their ids. Its key is the XXH64 of these bytes with the parent's key as the seed, so it identifies the
//! whole prompt up to the block's end. The parent of a prompt's first block is a root, which stands for a
//! model, a cache salt, and the [kind](PromptKind) of the bytes. A prompt is matched by its text, without a
//! tokenizer, or by the ids that the client has sent: at each node, over the few lengths that its children
//! have.
//!
//! Memory: 28 bytes for each node and 5 to 10 for its place in the table, and 4 to 8 for each further
//! endpoint that holds it.

mod nodes;
mod prompts;
mod walk;

use core::time::Duration;

use hashbrown::{HashMap, HashSet};

use self::nodes::{Cached, Nodes};
pub use prompts::{MatchedPrompts, PromptBytes, PromptTexts, can_match};

use crate::request::cached_prompt::{PromptKind, Ranks, Tier};

/// Maximum number of nodes, roots included: some 80 MB.
const MAX_NODES: usize = 1 << 21;

/// Maximum number of endpoints. The place of an endpoint has two bytes, and two values are marks.
const MAX_ENDPOINTS: usize = 1 << 15;

/// Maximum time since the last response of the agent for which the index is known.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// A block of tokens below another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The key of the block before it, or of a root.
    pub parent: u64,
    /// Its own key.
    pub key: u64,
    /// Its bytes, 1..=65 535.
    pub length: u32,
    /// Its tokens, 1..=65 535.
    pub tokens: u32,
}

/// An endpoint whose blocks are in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(u16);

/// The state of the events of one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// The endpoint's [key](crate::pool::Endpoint::key).
    pub endpoint: u64,
    /// Whether the index has all blocks of its cache by their text.
    pub by_text: bool,
    /// Whether the index has all blocks of its cache by their token ids.
    pub by_token_ids: bool,
}

impl Events {
    /// Whether the index has all blocks of its cache for prompts of this kind.
    pub fn is_complete(&self, kind: PromptKind) -> bool {
        match kind {
            PromptKind::Text => self.by_text,
            PromptKind::TokenIds => self.by_token_ids,
        }
    }
}

/// The blocks in the caches of a pool's endpoints.
#[derive(Debug, Default)]
pub struct CachedPrefixes {
    nodes: Nodes,
    /// The endpoints by their place in the index; `None`: the place is free.
    endpoints: Vec<Option<Events>>,
    /// The places by the endpoints' keys.
    places: HashMap<u64, u16>,
    /// Whether everything has arrived, and not only the first parts of it.
    is_whole: bool,
    /// When the agent responded last.
    updated: Option<Duration>,
}

impl CachedPrefixes {
    /// Sets the endpoints whose blocks the index has. The blocks of all others are forgotten.
    pub fn follow(&mut self, endpoints: impl IntoIterator<Item = Events>) {
        let endpoints: Vec<Events> = endpoints.into_iter().collect();
        let followed: HashSet<u64> = endpoints.iter().map(|events| events.endpoint).collect();
        let left: Vec<u16> =
            self.places.extract_if(|key, _| !followed.contains(key)).map(|(_, place)| place).collect();
        if !left.is_empty() {
            for &place in &left {
                if let Some(known) = self.endpoints.get_mut(usize::from(place)) {
                    *known = None;
                }
            }
            self.nodes.forget(|holder| left.contains(&holder.0));
        }
        for events in endpoints {
            let place = self.places.get(&events.endpoint).copied().or_else(|| self.free_place());
            let Some(place) = place else { continue };
            self.places.insert(events.endpoint, place);
            if let Some(known) = self.endpoints.get_mut(usize::from(place)) {
                *known = Some(events);
            }
        }
    }

    /// A place that no endpoint has; `None`: there are too many.
    fn free_place(&mut self) -> Option<u16> {
        let free = self.endpoints.iter().position(Option::is_none).unwrap_or(self.endpoints.len());
        let place = u16::try_from(free).ok().filter(|_| free < MAX_ENDPOINTS)?;
        if free == self.endpoints.len() {
            self.endpoints.push(None);
        }
        Some(place)
    }

    /// The endpoint of this key, if its events are followed.
    pub fn holder(&self, endpoint: u64) -> Option<Holder> {
        self.places.get(&endpoint).copied().map(Holder)
    }

    /// Adds a block to the cache of an endpoint, or moves it to another tier or other ranks. A block that
    /// contradicts others, or is beyond the bounds of the index, is left out.
    pub fn store(&mut self, holder: Holder, tier: Tier, ranks: Ranks, block: &Block) {
        self.nodes.store(Cached { holder, tier, ranks }, block);
    }

    /// Removes a block from the cache of an endpoint, if it is there.
    pub fn remove(&mut self, holder: Holder, key: u64) {
        self.nodes.remove(holder, key);
    }

    /// Forgets all blocks. The endpoints stay. The result frees the memory when it is dropped, which takes
    /// long for many blocks.
    #[must_use = "it frees the memory, which a lock may outlast"]
    pub fn clear(&mut self) -> impl Sized + use<> {
        self.is_whole = false;
        core::mem::take(&mut self.nodes)
    }

    /// Everything has arrived.
    pub fn complete(&mut self) {
        self.is_whole = true;
    }

    /// The agent has responded.
    pub fn mark_updated(&mut self, now: Duration) {
        self.updated = Some(now);
    }

    /// Whether the index has everything, and is not too old.
    pub fn is_known(&self, now: Duration) -> bool {
        let is_recent = |updated| now.saturating_sub(updated) <= STALE_AFTER;
        self.is_whole && self.updated.is_some_and(is_recent)
    }

    /// Nodes, roots included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is no block.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Heap bytes of the nodes.
    pub fn bytes(&self) -> usize {
        self.nodes.bytes()
    }
}

#[cfg(test)]
mod tests;
