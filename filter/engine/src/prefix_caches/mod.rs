//! The caches of a pool's servers and the models that they serve, as the agent publishes them.
//!
//! They are part of neither the [view](crate::pool_view) nor the [ledger](crate::ledger): they change many times a second, and no request changes
//! them. A shell that includes the library for chat templates keeps them behind a lock of their own, which a decision takes before the ledger's.

mod models;
mod update;

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::cached_prefixes::{CachedPrefixes, CachedPrompt, Events};
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::request::prompt::{Piece, Prompt};
use endpoint_picker::state::prefix::key;

pub use models::{PromptTexts, ServedModel, ServedModels};
pub use update::{CachesUpdate, Step, UpdateError};

/// Maximum time since the last response of the agent for which the caches are known.
const STALE_AFTER: Duration = Duration::from_secs(10);

/// The caches of a pool's servers.
#[derive(Debug, Default)]
pub struct PrefixCaches {
    index: CachedPrefixes,
    models: Arc<ServedModels>,
    /// Whether everything has arrived, and not only the first parts of it.
    is_whole: bool,
    /// When the agent responded last.
    updated: Option<Duration>,
}

impl PrefixCaches {
    /// Applies a step of an update. The result frees the memory of forgotten blocks when it is dropped, which takes long for many blocks.
    #[must_use = "it frees the memory, which a lock may outlast"]
    pub fn apply(&mut self, step: &Step<'_>) -> impl Sized + use<> {
        let mut forgotten = None;
        match *step {
            Step::Begin { is_whole, caches, models } => {
                if is_whole {
                    forgotten = Some(self.index.clear());
                    self.is_whole = false;
                }
                if let Some(models) = models {
                    self.models = Arc::clone(models);
                }
                let events = |state: &endpoint_picker_wire::prefixes::CacheState| Events {
                    endpoint: state.endpoint,
                    is_complete: state.complete,
                };
                self.index.follow(caches.iter().map(events));
            }
            Step::Removed(ref blocks) => {
                for (endpoint, key) in blocks.removed() {
                    if let Some(holder) = self.index.holder(endpoint) {
                        self.index.remove(holder, key);
                    }
                }
            }
            Step::Stored(ref blocks) => {
                for (endpoint, tier, block) in blocks.stored() {
                    if let Some(holder) = self.index.holder(endpoint) {
                        self.index.store(holder, tier, &block);
                    }
                }
            }
            Step::End { is_last } => self.is_whole |= is_last,
        }
        forgotten
    }

    /// The agent has responded.
    pub fn mark_updated(&mut self, now: Duration) {
        self.updated = Some(now);
    }

    /// Whether the caches are known, for one model or more.
    pub fn is_known(&self, now: Duration) -> bool {
        let is_recent = |updated| now.saturating_sub(updated) <= STALE_AFTER;
        self.is_whole && !self.models.is_empty() && self.updated.is_some_and(is_recent)
    }

    /// The model that is served under this name, if its prefixes are known.
    pub fn model(&self, name: &str) -> Option<Arc<ServedModel>> {
        self.models.find(name)
    }

    /// The part of prompts that is in the caches, by their texts.
    pub fn find(&self, model: &ServedModel, salt: Option<&str>, texts: &[String]) -> CachedPrompt {
        let root = key::root(model.root(), salt);
        self.index.find(root, texts.iter().map(String::as_bytes))
    }
}

/// Whether the prompts of requests to this API can have texts.
pub(crate) fn has_texts(api: Api) -> bool {
    matches!(api, Api::Chat | Api::Completions)
}

/// The texts of the prompts of a request, as its server will tokenize them; `None`: not known. `bytes` is the whole body. A text of a chat
/// has at most `max_bytes` bytes.
pub(crate) fn texts(
    model: &ServedModel,
    api: Api,
    body: &Body<'_>,
    bytes: &[u8],
    max_bytes: usize,
) -> Option<Vec<String>> {
    // The tokens of an image, video or audio depend on its content.
    if body.is_form || body.prompt.has_media() {
        return None;
    }
    if api == Api::Chat {
        return Some(vec![model.texts().chat(bytes, max_bytes)?]);
    }
    if api != Api::Completions {
        return None;
    }
    let texts: Option<Vec<String>> = given_texts(&body.prompt).collect();
    Some(texts?.into_iter().map(|text| model.texts().completion(text)).collect())
}

/// The prompts of a completion request; `None`: a prompt of token ids, or a prompt that was not kept whole.
fn given_texts<'a>(prompt: &'a Prompt<'_>) -> impl Iterator<Item = Option<String>> + 'a {
    prompt.lists().iter().map(|list| {
        let mut text = Vec::new();
        for piece in &list.pieces {
            match piece {
                Piece::Text(piece) => text.extend_from_slice(piece),
                Piece::Media { .. } | Piece::Ids(_) => return None,
            }
        }
        String::from_utf8(text).ok().filter(|_| !list.is_cut)
    })
}
