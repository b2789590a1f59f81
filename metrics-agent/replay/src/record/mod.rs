//! Recorded requests, read from foreign files: bounded, and refused with the number of the line.
//!
//! Five formats are read, and the first line decides:
//!
//! - the record of the picker: JSON lines behind a [header](lines::Header);
//! - Mooncake's traces, and others with hashed blocks: the same lines without the header. The size of a block
//!   follows from the lengths: the smallest power of two from 16 on with which the blocks of each prompt
//!   suffice;
//! - `AgentX`'s traces, a [session](weka) of an agent a line;
//! - CSV with the header `TIMESTAMP,ContextTokens,GeneratedTokens`: Azure's traces of 2023;
//! - the access log of the shipped `envoy.yaml`, whose tokens are estimated from bytes.

mod access_log;
mod azure;
mod lines;
mod time;
mod weka;

use core::fmt;
use core::ops::Range;
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::io::BufRead;
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a prompt or a response.
pub const MAX_TOKENS: u32 = 1 << 20;
/// Maximum number of requests of a record.
pub const MAX_REQUESTS: usize = 2_000_000;
/// Maximum number of blocks of all prompts together: 1 GiB.
const MAX_BLOCKS: usize = 1 << 27;
/// Maximum number of bytes of a line: a prompt of [`MAX_TOKENS`] in blocks of 16 has 1.2 MB, a session with
/// 1 000 prompts of 256 000 tokens in blocks of 64 some 32 MB.
const MAX_LINE: usize = 64 << 20;
/// Maximum number of different endpoints, and of different adapters.
const MAX_NAMES: usize = 1_000;
/// Maximum number of bytes of a name.
const MAX_NAME: usize = 256;
/// Maximum time of a request since the first one: a year.
const MAX_TIME: f64 = 366.0 * 86_400.0;
const BLOCK_SIZES: [u32; 7] = [16, 32, 64, 128, 256, 512, 1024];

/// Recorded requests.
#[derive(Clone, Debug)]
pub struct Record {
    /// The requests in the order of their times; at least two.
    pub requests: Vec<RecordedRequest>,
    /// Tokens of a block.
    pub block_tokens: u32,
    /// The endpoints, in the order of their first requests.
    pub servers: Vec<String>,
    /// The adapters.
    pub adapters: Vec<Arc<str>>,
    /// Lines of an access log that are no served requests of an API with prompts.
    pub passed_over: usize,
    /// The decisions that did not act.
    pub shadow: ShadowCounts,
    blocks: Vec<u64>,
}

/// Decisions of rules that did not act on the recorded requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShadowCounts {
    /// Requests with such a decision.
    pub compared: usize,
    /// The number of these on which both did the same, but for chance.
    pub agreed: usize,
}

/// One request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// When it came, since the first one.
    pub at: Duration,
    /// Tokens of its prompt.
    pub input: u32,
    /// Tokens of its response, at least 1.
    pub output: u32,
    /// The limit of its response that the client named.
    pub max_output: Option<u32>,
    /// Its session.
    pub session: Option<u64>,
    /// Its tenant.
    pub tenant: Option<u64>,
    /// The place of its adapter in [`Record::adapters`].
    pub adapter: Option<u16>,
    /// The place of its endpoint in [`Record::servers`].
    pub server: Option<u16>,
    /// Time until its first token.
    pub first_token: Option<Duration>,
    /// Time until its end.
    pub end: Option<Duration>,
    /// Tokens of its prompt that its server had cached.
    pub cached: Option<u32>,
    /// Whether a server served it.
    pub is_served: bool,
    blocks: Range<u32>,
}

/// The line of a file that is not a record's, and its problem.
#[derive(Debug, PartialEq, Eq)]
pub struct RecordError {
    line: usize,
    problem: String,
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.problem)
    }
}

impl std::error::Error for RecordError {}

/// A line of any format.
#[derive(Debug, Default)]
struct Line<'a> {
    /// Seconds since any origin, one for all lines.
    at: f64,
    input: u32,
    output: u32,
    max_output: Option<u32>,
    session: Option<u64>,
    tenant: Option<u64>,
    adapter: Option<Cow<'a, str>>,
    server: Option<Cow<'a, str>>,
    first_token: Option<Duration>,
    end: Option<Duration>,
    cached: Option<u32>,
    shadow_agrees: Option<bool>,
    is_unserved: bool,
    blocks: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum RecordFormat {
    Lines(Option<lines::Header>),
    Azure,
    AccessLog,
    /// Sessions with blocks of this many tokens.
    Weka(u32),
}

