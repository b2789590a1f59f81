//! One case: the metrics of the model servers, the request, and the response of a picker.

use endpoint_picker_model_server::{CacheConfig, Lora, MODEL, Metrics};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::{self, Display};

/// The header that names the server of the prefill stage.
pub(crate) const PREFILL: &str = "x-prefiller-host-port";
/// The header that names the server of the encode stage.
pub(crate) const ENCODE: &str = "x-encoder-hosts-ports";
/// The header that names a data-parallel rank.
pub(crate) const RANK: &str = "x-data-parallel-host-port";
/// The header that names a server to copy KV blocks from.
pub(crate) const CACHE_SOURCE: &str = "x-kv-cache-source-host-port";
/// The header of responses that names the endpoint of a session.
pub(crate) const SESSION: &str = "x-session-token";

/// The headers that name servers.
pub(crate) const NAMING: [&str; 5] = [PREFILL, ENCODE, RANK, CACHE_SOURCE, SESSION];

/// The text in a header of a request that the address of a server takes the place of.
pub(crate) fn address_placeholder(server: usize) -> String {
    format!("{{server {server}}}")
}

/// The metrics of one model server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerState {
    /// Requests in its queue.
    pub waiting: u64,
    /// Requests being worked on.
    pub running: u64,
    /// Part of the KV cache in use.
    pub kv: f64,
    /// Its adapters, if it serves any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lora: Option<Adapters>,
    /// Tokens in a block and blocks in the cache, if it reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<(u32, u32)>,
}

/// LoRA adapters of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adapters {
    /// How many fit at a time.
    pub max: u32,
    /// Adapters of running requests.
    pub running: Vec<String>,
    /// Adapters of waiting requests.
    pub waiting: Vec<String>,
}

/// The request of the client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Path, with its query if it has one.
    pub path: String,
    /// Further headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// The subset hint as indices of servers; an index beyond the last server means an address outside the
    /// pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subset: Option<Vec<usize>>,
    /// The body; without one the request is a GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

/// A request to a pool in a given state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Every server's state.
    pub servers: Vec<ServerState>,
    /// How many requests every server is working on while the case's own is decided, see [`Request::held`];
    /// empty for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<usize>,
    /// The request.
    pub request: Request,
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Answer {
    /// A server got it.
    Served {
        /// Which one.
        by: usize,
        /// The total scores of the endpoints that were scored, where the picker returns them.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        scores: BTreeMap<usize, f64>,
        /// The servers that the picker named to it or to the client, by the header.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        named: BTreeMap<String, usize>,
    },
    /// The picker answered itself.
    Refused(Refusal),
}

/// A response with an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// Value of `x-llm-d-request-dropped-reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The message, without the text that a picker writes around every message.
    pub message: String,
}

impl ServerState {
    /// As a scrape shows it.
    pub fn metrics(&self) -> Metrics {
        Metrics {
            waiting: self.waiting,
            running: self.running,
            kv_cache_usage: self.kv,
            lora: self.lora.as_ref().map(|lora| Lora {
                max: lora.max,
                running: lora.running.clone(),
                waiting: lora.waiting.clone(),
            }),
            start_time: None,
            cache: self.cache.map(|(block_size, num_gpu_blocks)| CacheConfig { block_size, num_gpu_blocks }),
        }
    }
}

impl Request {
    /// The request that keeps a server at work.
    pub fn held(server: usize) -> Self {
        let prompt = "This one takes a while. ".repeat(20);
        let body = json!({"model": MODEL, "prompt": prompt}).to_string();
        Self {
            path: "/v1/completions".to_owned(),
            subset: Some(vec![server]),
            body: Some(body),
            headers: vec![],
        }
    }

    /// The further headers, with the addresses of these servers.
    pub(crate) fn headers_with(&self, addresses: &[String]) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        for (_, value) in headers.iter_mut().filter(|(_, value)| value.contains('{')) {
            for (server, address) in addresses.iter().enumerate() {
                *value = value.replace(&address_placeholder(server), address);
            }
        }
        headers
    }

    /// A request to which no server may respond, and that changes nothing.
    pub fn without_candidate() -> Self {
        Self { path: "/v1/models".to_owned(), subset: Some(vec![usize::MAX]), body: None, headers: vec![] }
    }
}

impl Case {
    /// The servers that held requests are sent to, in their order.
    pub fn holders(&self) -> impl Iterator<Item = usize> {
        self.held.iter().enumerate().flat_map(|(server, count)| std::iter::repeat_n(server, *count))
    }
}

impl Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, headers, subset, body } = self;
        write!(f, "{path}")?;
        for (name, value) in headers {
            write!(f, " {name}: {value}")?;
        }
        if let Some(subset) = subset {
            write!(f, " subset {subset:?}")?;
        }
        write!(f, " {}", body.as_deref().unwrap_or("(no body)"))
    }
}

impl Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Served { by, scores, named } => {
                write!(f, "server {by}")?;
                named.iter().try_for_each(|(header, server)| write!(f, "; {header}: {server}"))?;
                scores.iter().try_for_each(|(server, score)| write!(f, "; {server} scores {score}"))
            }
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {:?}", self.status, self.reason.as_deref().unwrap_or("no reason"), self.message)
    }
}
