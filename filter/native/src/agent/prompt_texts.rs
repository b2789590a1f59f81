//! The texts of a model's prompts, by its chat template.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use endpoint_picker::cached_prefixes::PromptTexts;
use endpoint_picker::request::body::Api;
use endpoint_picker_template::{ChatApi, ChatTemplate, normalized};
use endpoint_picker_wire::prefixes::Model;

/// The APIs whose requests are chats.
const APIS: [(Api, ChatApi); 3] = [
    (Api::Chat, ChatApi::Completions),
    (Api::Messages, ChatApi::Messages),
    (Api::Responses, ChatApi::Responses),
];

/// The texts of the prompts of one model.
#[derive(Debug)]
struct ModelTexts {
    /// `None`: it has no template, or one that cannot be used.
    template: Option<ChatTemplate>,
    /// The text before each prompt of a completion request; empty: none.
    bos: String,
    /// Whether its tokenizer normalizes texts.
    normalizes: bool,
}

/// The texts of a model's prompts. A template that cannot be used is logged: its chats have no texts.
pub(super) fn texts_of(model: &Model) -> Arc<dyn PromptTexts> {
    let Model { chat_template, bos_token, eos_token, adds_bos, normalizes, names, .. } = model;
    let compiled = Some(chat_template).filter(|template| !template.is_empty());
    let compiled = compiled.map(|template| ChatTemplate::compile(template, bos_token, eos_token));
    let template = compiled.transpose().unwrap_or_else(|error| {
        let name = names.first().map(String::as_str).unwrap_or_default();
        log::warn!("model {name:?}: {error}; its chats are matched with earlier prompts");
        None
    });
    let bos = if *adds_bos { bos_token.clone() } else { String::new() };
    Arc::new(ModelTexts { template, bos, normalizes: *normalizes })
}

impl ModelTexts {
    fn finish(&self, text: String) -> String {
        if self.normalizes { normalized(text) } else { text }
    }
}

impl PromptTexts for ModelTexts {
    fn has_chats(&self) -> bool {
        self.template.is_some()
    }

    fn chat(&self, api: Api, body: &[u8], max_bytes: usize) -> Option<String> {
        let (_, api) = APIS.into_iter().find(|(known, _)| *known == api)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs();
        match self.template.as_ref()?.render(api, body, i64::try_from(now).ok()?, max_bytes) {
            Ok(text) => Some(self.finish(text)),
            Err(error) => {
                log::debug!("a chat has no text: {error}");
                None
            }
        }
    }

    fn completion(&self, prompt: String) -> String {
        let text = if self.bos.is_empty() { prompt } else { format!("{}{prompt}", self.bos) };
        self.finish(text)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn model(template: &str) -> Model {
        Model {
            names: vec!["m".to_owned()],
            chat_template: template.to_owned(),
            bos_token: "<s>".to_owned(),
            ..Model::default()
        }
    }

    const CHAT: &[u8] = br#"{"model": "m", "messages": [{"role": "user", "content": "e\u0301"}]}"#;

    #[test]
    fn a_chat_has_the_text_that_the_template_gives_it() {
        let texts = texts_of(&model("{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"));
        assert_eq!(texts.chat(Api::Chat, CHAT, 100).as_deref(), Some("<s>e\u{301}"));
        assert_eq!(texts.chat(Api::Messages, CHAT, 100).as_deref(), Some("<s>e\u{301}"));
        assert_eq!(texts.chat(Api::Responses, br#"{"input": "a"}"#, 100).as_deref(), Some("<s>a"));
        assert_eq!(texts.chat(Api::Chat, CHAT, 5), None, "too long");
        assert_eq!(texts.chat(Api::Chat, b"{}", 100), None);
        for (unusable, has_chats) in [("", false), ("{% if", false), ("{{ raise_exception('no') }}", true)] {
            let texts = texts_of(&model(unusable));
            assert_eq!(
                (texts.has_chats(), texts.chat(Api::Chat, CHAT, 100)),
                (has_chats, None),
                "{unusable}"
            );
        }
    }

    #[test]
    fn a_completion_begins_as_the_tokenizer_begins_it_and_is_normalized() {
        let plain = model("");
        assert_eq!(texts_of(&plain).completion("e\u{301}".to_owned()), "e\u{301}");
        let both = Model { adds_bos: true, normalizes: true, ..plain };
        assert_eq!(texts_of(&both).completion("e\u{301}".to_owned()), "<s>\u{e9}");
    }
}
