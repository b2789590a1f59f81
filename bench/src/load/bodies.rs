//! Request bodies for wrk, one in a line.

use serde_json::json;
use std::fmt::Display;

/// Placeholder in a request body: wrk replaces it by a number of the same length that no other request has.
pub const NEW_NUMBER: &str = "A-NUMBER-NOT-YET";

/// A chat request of about this many bytes, in one line.
pub fn chat_line(number: impl Display, bytes: usize, stream: bool) -> String {
    let text = format!("Prompt {number}: the quick brown fox jumps over the lazy dog. ").repeat(bytes / 50);
    let body = |content: &str| {
        let message = json!({"role": "user", "content": content});
        format!(
            "{}\n",
            json!({"model": "demo-model", "messages": [message], "max_tokens": 256, "stream": stream})
        )
    };
    let room = bytes - body("").len();
    body(&text[..room])
}
