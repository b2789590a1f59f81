//! Ordinary requests: prompts in every form, many of them with a beginning that others have as well.

use super::ADAPTERS;
use crate::parity::case::Request;
use crate::parity::draw::Draw;
use endpoint_picker_model_server::MODEL;
use serde_json::{Value, json};

/// Beginnings that prompts share, of about 1 000 bytes each: four blocks of 64 tokens of four bytes.
const TOPICS: [&str; 4] = ["harbour", "orchard", "glacier", "caravan"];
const WORDS: [&str; 12] = [
    "slow", "bright", "paper", "river", "under", "seven", "quietly", "stone", "ä€", "moving", "<b>&",
    "\"said\"",
];

impl Draw {
    /// A request that a client could send.
    pub(crate) fn ordinary(&mut self, adapters: bool) -> Request {
        let model = if adapters && self.chance(75) { *self.one_of(&ADAPTERS) } else { MODEL };
        let (path, mut body) = match self.below(10) {
            0..=2 => {
                ("/v1/chat/completions", json!({"messages": [{"role": "user", "content": self.prompt()}]}))
            }
            3 | 4 => ("/v1/chat/completions", self.conversation()),
            5 | 6 => ("/v1/completions", json!({"prompt": self.prompt()})),
            7 => ("/v1/completions", json!({"prompt": [self.prompt(), self.prompt()]})),
            8 => ("/v1/completions", json!({"prompt": [self.prompt()]})),
            _ => ("/v1/completions", json!({"prompt": self.token_ids()})),
        };
        body["model"] = model.into();
        if self.chance(10) {
            body["cache_salt"] = (*self.one_of(&["blue", "green"])).into();
        }
        if self.chance(15) {
            // A response without output proves no cached prompt here.
            body["max_tokens"] = (1 + self.below(64)).into();
        }
        let path = if self.chance(10) { format!("/gateway{path}?beta=1") } else { path.to_owned() };
        Request { path, body: Some(body.to_string()), ..Request::default() }
    }

    /// Several messages, with content in blocks and sometimes with tools.
    fn conversation(&mut self) -> Value {
        let mut blocks = vec![json!({"type": "text", "text": self.prompt()})];
        if self.chance(30) {
            let url = format!("https://example.org/{}.png", self.below(3));
            blocks.push(json!({"type": "image_url", "image_url": {"url": url}}));
        }
        blocks.push(json!({"type": "text", "text": self.words(5)}));
        let mut body = json!({"messages": [
            {"role": "system", "content": "You answer <briefly> & to the point."},
            {"role": "user", "content": blocks},
            {"role": "assistant", "content": self.words(8)},
            {"role": "user", "content": self.words(4)},
        ]});
        if self.chance(30) {
            let schema =
                json!({"type": "object", "properties": {"b": {"maximum": 1.5}, "a": {"type": "string"}}});
            let function = json!({"name": "look_up", "parameters": schema, "description": "a < b && c > d"});
            body["tools"] = json!([{"type": "function", "function": function}]);
        }
        body
    }

    /// A chat with one to three images, of which many requests have some.
    pub(crate) fn with_images(&mut self) -> Request {
        let images = 1 + self.below(3);
        let mut blocks = vec![json!({"type": "text", "text": self.prompt()})];
        for _ in 0..images {
            let url = format!("https://example.org/{}.png", self.below(6));
            blocks.push(json!({"type": "image_url", "image_url": {"url": url}}));
        }
        let body = json!({"model": MODEL, "messages": [{"role": "user", "content": blocks}]});
        let path = "/v1/chat/completions".to_owned();
        Request { path, body: Some(body.to_string()), ..Request::default() }
    }

    /// Some part of a topic from its beginning, and words of its own.
    pub(crate) fn prompt(&mut self) -> String {
        let topic = *self.one_of(&TOPICS);
        let sentences = self.below(9);
        let sentence = |number| {
            format!(
                "In sentence {number} of its story the {topic} tells what happened to the {topic} when nobody \
                 looked, and why number {number} was different. "
            )
        };
        let prompt: String = (0..sentences).map(sentence).collect();
        let count = 3 + self.below(12);
        prompt + &self.words(count)
    }

    fn token_ids(&mut self) -> Vec<u64> {
        let start = self.below(3) * 10_000;
        let shared = self.below(200);
        (start..start + shared).chain((0..5).map(|_| self.below(50_000))).collect()
    }

    pub(crate) fn words(&mut self, count: u64) -> String {
        let words: Vec<&str> = (0..count).map(|_| *self.one_of(&WORDS)).collect();
        words.join(" ")
    }
}
