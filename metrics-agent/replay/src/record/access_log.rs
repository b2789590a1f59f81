//! The access log of the shipped `envoy.yaml`: when requests came, where they went, and bytes.

use super::time::seconds;
use super::{Line, MAX_TOKENS, milliseconds, parse};
use serde::Deserialize;
use std::borrow::Cow;

/// Bytes of a request's body for each token of its prompt, the picker's own estimate.
const REQUEST_BYTES: f64 = 4.0;

/// Bytes of a response for each of its tokens: a chunk of a streamed chat with its frame, about.
const RESPONSE_BYTES: f64 = 250.0;

/// Paths of the APIs with prompts end with these.
const PATHS: [&str; 3] = ["/completions", "/messages", "/responses"];

#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    time: Cow<'a, str>,
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow)]
    path: Cow<'a, str>,
    status: f64,
    #[serde(borrow)]
    upstream: Option<Cow<'a, str>>,
    duration_ms: f64,
    bytes_received: f64,
    bytes_sent: f64,
}

/// Whether a line is one of the log.
pub(super) fn is_line(text: &str) -> bool {
    serde_json::from_str::<Fields<'_>>(text).is_ok()
}

/// Reads a request; `None`: no server served a prompt.
pub(super) fn read(text: &str) -> Result<Option<Line<'_>>, String> {
    let fields: Fields<'_> = parse(text)?;
    let path = fields.path.split('?').next().unwrap_or_default();
    let is_prompt = fields.method == "POST" && PATHS.iter().any(|end| path.ends_with(end));
    let server = fields.upstream.filter(|address| address.len() > 1);
    if !is_prompt || !(200.0..300.0).contains(&fields.status) || server.is_none() {
        return Ok(None);
    }
    let time = &fields.time;
    let at =
        seconds(time).ok_or_else(|| format!("time is {time:?}; must be like 2026-11-29T15:46:02.117Z"))?;
    Ok(Some(Line {
        at,
        input: estimated(fields.bytes_received / REQUEST_BYTES),
        output: estimated(fields.bytes_sent / RESPONSE_BYTES),
        server,
        end: Some(milliseconds("duration_ms", fields.duration_ms)?),
        ..Line::default()
    }))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn estimated(tokens: f64) -> u32 {
    tokens.clamp(1.0, f64::from(MAX_TOKENS)) as u32
}
