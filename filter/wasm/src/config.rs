//! The filter's own configuration: which pool, and who tells about it.

use endpoint_picker::decision::FailureMode;
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Written as JSON into the filter's `configuration`; everything else comes from the agent.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Config {
    /// The pool's name at the agent.
    pub(crate) pool: String,
    /// The Envoy cluster that reaches the agent.
    pub(crate) agent_cluster: String,
    /// What happens to requests while the agent has not yet told about the pool.
    #[serde(default)]
    pub(crate) failure_mode: FailureMode,
    /// How much of a body is held.
    #[serde(default)]
    pub(crate) limits: Limits,
    /// Who is told why an endpoint was picked.
    #[serde(default)]
    pub(crate) explain: Explain,
    /// Whether answers are read for the tokens they took.
    #[serde(default, deserialize_with = "count_tokens")]
    pub(crate) count_tokens: bool,
}

/// Who is told why an endpoint was picked.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Explain {
    /// The access log: a request header that the filter behind this one turns into metadata.
    pub(crate) access_log: bool,
    /// Clients that send this header...
    pub(crate) header: Option<String>,
    /// ... with this value: a header of the answer.
    pub(crate) secret: Option<String>,
}

/// How much of a request's body is held before the request goes on.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// A body longer than this is not waited for: it is streamed as soon as its beginning tells the model and a part of the
    /// prompt, and no other model has to be named in it. Bytes, from 1024.
    pub(crate) peek_bytes: usize,
    /// The most that is held while the model has not come, or of a body in which another one is to be named. Bytes. Envoy's
    /// own limit, `per_connection_buffer_limit_bytes`, should be larger.
    pub(crate) max_held_bytes: usize,
    /// What becomes of a request whose model has not come by then.
    pub(crate) unread_body: UnreadBody,
}

/// What becomes of a request whose model is not within the bytes that may be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum UnreadBody {
    /// It is answered 413.
    #[default]
    Reject,
    /// It is left to the proxy's own balancing.
    Abstain,
}

/// A secret that cannot be guessed.
const SHORTEST_SECRET: usize = 16;

impl Default for Limits {
    fn default() -> Self {
        Self { peek_bytes: 1 << 20, max_held_bytes: 32 << 20, unread_body: UnreadBody::default() }
    }
}

/// Reads `countTokens`; what serde would say of another type does not name the field.
fn count_tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let refused = || D::Error::custom(format_args!("countTokens is {value}; allowed are true and false"));
    value.as_bool().ok_or_else(refused)
}

impl Config {
    /// Reads the configuration; the error names the field, what is allowed, and where.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, String> {
        let config: Self = serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let bad = |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c));
        if config.pool.is_empty() || config.pool.contains(bad) {
            return Err(format!("pool is {:?}; allowed are letters, digits, '-', '_' and '.'", config.pool));
        }
        if config.agent_cluster.is_empty() {
            return Err("agentCluster is empty; it names the Envoy cluster of the metrics agent".to_owned());
        }
        let Limits { peek_bytes, max_held_bytes, .. } = config.limits;
        if !(1024..=max_held_bytes).contains(&peek_bytes) {
            return Err(format!(
                "limits.peekBytes is {peek_bytes}; allowed are 1024 up to maxHeldBytes, which is {max_held_bytes}"
            ));
        }
        match (&config.explain.header, &config.explain.secret) {
            (None, None) => {}
            (Some(header), Some(secret))
                if !header.is_empty()
                    && !header.bytes().any(|byte| byte.is_ascii_uppercase())
                    && secret.len() >= SHORTEST_SECRET => {}
            _ => {
                return Err(format!(
                    "explain.header and explain.secret go together: a header's name in lower case, and {SHORTEST_SECRET} \
                     bytes or more"
                ));
            }
        }
        Ok(config)
    }
}
