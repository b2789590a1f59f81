//! Reading request bodies, and the hashes of their prompts.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod anthropic;
mod canonical;
mod chat;
mod escapes;
mod forms;
mod generate;
mod hashes;
mod hostile;
mod inputs;
mod invocations;
mod items;
mod media;
mod messages;
mod model_span;
mod oracle;
mod own_rules;
mod paths;
mod refusals;
mod renaming;
mod syntax;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) use wasm_bindgen_test::wasm_bindgen_test as test;

use endpoint_picker::request::body::{Api, Body, BodyError, Options};
use endpoint_picker::request::prompt::{Piece, Prompt};

/// The APIs with a prompt: each with one of its paths, and the fields that its bodies must have.
pub(crate) const APIS: [(Api, &str, &str); 9] = [
    (Api::Chat, "/v1/chat/completions", r#""messages":[{"role":"user","content":"hi"}]"#),
    (Api::Completions, "/v1/completions", r#""prompt":"hi""#),
    (Api::Embeddings, "/v1/embeddings", r#""input":"hi""#),
    (Api::Responses, "/v1/responses", r#""input":"hi""#),
    (Api::Conversations, "/v1/conversations", r#""items":[{"role":"user"}]"#),
    (Api::Images, "/v1/images/generations", r#""prompt":"hi""#),
    (Api::Messages, "/v1/messages", r#""messages":[{"role":"user","content":"hi"}]"#),
    (Api::Generate, "/inference/v1/generate", r#""token_ids":[1]"#),
    (Api::SglangGenerate, "/generate", r#""input_ids":[1]"#),
];

pub(crate) fn read(api: Api, json: &str) -> Result<Body<'_>, BodyError> {
    Body::read(json, api, &Options::default())
}

/// Reads a body that keeps no more than `keep_bytes` of its prompt.
pub(crate) fn read_limited(api: Api, json: &str, keep_bytes: usize) -> Body<'_> {
    Body::read(json, api, &Options { keep_bytes, ..Options::default() }).unwrap()
}

/// The bytes of every list of a prompt, by the rules in their simplest form.
pub(crate) fn bytes(prompt: &Prompt<'_>) -> Vec<Vec<u8>> {
    prompt.lists().iter().map(|list| list_bytes(&list.pieces)).collect()
}

fn list_bytes(list: &[Piece<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in list {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text),
            Piece::Media { token, count } => {
                out.resize(out.len().next_multiple_of(4), 0);
                for _ in 0..*count {
                    out.extend_from_slice(&token.to_le_bytes());
                }
            }
            Piece::Ids(ids) => ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes())),
        }
    }
    out
}

/// The text of a prompt that is one list of text.
pub(crate) fn text(api: Api, json: &str) -> String {
    let body = read(api, json).unwrap_or_else(|error| panic!("{json}: {error}"));
    let lists = bytes(&body.prompt);
    assert!(lists.len() < 2, "{json}: one prompt expected");
    String::from_utf8(lists.concat()).unwrap()
}

/// The message a body is refused with.
pub(crate) fn refusal(api: Api, json: &str) -> String {
    match read(api, json) {
        Err(error) => error.to_string(),
        Ok(body) => panic!("{json} was not refused: {body:?}"),
    }
}
