//! The prompts of a request in the forms in which the index has them: as texts, or as token ids.

use core::fmt::Debug;
use std::sync::Arc;

use crate::request::body::{Api, Body};
use crate::request::cached_prompt::PromptKind;
use crate::request::prompt::{List, Piece};
use crate::state::prefix::key;

/// Maximum number of prompts of a request. The search of a further one costs time of its own, and no client
/// sends this number.
const MAX_PROMPTS: usize = 64;

impl PromptKind {
    /// The root of the prefixes of a model or adapter, and a salt.
    pub fn root(self, model_or_adapter: &str, salt: Option<&str>) -> u64 {
        match self {
            Self::Text => key::root(model_or_adapter, salt),
            Self::TokenIds => key::root_of_token_ids(model_or_adapter, salt),
        }
    }
}

/// The bytes of a request's prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptBytes {
    /// The kind of all of them.
    pub kind: PromptKind,
    /// The bytes of each.
    pub prompts: Vec<Vec<u8>>,
}

/// The texts of a model's prompts. A shell makes them, because not every shell includes the library for chat
/// templates.
pub trait PromptTexts: Debug + Send + Sync {
    /// Whether chats can have texts.
    fn has_chats(&self) -> bool;

    /// The text of a chat that came by this API, of at most `max_bytes` bytes; `None`: not known. `body` is
    /// the body of the request.
    fn chat(&self, api: Api, body: &[u8], max_bytes: usize) -> Option<String>;

    /// The text of a prompt of a completion request, as the server will tokenize it.
    fn completion(&self, prompt: String) -> String;
}

/// The prompts of a model that can be matched with cached prefixes.
#[derive(Clone, Debug, Default)]
pub struct MatchedPrompts {
    /// The texts of its prompts; `None`: its prefixes are not known by their text.
    pub texts: Option<Arc<dyn PromptTexts>>,
    /// Whether its prefixes are known by their token ids.
    pub has_token_ids: bool,
}

/// Whether the prompts of requests to this API can be matched with cached prefixes.
pub fn can_match(api: Api) -> bool {
    matches!(api, Api::Completions | Api::Generate) || is_chat(api)
}

fn is_chat(api: Api) -> bool {
    matches!(api, Api::Chat | Api::Messages | Api::Responses)
}

impl MatchedPrompts {
    /// Whether prompts of requests to this API can be matched.
    pub fn can_match(&self, api: Api) -> bool {
        let has_texts = |texts: &Arc<dyn PromptTexts>| api == Api::Completions || texts.has_chats();
        match api {
            Api::Generate => self.has_token_ids,
            Api::Completions if self.has_token_ids => true,
            _ => can_match(api) && self.texts.as_ref().is_some_and(has_texts),
        }
    }

    /// The prompts of a request, as its server will have them; `None`: not known. `bytes` is the whole body.
    /// A text of a chat has at most `max_bytes` bytes.
    pub fn of_request(
        &self,
        api: Api,
        body: &Body<'_>,
        bytes: &[u8],
        max_bytes: usize,
    ) -> Option<PromptBytes> {
        // The tokens of an image, video or audio depend on its content.
        if !can_match(api) || body.is_form || body.prompt.has_media() {
            return None;
        }
        if is_chat(api) {
            let chat = self.texts.as_ref()?.chat(api, bytes, max_bytes)?;
            return Some(PromptBytes { kind: PromptKind::Text, prompts: vec![chat.into_bytes()] });
        }
        let lists = body.prompt.lists();
        if lists.len() > MAX_PROMPTS {
            return None;
        }
        let kind = match lists.first()?.pieces.first()? {
            Piece::Ids(_) => PromptKind::TokenIds,
            Piece::Text(_) | Piece::Media { .. } => PromptKind::Text,
        };
        let prompts: Option<Vec<_>> = match kind {
            PromptKind::Text => {
                let texts = self.texts.as_ref()?;
                lists.iter().map(|list| Some(texts.completion(given_text(list)?).into_bytes())).collect()
            }
            PromptKind::TokenIds if self.has_token_ids => lists.iter().map(given_ids).collect(),
            PromptKind::TokenIds => None,
        };
        Some(PromptBytes { kind, prompts: prompts? })
    }
}

/// The text of a prompt; `None`: it is not text, or was not kept whole.
fn given_text(list: &List<'_>) -> Option<String> {
    let mut text = Vec::new();
    for piece in &list.pieces {
        match piece {
            Piece::Text(piece) => text.extend_from_slice(piece),
            Piece::Media { .. } | Piece::Ids(_) => return None,
        }
    }
    String::from_utf8(text).ok().filter(|_| !list.is_cut)
}

/// The bytes of a prompt of token ids; `None`: it is another one, or was not kept whole.
fn given_ids(list: &List<'_>) -> Option<Vec<u8>> {
    match &list.pieces[..] {
        [Piece::Ids(ids)] if !list.is_cut => Some(ids.iter().flat_map(|id| id.to_le_bytes()).collect()),
        _ => None,
    }
}
