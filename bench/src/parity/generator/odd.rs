//! Requests that are refused, or that are unusual: bad bodies, other APIs, hints outside the pool.

use crate::parity::case::Request;
use crate::parity::draw::Draw;
use endpoint_picker_model_server::MODEL;
use serde_json::json;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const IMAGES: &str = "/v1/images/generations";
const UNKNOWN: &str = "/v1/unheard-of";

const SGLANG: &str = "/generate";

/// Paths of bodies of which the EPP counts no tokens.
pub(super) const UNREAD: [&str; 3] = [IMAGES, SGLANG, UNKNOWN];

/// Bodies that no picker can do anything with, and some that look as if.
const BAD: [(&str, &str); 34] = [
    (CHAT, "{"),
    (CHAT, "[]"),
    (CHAT, "null"),
    (CHAT, "\"text\""),
    (CHAT, "17"),
    (CHAT, "{} {}"),
    (CHAT, "{}"),
    (CHAT, r#"{"model":"m"}"#),
    (CHAT, r#"{"model":"m","messages":[]}"#),
    (CHAT, r#"{"model":"m","messages":{}}"#),
    (CHAT, r#"{"model":"m","messages":"hello"}"#),
    (CHAT, r#"{"model":"m","messages":[1]}"#),
    (CHAT, r#"{"model":"m","messages":[{"role":"user"}]}"#),
    (CHAT, r#"{"model":"m","messages":[{"role":"user","content":5}]}"#),
    (CHAT, r#"{"model":"m","messages":[{"role":"user","content":null}]}"#),
    (CHAT, r#"{"model":"m","messages":[{"role":7,"content":"a"}]}"#),
    (CHAT, r#"{"messages":[{"role":"user","content":"a"}]}"#),
    (CHAT, r#"{"model":"","messages":[{"role":"user","content":"a"}]}"#),
    (CHAT, r#"{"model":7,"messages":[{"role":"user","content":"a"}]}"#),
    (CHAT, r#"{"model":"m","messages":[{"role":"user","content":"a"}],"cache_salt":7}"#),
    (CHAT, r#"{"model":"m","messages":[{"role":"user","content":"a"}],"stream":"yes"}"#),
    (CHAT, r#"{"model":"m","messages":[{"role":"user","content":"a"}]"#),
    (TEXT, r#"{"model":"m"}"#),
    (TEXT, r#"{"model":"m","prompt":""}"#),
    (TEXT, r#"{"model":"m","prompt":[]}"#),
    (TEXT, r#"{"model":"m","prompt":[1,"a"]}"#),
    (TEXT, r#"{"model":"m","prompt":["a",1]}"#),
    (TEXT, r#"{"model":"m","prompt":{"a":1}}"#),
    (TEXT, r#"{"model":"m","prompt":[-1]}"#),
    (TEXT, r#"{"model":"m","prompt":null}"#),
    (TEXT, r#"{"prompt":"a"}"#),
    ("/v1/embeddings", r#"{"model":"m"}"#),
    ("/v1/responses", r#"{"model":"m"}"#),
    ("/v1/messages", r#"{"model":"m","messages":[]}"#),
];

impl Draw {
    /// A request out of the ordinary.
    pub(crate) fn odd(&mut self, servers: usize) -> Request {
        match self.below(12) {
            0..=4 => {
                let (path, body) = BAD[self.bad_bodies % BAD.len()];
                self.bad_bodies += 1;
                Request { path: path.to_owned(), body: Some(body.to_owned()), ..Request::default() }
            }
            5..=7 => self.other_api(),
            10 | 11 => Request { path: "/v1/models".to_owned(), ..Request::default() },
            // No endpoint of the pool, or one of the pool and one outside it.
            8 if self.chance(50) => Request { subset: Some(vec![]), ..self.ordinary(false) },
            8 => Request { subset: Some(vec![servers]), ..self.ordinary(false) },
            _ => {
                let server = usize::try_from(self.below(servers)).unwrap_or(0);
                Request { subset: Some(vec![server, servers]), ..self.ordinary(false) }
            }
        }
    }

    /// A request to an API other than chat and text completions, or to a path that is not known. Version
    /// v0.10.0 of the EPP refuses the last two, so they must not leave traces that matter. Nor may a
    /// conversation, whose prompt only the EPP finds again.
    fn other_api(&mut self) -> Request {
        let prompt = self.prompt();
        let message = |text: &str| json!([{"role": "user", "content": text}]);
        self.other_apis += 1;
        let (path, body) = match self.other_apis % 9 {
            0 => ("/v1/embeddings", json!({"model": MODEL, "input": prompt})),
            1 => ("/v1/embeddings", json!({"model": MODEL, "input": [prompt, self.prompt()]})),
            2 => ("/v1/responses", json!({"model": MODEL, "input": prompt, "instructions": "be < kind"})),
            3 => ("/v1/conversations", json!({"model": MODEL, "items": message(&self.words(12))})),
            4 => (
                "/v1/messages",
                json!({"model": MODEL, "messages": message(&prompt), "system": "s", "max_tokens": 5}),
            ),
            5 => (IMAGES, json!({"model": MODEL, "prompt": prompt})),
            6 => (
                "/inference/v1/generate",
                json!({"model": MODEL, "token_ids": (0..300).collect::<Vec<u32>>()}),
            ),
            7 => (SGLANG, json!({"model": MODEL, "text": self.words(12)})),
            _ => (UNKNOWN, json!({"model": MODEL, "prompt": self.words(12)})),
        };
        Request { path: path.to_owned(), body: Some(body.to_string()), ..Request::default() }
    }
}
