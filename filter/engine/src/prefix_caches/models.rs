//! The models of a pool, and the texts of their prompts.

use std::sync::Arc;

use endpoint_picker::cached_prefixes::{PromptTexts, can_match, is_chat};
use endpoint_picker::request::body::Api;
use endpoint_picker::state::prefix::key;
use endpoint_picker_wire::prefixes::Model;
use hashbrown::HashMap;

/// A model as it is served under one name.
#[derive(Clone, Debug)]
pub struct ServedModel {
    root: Arc<str>,
    texts: Arc<dyn PromptTexts>,
}

impl ServedModel {
    /// The name in the root key of the model's cached prefixes: the first of a base model's names, or an adapter's own.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// The texts of its prompts.
    pub fn texts(&self) -> &dyn PromptTexts {
        &*self.texts
    }
}

/// The models of a pool by the names under which they are served.
#[derive(Clone, Debug, Default)]
pub struct ServedModels {
    by_name: HashMap<String, Arc<ServedModel>>,
    /// Whether chats with one of them or more can have texts.
    have_chats: bool,
}

impl ServedModels {
    /// The models whose prefixes are known, with keys that are made as here. Of two with one name the first counts.
    pub fn new(models: &[Model], texts_of: impl Fn(&Model) -> Arc<dyn PromptTexts>) -> Self {
        let (mut served, mut have_chats) = (HashMap::new(), false);
        for model in models.iter().filter(|model| model.problem.is_empty()) {
            let first = model.names.first().filter(|first| key::root(first, None) == model.root);
            let Some(first) = first else { continue };
            let texts = texts_of(model);
            have_chats |= texts.has_chats();
            let base = Arc::new(ServedModel { root: first.as_str().into(), texts: Arc::clone(&texts) });
            for name in &model.names {
                served.entry(name.clone()).or_insert_with(|| Arc::clone(&base));
            }
            for name in &model.adapters {
                let adapter =
                    || Arc::new(ServedModel { root: name.as_str().into(), texts: Arc::clone(&texts) });
                served.entry(name.clone()).or_insert_with(adapter);
            }
        }
        Self { by_name: served, have_chats }
    }

    /// Whether the prompts of requests to this API have texts, for one model or more.
    pub(super) fn have_texts(&self, api: Api) -> bool {
        can_match(api) && if is_chat(api) { self.have_chats } else { !self.by_name.is_empty() }
    }

    /// The model of this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<ServedModel>> {
        self.by_name.get(name).cloned()
    }
}