impl Record {
    /// Reads a record, or several files of one, one behind another.
    pub fn read(mut input: impl BufRead) -> Result<Self, RecordError> {
        let mut reader = RecordReader::default();
        let mut bytes = Vec::new();
        let mut number = 0;
        loop {
            number += 1;
            let at_line = |problem: String| RecordError { line: number, problem };
            bytes.clear();
            let is_end = read_line(&mut input, &mut bytes).map_err(at_line)?;
            let text = core::str::from_utf8(&bytes).map_err(|error| at_line(format!("no UTF-8: {error}")))?;
            let text = text.trim_start_matches('\u{feff}').trim();
            if !text.is_empty() {
                reader.line(text).map_err(at_line)?;
            }
            if is_end {
                break;
            }
        }
        reader.finish()
    }

    /// The hashes of the blocks of a request's prompt, each of everything up to the end of the block.
    pub fn blocks(&self, request: &RecordedRequest) -> &[u64] {
        let Range { start, end } = request.blocks;
        self.blocks.get(start as usize..end as usize).unwrap_or_default()
    }

    /// Whether any prompt has blocks.
    pub fn has_blocks(&self) -> bool {
        !self.blocks.is_empty()
    }
}

#[derive(Debug, Default)]
struct RecordReader {
    format: Option<RecordFormat>,
    requests: Vec<(f64, RecordedRequest)>,
    blocks: Vec<u64>,
    servers: Names,
    adapters: Names,
    passed_over: usize,
    shadow: ShadowCounts,
}

/// Names in the order of their first use.
#[derive(Debug, Default)]
struct Names(HashMap<Box<str>, u16>);

impl Names {
    fn place(&mut self, kind: &str, name: &str) -> Result<u16, String> {
        let Self(names) = self;
        if let Some(place) = names.get(name) {
            return Ok(*place);
        }
        if name.len() > MAX_NAME {
            return Err(format!("{kind} has {} bytes; must be at most {MAX_NAME}", name.len()));
        }
        let place = u16::try_from(names.len()).ok().filter(|place| usize::from(*place) < MAX_NAMES);
        let place = place.ok_or_else(|| format!("{kind} has more than {MAX_NAMES} different values"))?;
        names.insert(name.into(), place);
        Ok(place)
    }

    fn into_vec(self) -> Vec<Box<str>> {
        let mut names: Vec<_> = self.0.into_iter().collect();
        names.sort_unstable_by_key(|(_, place)| *place);
        names.into_iter().map(|(name, _)| name).collect()
    }
}

/// Reads a line of at most [`MAX_LINE`] bytes. Returns whether it is the last one.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, String> {
    loop {
        let part = input.fill_buf().map_err(|error| error.to_string())?;
        let end = part.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(part.len());
        if line.len() + taken > MAX_LINE {
            return Err(format!("more than {MAX_LINE} bytes"));
        }
        line.extend_from_slice(part.get(..taken).unwrap_or_default());
        let (is_end, consumed) = (part.is_empty(), taken + usize::from(end.is_some()));
        input.consume(consumed);
        if is_end || end.is_some() {
            return Ok(is_end);
        }
    }
}

impl RecordReader {
    fn line(&mut self, text: &str) -> Result<(), String> {
        let format = match self.format {
            Some(RecordFormat::Lines(header)) => match lines::header(text)? {
                Some(next) => {
                    let block_tokens = header.map(|header| header.block_tokens);
                    if block_tokens.is_some_and(|tokens| tokens != next.block_tokens) {
                        return Err("block_tokens differs from the first header's".to_owned());
                    }
                    self.format = Some(RecordFormat::Lines(Some(next)));
                    return Ok(());
                }
                None => RecordFormat::Lines(header),
            },
            Some(format) => format,
            None => {
                if text == azure::HEADER {
                    self.format = Some(RecordFormat::Azure);
                    return Ok(());
                }
                if let Some(header) = lines::header(text)? {
                    self.format = Some(RecordFormat::Lines(Some(header)));
                    return Ok(());
                }
                if weka::is_line(text) {
                    RecordFormat::Weka(weka::read(text)?.0)
                } else if access_log::is_line(text) {
                    RecordFormat::AccessLog
                } else {
                    RecordFormat::Lines(None)
                }
            }
        };
        self.format = Some(format);
        let line = match format {
            RecordFormat::Lines(header) => lines::read(text, header)?,
            RecordFormat::Azure => azure::read(text)?,
            RecordFormat::AccessLog => {
                let Some(line) = access_log::read(text)? else {
                    self.passed_over += 1;
                    return Ok(());
                };
                line
            }
            RecordFormat::Weka(block_tokens) => {
                let (own, lines) = weka::read(text)?;
                if own != block_tokens {
                    return Err(format!("block_size is {own}; must be {block_tokens}, the first line's"));
                }
                return lines.into_iter().try_for_each(|line| self.add(line));
            }
        };
        self.add(line)
    }

