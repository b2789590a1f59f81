//! From a request's path to the parser and the API its body belongs to.

use std::borrow::Cow;

use memchr::memchr2;
use percent_encoding::percent_decode_str;

use super::{Api, BodyError};
use crate::headers::Headers;

/// A request parser of the EPP, under its plugin type's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parser {
    /// `openai-parser`
    OpenAi,
    /// `anthropic-parser`
    Anthropic,
    /// `vllmhttp-parser`
    VllmHttp,
    /// `sglanghttp-parser`
    SglangHttp,
    /// `vllmgrpc-parser`
    VllmGrpc,
    /// `vertexai-parser`
    VertexAi,
    /// `passthrough-parser`
    Passthrough,
}

impl Parser {
    /// Every parser.
    pub const ALL: [Self; 7] = [
        Self::OpenAi,
        Self::Anthropic,
        Self::VllmHttp,
        Self::SglangHttp,
        Self::VllmGrpc,
        Self::VertexAi,
        Self::Passthrough,
    ];

    /// Whether it reads messages of gRPC.
    pub fn is_of_grpc(self) -> bool {
        match self {
            Self::VllmGrpc | Self::VertexAi => true,
            Self::OpenAi | Self::Anthropic | Self::VllmHttp | Self::SglangHttp | Self::Passthrough => false,
        }
    }

    /// The plugin type's name in the EPP's configuration.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai-parser",
            Self::Anthropic => "anthropic-parser",
            Self::VllmHttp => "vllmhttp-parser",
            Self::SglangHttp => "sglanghttp-parser",
            Self::VllmGrpc => "vllmgrpc-parser",
            Self::VertexAi => "vertexai-parser",
            Self::Passthrough => "passthrough-parser",
        }
    }

    /// The parser of a plugin type's name.
    pub fn from_type_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|parser| parser.type_name() == name)
    }

    /// The ends of paths that the parser claims, each with its API.
    fn claims(self) -> impl Iterator<Item = (&'static str, Api)> {
        let apis = Api::ALL.iter().filter(move |api| api.rules().parser == self);
        apis.flat_map(|&api| api.rules().paths.iter().map(move |&end| (end, api)))
    }
}

/// The parsers in use, in the order they were configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsers {
    parsers: Vec<Parser>,
    /// The ends of paths that these parsers claim, each with its API.
    claims: Vec<(&'static str, Api)>,
    /// Whether paths are compared by whole segments.
    by_segments: bool,
}

impl Default for Parsers {
    /// The EPP's parsers for a configuration without any.
    fn default() -> Self {
        Self::new(&[Parser::OpenAi, Parser::Anthropic, Parser::VllmHttp, Parser::Passthrough])
    }
}

impl Parsers {
    /// The parsers of a configuration; an empty list means the default. A parser that is repeated, or comes
    /// after one that takes every path, has no effect.
    pub fn new(configured: &[Parser]) -> Self {
        if configured.is_empty() {
            return Self::default();
        }
        let mut parsers = Vec::new();
        for &parser in configured {
            if !parsers.contains(&parser) {
                parsers.push(parser);
            }
            if parser == Parser::Passthrough {
                break;
            }
        }
        let claiming = parsers.iter().filter(|parser| **parser != Parser::Passthrough);
        let claims = claiming.flat_map(|parser| parser.claims()).collect();
        Self { parsers, claims, by_segments: false }
    }

    /// Compares paths by whole segments, as our own rules do; `false`: by any end, as the EPP does.
    #[must_use]
    pub fn by_segments(self, by_segments: bool) -> Self {
        Self { by_segments, ..self }
    }

