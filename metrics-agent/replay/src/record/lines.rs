//! Requests as JSON lines: the record of the picker, and Mooncake's traces.

use super::{BLOCK_SIZES, Line, check_blocks, milliseconds, parse, tokens};
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use xxhash_rust::xxh64::xxh64;

/// The format of a record that is read.
const FORMAT: &str = "endpoint-picker/1";

/// The first line of a record. Files of one record may follow each other, each with its header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// Seconds since the epoch of the time that `timestamp` counts from.
    started: f64,
    /// Tokens of a block.
    pub(super) block_tokens: u32,
}

#[derive(Deserialize)]
struct HeaderFields<'a> {
    #[serde(borrow)]
    record: Cow<'a, str>,
    started: Option<f64>,
    block_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Fields<'a> {
    timestamp: f64,
    input_length: f64,
    output_length: f64,
    max_output_length: Option<f64>,
    #[serde(borrow)]
    adapter: Option<Cow<'a, str>>,
    session: Option<Value>,
    tenant: Option<Value>,
    /// Tokens of a block, where they differ from the header's.
    block_tokens: Option<u32>,
    #[serde(default)]
    hash_ids: Vec<u64>,
    #[serde(borrow)]
    endpoint: Option<Cow<'a, str>>,
    first_token_ms: Option<f64>,
    end_ms: Option<f64>,
    #[serde(borrow)]
    outcome: Option<Cow<'a, str>>,
    cached_tokens: Option<f64>,
    shadow_agrees: Option<bool>,
}

/// The header in a line; `None`: it is none.
pub(super) fn header(text: &str) -> Result<Option<Header>, String> {
    // Most lines are none, and are not read twice.
    if !text.get(..MAX_BEFORE_RECORD.min(text.len())).is_some_and(|begin| begin.contains("\"record\"")) {
        return Ok(None);
    }
    let Ok(fields) = serde_json::from_str::<HeaderFields<'_>>(text) else { return Ok(None) };
    if fields.record != FORMAT {
        return Err(format!("record is {:?}; must be {FORMAT:?}", fields.record));
    }
    let block_tokens = fields.block_tokens.unwrap_or(0);
    if !(1..=BLOCK_SIZES[6]).contains(&block_tokens) {
        return Err(format!("block_tokens is {block_tokens}; must be 1 to {}", BLOCK_SIZES[6]));
    }
    let started = fields.started.filter(|started| started.is_finite()).unwrap_or(0.0) / 1e3;
    Ok(Some(Header { started, block_tokens }))
}

/// Bytes of a line in which a header names itself.
const MAX_BEFORE_RECORD: usize = 256;

/// Reads a request.
pub(super) fn read(text: &str, header: Option<Header>) -> Result<Line<'_>, String> {
    let fields: Fields<'_> = parse(text)?;
    if !fields.timestamp.is_finite() {
        return Err("timestamp must be finite".to_owned());
    }
    let input = tokens("input_length", fields.input_length)?;
    let block = header.map_or(BLOCK_SIZES[6], |header| header.block_tokens);
    if header.is_none() && !fields.hash_ids.is_empty() {
        check_blocks(fields.hash_ids.len(), block, input)?;
    }
    let optional = |name: &str, number: Option<f64>| number.map(|number| tokens(name, number)).transpose();
    let time = |name: &str, number: Option<f64>| number.map(|number| milliseconds(name, number)).transpose();
    let is_served = fields.outcome.as_deref().is_none_or(|outcome| outcome == "served");
    Ok(Line {
        at: header.map_or(0.0, |header| header.started) + fields.timestamp / 1e3,
        input,
        output: tokens("output_length", fields.output_length)?,
        max_output: optional("max_output_length", fields.max_output_length)?,
        session: fields.session.as_ref().and_then(identity),
        tenant: fields.tenant.as_ref().and_then(identity),
        adapter: fields.adapter.filter(|name| !name.is_empty()),
        server: fields.endpoint.filter(|name| !name.is_empty()),
        first_token: time("first_token_ms", fields.first_token_ms)?,
        end: time("end_ms", fields.end_ms)?,
        cached: optional("cached_tokens", fields.cached_tokens)?,
        shadow_agrees: fields.shadow_agrees,
        is_unserved: !is_served,
        // Blocks of another size have nothing in common with the others.
        blocks: if fields.block_tokens.is_some_and(|own| own != block) {
            Vec::new()
        } else {
            fields.hash_ids
        },
    })
}

/// A number for a session or a tenant, which is a number or a text.
fn identity(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) if !text.is_empty() => Some(xxh64(text.as_bytes(), 0)),
        Value::Number(number) => Some(xxh64(number.to_string().as_bytes(), 0)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}
