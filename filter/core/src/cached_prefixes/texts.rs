//! The texts of a request's prompts.

use core::fmt::Debug;

use crate::request::body::{Api, Body};
use crate::request::prompt::{Piece, Prompt};

/// Maximum number of prompts of a request. The search of a further one costs time of its own, and no client sends this number.
const MAX_PROMPTS: usize = 64;

/// The texts of a model's prompts. A shell makes them, because not every shell includes the library for chat templates.
pub trait PromptTexts: Debug + Send + Sync {
    /// Whether chats can have texts.
    fn has_chats(&self) -> bool;

    /// The text of a chat that came by this API, of at most `max_bytes` bytes; `None`: not known. `body` is the body of the request.
    fn chat(&self, api: Api, body: &[u8], max_bytes: usize) -> Option<String>;

    /// The text of a prompt of a completion request, as the server will tokenize it.
    fn completion(&self, prompt: String) -> String;
}

/// Whether requests to this API can be matched by the texts of their prompts.
pub fn can_match(api: Api) -> bool {
    api == Api::Completions || is_chat(api)
}

/// Whether the prompts of requests to this API are chats.
pub fn is_chat(api: Api) -> bool {
    [Api::Chat, Api::Messages, Api::Responses].contains(&api)
}

/// The texts of the prompts of a request, as its server will tokenize them; `None`: not known. `bytes` is the whole body. A text of a chat
/// has at most `max_bytes` bytes.
pub fn texts(
    texts: &dyn PromptTexts,
    api: Api,
    body: &Body<'_>,
    bytes: &[u8],
    max_bytes: usize,
) -> Option<Vec<String>> {
    // The tokens of an image, video or audio depend on its content.
    if body.is_form || body.prompt.has_media() {
        return None;
    }
    if is_chat(api) {
        return Some(vec![texts.chat(api, bytes, max_bytes)?]);
    }
    if api != Api::Completions || body.prompt.lists().len() > MAX_PROMPTS {
        return None;
    }
    let prompts: Option<Vec<String>> = given_texts(&body.prompt).collect();
    Some(prompts?.into_iter().map(|prompt| texts.completion(prompt)).collect())
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