    fn add(&mut self, line: Line<'_>) -> Result<(), String> {
        if self.requests.len() == MAX_REQUESTS {
            return Err(format!("more than {MAX_REQUESTS} requests"));
        }
        if self.blocks.len() + line.blocks.len() > MAX_BLOCKS {
            return Err(format!("more than {MAX_BLOCKS} blocks of prompts in all lines"));
        }
        let start = self.blocks.len();
        self.blocks.extend_from_slice(&line.blocks);
        let place = |place: usize| u32::try_from(place).unwrap_or(u32::MAX);
        let request = RecordedRequest {
            at: Duration::ZERO,
            input: line.input.max(1),
            output: line.output.max(1),
            max_output: line.max_output,
            session: line.session,
            tenant: line.tenant,
            adapter: line.adapter.map(|name| self.adapters.place("adapter", &name)).transpose()?,
            server: line.server.map(|name| self.servers.place("endpoint", &name)).transpose()?,
            first_token: line.first_token,
            end: line.end.max(line.first_token),
            cached: line.cached.map(|cached| cached.min(line.input)),
            is_served: !line.is_unserved,
            blocks: place(start)..place(self.blocks.len()),
        };
        self.requests.push((line.at, request));
        self.shadow.compared += usize::from(line.shadow_agrees.is_some());
        self.shadow.agreed += usize::from(line.shadow_agrees == Some(true));
        Ok(())
    }

    fn finish(self) -> Result<Record, RecordError> {
        let Self { format, mut requests, blocks, servers, adapters, passed_over, shadow } = self;
        requests.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let first = match requests.first() {
            Some((first, _)) if requests.len() > 1 => *first,
            _ => {
                let expected = azure::HEADER;
                let problem = format!(
                    "no record: neither a header, nor {expected:?}, nor two requests as lines of JSON"
                );
                return Err(RecordError { line: 1, problem });
            }
        };
        let fits = |size: &u32| {
            requests.iter().all(|(_, request)| {
                let number = u64::from(request.blocks.end - request.blocks.start);
                number == 0 || number * u64::from(*size) >= request.input.into()
            })
        };
        let block_tokens = match format {
            Some(RecordFormat::Lines(Some(header))) => header.block_tokens,
            Some(RecordFormat::Weka(block_tokens)) => block_tokens,
            Some(RecordFormat::Lines(None) | RecordFormat::Azure | RecordFormat::AccessLog) | None => {
                BLOCK_SIZES.into_iter().find(fits).unwrap_or(BLOCK_SIZES[6])
            }
        };
        let timed = |(at, request): (f64, RecordedRequest)| {
            let at = Duration::from_secs_f64((at - first).clamp(0.0, MAX_TIME));
            RecordedRequest { at, ..request }
        };
        Ok(Record {
            requests: requests.into_iter().map(timed).collect(),
            block_tokens,
            servers: servers.into_vec().into_iter().map(String::from).collect(),
            adapters: adapters.into_vec().into_iter().map(Arc::from).collect(),
            passed_over,
            shadow,
            blocks,
        })
    }
}

/// Reads a line of JSON.
fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|error| {
        // The number of the line is the record's, not this text's.
        let (place, text) =
            (format!(" at line {} column {}", error.line(), error.column()), error.to_string());
        let problem = text.strip_suffix(&place).unwrap_or(&text);
        format!("{problem} at column {}", error.column())
    })
}

/// Checks that this many blocks are not fewer than those of a prompt.
fn check_blocks(blocks: usize, block_tokens: u32, input: u32) -> Result<(), String> {
    let needed = input.div_ceil(block_tokens);
    if (blocks as u64) < u64::from(needed) {
        let is = "the number of hash_ids is";
        return Err(format!("{is} {blocks} for {input} tokens; must be at least {needed}"));
    }
    Ok(())
}

/// A number of tokens.
fn tokens(name: &str, number: f64) -> Result<u32, String> {
    if !(0.0..=f64::from(MAX_TOKENS)).contains(&number) {
        return Err(format!("{name} is {number}; must be 0 to {MAX_TOKENS}"));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in its range")]
    Ok(number as u32)
}

/// A time in milliseconds.
fn milliseconds(name: &str, number: f64) -> Result<Duration, String> {
    if !(0.0..=MAX_TIME * 1e3).contains(&number) {
        return Err(format!("{name} is {number}; must be 0 to {}", MAX_TIME * 1e3));
    }
    Ok(Duration::from_secs_f64(number / 1e3))
}

#[cfg(test)]
mod tests;
