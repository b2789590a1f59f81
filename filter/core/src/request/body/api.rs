//! From a request's path to the parser and the API its body belongs to.

use super::BodyError;
use super::path::{as_served, without_query};
use crate::headers::Headers;

/// The API that a request body belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI chat completions, and their rendering.
    Chat,
    /// OpenAI completions, and their rendering.
    Completions,
    /// OpenAI embeddings.
    Embeddings,
    /// OpenAI responses.
    Responses,
    /// OpenAI conversations.
    Conversations,
    /// OpenAI image generation; has no prompt tokens.
    Images,
    /// Anthropic messages.
    Messages,
    /// Anthropic token counting; only its model is read.
    CountTokens,
    /// Other paths with a model: `/tokenize` and `/detokenize`, `/rerank`, `/score`, `/classify`, `/pooling` and `/embed`; only the
    /// model is read.
    ModelOnly,
    /// OpenAI audio and edits of images, whose bodies are forms or JSON; only the model is read.
    Upload,
    /// `/invocations`, as on Amazon's platform for models, whose bodies are chats, completions, embeddings, or others.
    Invocations,
    /// vLLM's own generation from token ids.
    Generate,
    /// SGLang's own generation from token ids.
    SglangGenerate,
    /// Any other; the body is passed on unread.
    Raw,
}

impl Api {
    /// Whether the decision depends on a model named in the body, which a policy may replace.
    pub fn names_model(self) -> bool {
        !matches!(self, Self::SglangGenerate | Self::Raw)
    }

    /// Whether only the model of the body is read.
    pub fn reads_only_model(self) -> bool {
        matches!(self, Self::CountTokens | Self::ModelOnly | Self::Upload)
    }

    /// Whether a body without a model is passed on as it is.
    pub fn may_lack_model(self) -> bool {
        self.reads_only_model() || self == Self::Invocations
    }

    /// The API of a path that no parser claims.
    fn of_unclaimed(path: &str) -> Self {
        let mut segments = path.rsplit('/');
        match (segments.next(), segments.next()) {
            (Some("invocations"), _) => Self::Invocations,
            (Some("tokenize" | "detokenize" | "rerank" | "score" | "classify" | "pooling" | "embed"), _) => {
                Self::ModelOnly
            }
            (Some(_), Some("audio")) | (Some("edits" | "variations"), Some("images")) => Self::Upload,
            _ => Self::Raw,
        }
    }
}

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
    /// `passthrough-parser`
    Passthrough,
}

impl Parser {
    /// Every parser.
    pub const ALL: [Self; 5] =
        [Self::OpenAi, Self::Anthropic, Self::VllmHttp, Self::SglangHttp, Self::Passthrough];

    /// The plugin type's name in the EPP's configuration.
    pub fn type_name(self) -> &'static str {
        match self {
            Self::OpenAi => "openai-parser",
            Self::Anthropic => "anthropic-parser",
            Self::VllmHttp => "vllmhttp-parser",
            Self::SglangHttp => "sglanghttp-parser",
            Self::Passthrough => "passthrough-parser",
        }
    }

    /// The parser of a plugin type's name.
    pub fn from_type_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|parser| parser.type_name() == name)
    }

    /// The path suffixes that the parser claims, each with its API. Empty for the parser of all other paths.
    fn claims(self) -> &'static [(&'static str, Api)] {
        match self {
            Self::OpenAi => &[
                ("chat/completions", Api::Chat),
                ("completions", Api::Completions),
                ("embeddings", Api::Embeddings),
                ("responses", Api::Responses),
                ("conversations", Api::Conversations),
                ("chat/completions/render", Api::Chat),
                ("completions/render", Api::Completions),
                ("images/generations", Api::Images),
            ],
            Self::Anthropic => &[("messages", Api::Messages), ("messages/count_tokens", Api::CountTokens)],
            Self::VllmHttp => &[("inference/v1/generate", Api::Generate)],
            Self::SglangHttp => &[("generate", Api::SglangGenerate)],
            Self::Passthrough => &[],
        }
    }
}

/// The parsers in use, in the order they were configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsers(Vec<Parser>);

impl Default for Parsers {
    /// The EPP's parsers for a configuration without any.
    fn default() -> Self {
        Self(vec![Parser::OpenAi, Parser::Anthropic, Parser::VllmHttp, Parser::Passthrough])
    }
}

impl Parsers {
    /// The parsers of a configuration; an empty list means the default. A parser that is repeated, or comes after one that
    /// takes every path, has no effect.
    pub fn new(configured: &[Parser]) -> Self {
        if configured.is_empty() {
            return Self::default();
        }
        let mut parsers = Vec::new();
        for &parser in configured {
            if !parsers.contains(&parser) {
                parsers.push(parser);
            }
            if parser.claims().is_empty() {
                break;
            }
        }
        Self(parsers)
    }

    /// The API of a path, [as the server reads it](as_served). The longest claimed suffix decides, also one that does not
    /// begin at a `/`; among equal ones the parser configured first.
    pub fn api(&self, path: &str) -> Result<Api, BodyError> {
        let path = without_query(path);
        let served_path = as_served(path);
        let end = served_path.trim();
        let end = end.strip_suffix('/').unwrap_or(end);

        let mut best: Option<(&str, Api)> = None;
        for parser in &self.0 {
            for &(claim, api) in parser.claims() {
                if end.ends_with(claim) && best.is_none_or(|(longest, _)| claim.len() > longest.len()) {
                    best = Some((claim, api));
                }
            }
        }
        match best {
            Some((_, api)) if served(api, &served_path) => Ok(api),
            Some((_, api)) => Err(BodyError::UnsupportedPath { api, path: path.to_owned() }),
            None if !self.0.contains(&Parser::Passthrough) => {
                Err(BodyError::NoParser { path: path.to_owned() })
            }
            None => Ok(Api::of_unclaimed(end)),
        }
    }
}

/// Whether the parser serves the path: three parsers check it more strictly than by suffix.
fn served(api: Api, path: &str) -> bool {
    match api {
        Api::Messages => path.ends_with("/messages"),
        Api::CountTokens => path.ends_with("/messages/count_tokens"),
        Api::Generate => path.ends_with("inference/v1/generate"),
        Api::SglangGenerate => {
            let path = path.trim();
            matches!(path.strip_suffix('/').unwrap_or(path), "generate" | "/generate")
        }
        Api::Chat
        | Api::Completions
        | Api::Embeddings
        | Api::Responses
        | Api::Conversations
        | Api::Images
        | Api::ModelOnly
        | Api::Upload
        | Api::Invocations
        | Api::Raw => true,
    }
}

/// Whether a request opens a tunnel: `CONNECT`, or a `GET` with an upgrade such as that to a WebSocket. The data in a tunnel is
/// not a body, whatever the path, and may go on after the server has answered.
pub fn opens_tunnel(headers: Headers<'_>) -> bool {
    match headers.get(":method") {
        Some("CONNECT") => true,
        Some("GET") => headers.get("upgrade").is_some(),
        _ => false,
    }
}