    /// The API of a path, [as the server reads it](as_served). The longest claimed end decides, among equal
    /// ones the parser configured first.
    pub fn api(&self, path: &str) -> Result<Api, BodyError> {
        let path = without_query(path);
        let served_path = as_served(path);
        let trimmed = served_path.trim();
        let trimmed = trimmed.strip_suffix('/').unwrap_or(trimmed);

        // Nearly all ends differ from the path's in their last bytes.
        let last_bytes = trimmed.as_bytes().last_chunk::<4>();
        let may_be_end =
            |claim: &str| claim.as_bytes().last_chunk::<4>().is_none_or(|last| Some(last) == last_bytes);
        let mut best: Option<(&str, Api)> = None;
        for &(claim, api) in self.claims.iter().filter(|(claim, _)| may_be_end(claim)) {
            let is_end = if self.by_segments {
                is_end_by_segments(trimmed, claim, api)
            } else {
                trimmed.ends_with(claim)
            };
            if is_end && best.is_none_or(|(longest, _)| claim.len() > longest.len()) {
                best = Some((claim, api));
            }
        }
        match best {
            Some((_, api)) if (api.rules().serves)(&served_path) => Ok(api),
            Some((_, api)) => Err(BodyError::UnsupportedPath { api, path: path.to_owned() }),
            None if !self.parsers.contains(&Parser::Passthrough) => {
                Err(BodyError::NoParser { path: path.to_owned() })
            }
            None => {
                let mut claims = Parser::Passthrough.claims();
                let claim = claims.find(|(claim, _)| ends_with_segments(trimmed, claim));
                Ok(claim.map_or(Api::ModelOnly, |(_, api)| api))
            }
        }
    }
}

/// Whether `path` ends with the segments of `end`.
fn ends_with_segments(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|before| before.is_empty() || before.ends_with('/'))
}

/// Whether the path is one of `api`, which claims this end, by our own rules. A method of gRPC is in a
/// service of any package, whose name is not a segment of its own.
fn is_end_by_segments(path: &str, end: &str, api: Api) -> bool {
    if api.rules().messages.is_some() {
        return path.ends_with(end);
    }
    let Some(before) = path.strip_suffix(end) else { return false };
    let Some(before) = before.strip_suffix('/') else { return before.is_empty() };
    api.rules().follows.is_none_or(|follows| before.is_empty() || ends_with_segments(before, follows))
}

/// Whether a request opens a tunnel: `CONNECT`, or a `GET` with an upgrade such as that to a WebSocket. The
/// data in a tunnel is not a body, whatever the path, and may continue after the response has ended.
pub fn opens_tunnel(headers: Headers<'_>) -> bool {
    match headers.get(":method") {
        Some("CONNECT") => true,
        Some("GET") => headers.get("upgrade").is_some(),
        _ => false,
    }
}

/// The path that decides, without its query: `path`, from the request's head, or, if that is empty, the
/// header `x-original-path` or `x-forwarded-path`; the path of completions without any of them.
pub fn request_path<'h>(path: Option<&'h str>, headers: Headers<'h>) -> &'h str {
    let path = path.filter(|path| !path.is_empty());
    let given = path.or_else(|| headers.get_either(["x-original-path", "x-forwarded-path"]));
    given.map_or("/v1/completions", without_query)
}

/// Cuts a path before its query or fragment.
fn without_query(path: &str) -> &str {
    memchr2(b'?', b'#', path.as_bytes()).map_or(path, |end| &path[..end])
}

/// The path of a request as the server behind the proxy reads it: decodes `%xx` once, then removes empty
/// segments and resolves `.` and `..`. `path` has no query.
///
/// Servers decode a path before they look up its route: `/v1/chat/completion%73` is served as
/// `/v1/chat/completions`. A rule that compared the raw text could be evaded by writing one letter
/// differently.
fn as_served(path: &str) -> Cow<'_, str> {
    let is_plain = |pair: &[u8]| !matches!(pair, [b'/', b'/' | b'.'] | [b'%', _]);
    if path.as_bytes().windows(2).all(is_plain) {
        return Cow::Borrowed(path);
    }
    let decoded = percent_decode_str(path).decode_utf8_lossy();
    if decoded.contains("//") || decoded.contains("/.") { Cow::Owned(resolve(&decoded)) } else { decoded }
}

fn resolve(path: &str) -> String {
    let mut kept = String::with_capacity(path.len());
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => kept.truncate(kept.rfind('/').unwrap_or(0)),
            segment => {
                kept.push('/');
                kept.push_str(segment);
            }
        }
    }
    if path.rsplit('/').next().is_some_and(|last| matches!(last, "" | "." | "..")) {
        kept.push('/');
    }
    kept
}
