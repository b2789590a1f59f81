//! The models of a pool, and the texts of their prompts.

use core::fmt::Debug;
use std::sync::Arc;

use endpoint_picker_wire::prefixes::Model;
use hashbrown::HashMap;

/// The texts of a model's prompts. A shell makes them, because not every shell includes the library for chat templates.
pub trait PromptTexts: Debug + Send + Sync {
    /// The text of a chat request, of at most `max_bytes` bytes; `None`: not known.
    fn chat(&self, body: &[u8], max_bytes: usize) -> Option<String>;

    /// The text of a prompt of a completion request, as the server will tokenize it.
    fn completion(&self, prompt: String) -> String;
}

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
pub struct ServedModels(HashMap<String, Arc<ServedModel>>);

impl ServedModels {
    /// The models whose prefixes are known. Of two with one name the first counts.
    pub fn new(models: &[Model], texts_of: impl Fn(&Model) -> Arc<dyn PromptTexts>) -> Self {
        let mut served = HashMap::new();
        for model in models.iter().filter(|model| model.problem.is_empty()) {
            let Some(first) = model.names.first() else { continue };
            let texts = texts_of(model);
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
        Self(served)
    }

    /// Whether no model has known prefixes.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The model of this name.
    pub(super) fn find(&self, name: &str) -> Option<Arc<ServedModel>> {
        self.0.get(name).cloned()
    }
}
