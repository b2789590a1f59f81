//! The caches of a pool's servers and the models that they serve, as the agent publishes them.
//!
//! They are part of neither the [view](crate::pool_view) nor the [ledger](crate::ledger): they change many
//! times a second, and no request changes them. A shell that includes the library for chat templates keeps
//! them behind a lock of their own, which a decision takes before the ledger's.

mod models;
mod update;

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::cached_prefixes::{CachedPrefixes, Events, PromptBytes};
use endpoint_picker::request::body::Api;
use endpoint_picker::request::cached_prompt::CachedPrompt;

pub use models::{ServedModel, ServedModels};
pub use update::{CachesUpdate, Step, UpdateError};

/// The caches of a pool's servers.
#[derive(Debug, Default)]
pub struct PrefixCaches {
    index: CachedPrefixes,
    models: Arc<ServedModels>,
}

impl PrefixCaches {
    /// Applies a step of an update. The result frees the memory of forgotten blocks when it is dropped, which
    /// takes long for many blocks.
    #[must_use = "it frees the memory, which a lock may outlast"]
    pub fn apply(&mut self, step: &Step<'_>) -> impl Sized + use<> {
        let mut forgotten = None;
        match *step {
            Step::Begin { is_whole, caches, models } => {
                if is_whole {
                    forgotten = Some(self.index.clear());
                }
                if let Some(models) = models {
                    self.models = Arc::clone(models);
                }
                let events = |state: &endpoint_picker_wire::prefixes::CacheState| Events {
                    endpoint: state.endpoint,
                    by_text: state.complete,
                    by_token_ids: state.complete_by_token_ids,
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
                for (endpoint, tier, ranks, block) in blocks.stored() {
                    if let Some(holder) = self.index.holder(endpoint) {
                        self.index.store(holder, tier, ranks, &block);
                    }
                }
            }
            Step::End { is_last: true } => self.index.complete(),
            Step::End { is_last: false } => {}
        }
        forgotten
    }

    /// The agent has responded.
    pub fn mark_updated(&mut self, now: Duration) {
        self.index.mark_updated(now);
    }

    /// Whether the caches are known, and prompts of requests to this API can be matched, for one model or
    /// more.
    pub fn can_match(&self, api: Api, now: Duration) -> bool {
        self.index.is_known(now) && self.models.can_match(api)
    }

    /// The model that is served under this name, if its prefixes are known.
    pub fn model(&self, name: &str) -> Option<Arc<ServedModel>> {
        self.models.find(name)
    }

    /// The part of prompts that is in the caches.
    pub fn find(&self, model: &ServedModel, salt: Option<&str>, prompts: &PromptBytes) -> CachedPrompt {
        let PromptBytes { kind, prompts } = prompts;
        let root = kind.root(model.root(), salt);
        self.index.find(root, *kind, prompts.iter().map(Vec::as_slice))
    }
}
