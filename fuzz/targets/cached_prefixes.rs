//! Cached prefixes, from the bytes of the agent to the search of a prompt.
//!
//! Whatever the message, no endpoint has more of a prompt than all of it.
#![no_main]

use std::sync::Arc;
use std::time::Duration;

use endpoint_picker::cached_prefixes::{PromptBytes, PromptTexts};
use endpoint_picker::request::body::Api;
use endpoint_picker::request::cached_prompt::PromptKind;
use endpoint_picker_engine::prefix_caches::{CachesUpdate, PrefixCaches, ServedModels};
use libfuzzer_sys::fuzz_target;

/// Texts as they are.
#[derive(Debug)]
struct Plain;

impl PromptTexts for Plain {
    fn has_chats(&self) -> bool {
        true
    }

    fn chat(&self, _api: Api, body: &[u8], max_bytes: usize) -> Option<String> {
        String::from_utf8(body.to_vec()).ok().filter(|text| text.len() <= max_bytes)
    }

    fn completion(&self, prompt: String) -> String {
        prompt
    }
}

fuzz_target!(|input: &[u8]| {
    let Ok(update) = CachesUpdate::read(input) else { return };
    let models = update.models().map(|models| Arc::new(ServedModels::new(models, |_| Arc::new(Plain))));
    let mut caches = PrefixCaches::default();
    // A message may come twice.
    for _ in 0..2 {
        update.steps(models.as_ref()).for_each(|step| drop(caches.apply(&step)));
        caches.mark_updated(Duration::ZERO);
    }
    let names =
        update.models().into_iter().flatten().flat_map(|model| model.names.iter().chain(&model.adapters));
    for name in names {
        let Some(model) = caches.model(name) else { continue };
        for (kind, salt) in
            [(PromptKind::Text, None), (PromptKind::Text, Some("s")), (PromptKind::TokenIds, None)]
        {
            let prompts = PromptBytes { kind, prompts: vec![input.to_vec(), Vec::new()] };
            let found = caches.find(&model, salt, &prompts);
            let weights = endpoint_picker::request::cached_prompt::TierWeights([1.0; 3]);
            assert!(found.runs().iter().all(|run| found.part_of(run, &weights, 100) <= 100));
        }
    }
});
