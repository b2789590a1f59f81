//! The filter's own configuration: its pool, and limits of the bodies that it holds.

use core::fmt;
use std::sync::Arc;

use endpoint_picker::decision::FailureMode;
use endpoint_picker_wire::NamedRules;
use serde::de::{Error, IgnoredAny};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::budget::{Budget, UsedBytes};
use crate::static_pool::{EndpointList, StaticPool};

/// Minimum length of a secret, in bytes: a shorter secret can be guessed.
const MIN_SECRET_BYTES: usize = 16;

/// Minimum of `peekBytes`.
const MIN_PEEK_BYTES: usize = 1024;

/// The JSON of the filter's `configuration`. Everything else comes from the agent, if there is one.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    /// The pool's name at the agent: `name`, or `namespace/name` of a cluster.
    #[serde(deserialize_with = "pool_name")]
    pub pool: String,
    /// The proxy's cluster that reaches the agent; `None` if the shell reaches it in its own way.
    pub agent_cluster: Option<String>,
    /// The pool's endpoints, in place of an agent.
    pub endpoints: Option<EndpointList>,
    /// The rules of a pool without an agent.
    #[serde(default, deserialize_with = "named_rules")]
    pub rules: Option<NamedRules>,
    /// Whether the filter acts only on requests whose route names the pool in its metadata, for a shell that
    /// has no other configuration of routes.
    #[serde(default)]
    pub route_metadata: bool,
    /// Whether the filter picks.
    #[serde(default)]
    pub mode: Mode,
    /// The treatment of requests until the first snapshot of the pool arrives.
    #[serde(default)]
    pub failure_mode: FailureMode,
    /// How much of a request body is held.
    #[serde(default)]
    pub limits: Limits,
    /// The recipients of explanations.
    #[serde(default)]
    pub explain: Explain,
    /// Whether the tokens of responses are counted.
    #[serde(default, deserialize_with = "count_tokens")]
    pub count_tokens: bool,
}

/// Whether the filter picks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// It does.
    #[default]
    Pick,
    /// Another picker before it in the chain does. The filter decides too, changes nothing, and counts how
    /// often both agree.
    Shadow,
}

/// The recipients of explanations.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Explain {
    /// Sets a request header with the explanation, which a later filter turns into metadata for the access
    /// log.
    pub access_log: bool,
    /// The request header that asks for an explanation in the response, in lower case ...
    pub header: Option<String>,
    /// ... and the value that it must have.
    pub secret: Option<String>,
}

/// Limits of the part of a request body that is held before the request passes.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes, from 1024. A longer body is streamed as soon as its beginning has the model and a part of the
    /// prompt, unless the model has to be replaced in it.
    pub peek_bytes: usize,
    /// Maximum number of bytes that are held: while the model has not arrived, or of a body in which the
    /// model is replaced. Envoy's own limit, `per_connection_buffer_limit_bytes`, should be larger.
    pub max_held_bytes: usize,
    /// Maximum number of bytes of the bodies of all requests that are held at the same time, by all filters
    /// of the process, or of the VM in the wasm filter; a request beyond it is rejected. `None`:
    /// [`MAX_HELD_BYTES_IN_ALL`], or one body of the maximum length.
    pub max_held_bytes_in_all: Option<usize>,
    /// The treatment of a request whose model is not within [`Self::max_held_bytes`].
    pub unread_body: UnreadBody,
}

/// The default of `maxHeldBytesInAll`: 16 bodies of the maximum length, or 512 of which 1 MiB is awaited.
const MAX_HELD_BYTES_IN_ALL: usize = 512 << 20;

/// The treatment of a request whose model is not within the bytes that may be held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum UnreadBody {
    /// It is answered 413.
    #[default]
    Reject,
    /// The proxy balances it.
    Abstain,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            peek_bytes: 1 << 20,
            max_held_bytes: 32 << 20,
            max_held_bytes_in_all: None,
            unread_body: UnreadBody::default(),
        }
    }
}

/// Fields that only the native module has.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NativeFields {
    fallback: Option<IgnoredAny>,
    body_based_routing: Option<IgnoredAny>,
    list_models: Option<IgnoredAny>,
}

/// Why a configuration is refused.
#[derive(Debug)]
pub enum ConfigError {
    /// It is not JSON, or has a field that is unknown or of another type.
    Json(serde_json::Error),
    /// `pool` has this value.
    Pool(String),
    /// `fallback` is there, which only the native module has.
    Fallback,
    /// `agentCluster` is missing or empty.
    NoAgentCluster,
    /// This field, which names the agent, and `endpoints` are both there.
    AgentAndEndpoints(&'static str),
    /// `rules` is there without `endpoints`.
    RulesOfAgent,
    /// `limits.peekBytes` is out of range.
    PeekBytes(Limits),
    /// `limits.maxHeldBytesInAll` has this value, which is less than the second one, `maxHeldBytes`.
    HeldBytesInAll(usize, usize),
    /// One of `explain.header` and `explain.secret` is missing or not allowed.
    Explain,
    /// `bodyBasedRouting` is there, which only the native module has.
    BodyRouting,
    /// `listModels` is there, which only the native module has.
    ListModels,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => error.fmt(f),
            Self::Pool(pool) => write!(
                f,
                "pool is {pool:?}; allowed are letters, digits, '-', '_' and '.', and a namespace with '/' before the name"
            ),
            Self::Fallback => f.write_str(
                "fallback is a field of the native module; the wasm filter sends requests only to the endpoints of its own pool",
            ),
            Self::NoAgentCluster => f.write_str(
                "agentCluster is missing or empty; it names the Envoy cluster of the metrics agent, in whose place endpoints can list the \
                 pool's servers",
            ),
            Self::AgentAndEndpoints(field) => write!(
                f,
                "{field} and endpoints exclude each other: the pool's servers come from the agent, or from the list"
            ),
            Self::RulesOfAgent => f.write_str(
                "rules needs endpoints: with an agent, the agent has the rules (--rules, or an EndpointPickerConfig)",
            ),
            Self::PeekBytes(Limits { peek_bytes, max_held_bytes, .. }) => write!(
                f,
                "limits.peekBytes is {peek_bytes}; allowed are {MIN_PEEK_BYTES} up to maxHeldBytes, which is {max_held_bytes}"
            ),
            Self::HeldBytesInAll(value, of_one) => write!(
                f,
                "limits.maxHeldBytesInAll is {value}; allowed are maxHeldBytes, which is {of_one}, and more"
            ),
            Self::Explain => write!(
                f,
                "explain.header and explain.secret go together: a header's name in lower case, and {MIN_SECRET_BYTES} bytes \
                 or more"
            ),
            Self::BodyRouting => f.write_str(
                "bodyBasedRouting is a field of the native module: Envoy does not give a wasm filter the configuration of a route, so \
                 the filter could not pick in the pool of the route that results",
            ),
            Self::ListModels => f.write_str(
                "listModels is a field of the native module; the wasm filter has the models of its own pool only",
            ),
        }
    }
}

impl core::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Json(error) => Some(error),
            Self::Pool(_)
            | Self::Fallback
            | Self::NoAgentCluster
            | Self::AgentAndEndpoints(_)
            | Self::RulesOfAgent
            | Self::PeekBytes(_)
            | Self::HeldBytesInAll(..)
            | Self::Explain
            | Self::BodyRouting
            | Self::ListModels => None,
        }
    }
}

impl Config {
    /// Reads and checks a configuration of a shell without further fields.
    pub fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        if let Ok(NativeFields { fallback, body_based_routing, list_models }) = serde_json::from_slice(json) {
            if fallback.is_some() {
                return Err(ConfigError::Fallback);
            }
            if body_based_routing.is_some() {
                return Err(ConfigError::BodyRouting);
            }
            if list_models.is_some() {
                return Err(ConfigError::ListModels);
            }
        }
        serde_json::from_slice::<Self>(json).map_err(ConfigError::Json)?.checked()
    }

    /// The same configuration, if it is allowed.
    pub fn checked(self) -> Result<Self, ConfigError> {
        if !is_pool_name(&self.pool) {
            return Err(ConfigError::Pool(self.pool));
        }
        if self.agent_cluster.as_ref().is_some_and(String::is_empty) {
            return Err(ConfigError::NoAgentCluster);
        }
        if self.agent_cluster.is_some() && self.endpoints.is_some() {
            return Err(ConfigError::AgentAndEndpoints("agentCluster"));
        }
        if self.rules.is_some() && self.endpoints.is_none() {
            return Err(ConfigError::RulesOfAgent);
        }
        self.limits.checked()?;
        if !self.explain.is_valid() {
            return Err(ConfigError::Explain);
        }
        Ok(self)
    }

    /// The pool without an agent; `None`: there is an agent.
    pub fn static_pool(&self) -> Option<StaticPool> {
        let endpoints = self.endpoints.clone()?;
        Some(StaticPool::new(&self.pool, endpoints, self.rules.unwrap_or_default()))
    }

    /// The cluster that reaches the agent, for a shell that has no other way to it.
    pub fn required_agent_cluster(&self) -> Result<&str, ConfigError> {
        self.agent_cluster.as_deref().ok_or(ConfigError::NoAgentCluster)
    }
}

/// Whether this is `name` or `namespace/name`.
pub fn is_pool_name(text: &str) -> bool {
    let is_refused = |c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c));
    let is_part = |part: &str| !part.is_empty() && !part.contains(is_refused);
    text.split_once('/')
        .map_or_else(|| is_part(text), |(namespace, name)| is_part(namespace) && is_part(name))
}

impl Limits {
    /// The same limits, if they are allowed.
    pub fn checked(self) -> Result<Self, ConfigError> {
        if !(MIN_PEEK_BYTES..=self.max_held_bytes).contains(&self.peek_bytes) {
            return Err(ConfigError::PeekBytes(self));
        }
        match self.max_held_bytes_in_all {
            Some(value) if value < self.max_held_bytes => {
                Err(ConfigError::HeldBytesInAll(value, self.max_held_bytes))
            }
            Some(_) | None => Ok(self),
        }
    }

    /// The room for bodies that are held, of which these bytes are used. Each of them has a limit already.
    pub fn budget(&self, used: Arc<UsedBytes>) -> Arc<Budget> {
        Budget::of(used, usize::MAX, self.held_bytes_in_all())
    }

    /// Maximum number of bytes of all bodies that are held at the same time.
    pub fn held_bytes_in_all(&self) -> usize {
        self.max_held_bytes_in_all.unwrap_or(MAX_HELD_BYTES_IN_ALL.max(self.max_held_bytes))
    }
}

impl Explain {
    fn is_valid(&self) -> bool {
        match (&self.header, &self.secret) {
            (None, None) => true,
            (Some(header), Some(secret)) => {
                let is_lower_case = !header.bytes().any(|byte| byte.is_ascii_uppercase());
                !header.is_empty() && is_lower_case && secret.len() >= MIN_SECRET_BYTES
            }
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

/// Reads `pool` of a shell that has no configuration for routes.
fn pool_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let pool = Option::deserialize(deserializer)?;
    pool.ok_or_else(|| {
        D::Error::custom(
            "pool is null, which only the native module allows, because a route can name a pool there; in the wasm filter, set \
             \"disabled\": true in the HTTP filter, and enable it for a route by a FilterConfig in typed_per_filter_config, or set routeMetadata",
        )
    })
}

/// Reads `rules`.
pub fn named_rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<NamedRules>, D::Error> {
    let name = String::deserialize(deserializer)?;
    let refused = || {
        let allowed = NamedRules::ALL.map(NamedRules::as_str).join(" and ");
        D::Error::custom(format_args!(
            "rules is {name:?}; allowed without an agent are {allowed}. An agent reads other rules"
        ))
    };
    NamedRules::named(&name).map(Some).ok_or_else(refused)
}

/// Reads `countTokens`. Serde's own message for a value of another type would not name the field.
pub fn count_tokens<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let refused = || D::Error::custom(format_args!("countTokens is {value}; allowed are true and false"));
    value.as_bool().ok_or_else(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        Config::parse(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn pool_and_cluster_are_enough() {
        let config = Config::parse(br#"{"pool": "a-b_c.1", "agentCluster": "agent"}"#).unwrap();
        assert_eq!(config.mode, Mode::Pick);
        assert_eq!(config.failure_mode, FailureMode::FailOpen);
        assert_eq!(config.limits.peek_bytes, 1 << 20);
        assert_eq!(config.limits.max_held_bytes, 32 << 20);
        assert_eq!(config.limits.held_bytes_in_all(), 512 << 20);
        assert_eq!(config.limits.unread_body, UnreadBody::Reject);
        assert!(!config.count_tokens && !config.explain.access_log && config.explain.header.is_none());
    }

    #[test]
    fn every_field_is_read() {
        let config = Config::parse(
            br#"{"pool": "p", "agentCluster": "agent", "mode": "shadow", "failureMode": "FailClose", "countTokens": true,
                "limits": {"peekBytes": 1024, "maxHeldBytes": 1024, "maxHeldBytesInAll": 1024, "unreadBody": "Abstain"},
                "explain": {"accessLog": true, "header": "x-why", "secret": "0123456789abcdef"}}"#,
        )
        .unwrap();
        assert_eq!(config.mode, Mode::Shadow);
        assert_eq!(config.failure_mode, FailureMode::FailClose);
        assert_eq!((config.limits.peek_bytes, config.limits.max_held_bytes), (1024, 1024));
        assert_eq!(config.limits.held_bytes_in_all(), 1024);
        assert_eq!(config.limits.unread_body, UnreadBody::Abstain);
        assert!(config.count_tokens && config.explain.access_log);
        assert_eq!(config.explain.header.as_deref(), Some("x-why"));
    }

    #[test]
    fn a_pool_may_have_a_namespace() {
        let config = Config::parse(br#"{"pool": "inference/chat.v1", "agentCluster": "agent"}"#).unwrap();
        assert_eq!(config.pool, "inference/chat.v1");
    }

    #[test]
    fn a_refusal_names_the_field_and_what_is_allowed() {
        for pool in ["", "/", "a/", "/b", "a/b/c", "a b"] {
            let json = serde_json::json!({"pool": pool, "agentCluster": "agent"}).to_string();
            let expected = format!("pool is {pool:?}; allowed are letters, digits, '-', '_' and '.'");
            assert!(refusal(&json).starts_with(&expected), "{pool}");
        }
        let with = |field: &str| format!(r#"{{"pool": "p", "agentCluster": "agent", {field}}}"#);
        for (field, expected) in [
            (r#""limits": {"peekBytes": 1023}"#, "limits.peekBytes is 1023; allowed are 1024 up to"),
            (r#""limits": {"peekBytes": 4096, "maxHeldBytes": 2048}"#, "maxHeldBytes, which is 2048"),
            (
                r#""limits": {"maxHeldBytesInAll": 33554431}"#,
                "limits.maxHeldBytesInAll is 33554431; allowed are maxHeldBytes, which is 33554432, and more",
            ),
            (r#""countTokens": "yes""#, r#"countTokens is "yes"; allowed are true and false"#),
            (r#""magic": 1"#, "unknown field `magic`"),
            (r#""fallback": []"#, "fallback is a field of the native module"),
            (r#""listModels": []"#, "listModels is a field of the native module"),
            (r#""mode": "observe""#, "unknown variant `observe`, expected `pick` or `shadow`"),
            (r#""failureMode": "Maybe""#, "unknown variant `Maybe`, expected `FailOpen` or `FailClose`"),
        ] {
            let refusal = refusal(&with(field));
            assert!(refusal.contains(expected), "{refusal}");
        }
        assert!(
            refusal(r#"{"pool": "p", "agentCluster": ""}"#).starts_with("agentCluster is missing or empty")
        );
        let off = refusal(r#"{"pool": null, "agentCluster": "agent"}"#);
        assert!(off.starts_with("pool is null, which only the native module allows"), "{off}");
        assert!(refusal(r#"{"agentCluster": "agent"}"#).starts_with("missing field `pool`"));
        let routing = refusal(r#"{"pool": "p", "agentCluster": "agent", "bodyBasedRouting": false}"#);
        assert!(routing.starts_with("bodyBasedRouting is a field of the native module"), "{routing}");
        let without = Config::parse(br#"{"pool": "p"}"#).unwrap();
        assert!(matches!(without.required_agent_cluster(), Err(ConfigError::NoAgentCluster)));
        assert!(refusal("{").contains("EOF"));
    }

    #[test]
    fn endpoints_take_the_place_of_the_agent_with_rules_by_name() {
        let list = r#"{"pool": "p", "endpoints": ["10.0.0.1:8000", "[2001:db8::1]:8000"]}"#;
        let config = Config::parse(list.as_bytes()).unwrap();
        assert!(config.static_pool().is_some());
        let with = |fields: &str| format!(r#"{{"pool": "p", {fields}}}"#);
        let epp = with(r#""endpoints": ["10.0.0.1:8000"], "rules": "epp""#);
        assert_eq!(Config::parse(epp.as_bytes()).unwrap().rules, Some(NamedRules::Epp));
        assert!(Config::parse(with(r#""agentCluster": "a""#).as_bytes()).unwrap().static_pool().is_none());

        let many: Vec<_> = (0..10_001).map(|port| format!("10.0.{}.{}:1", port / 250, port % 250)).collect();
        let many = serde_json::json!({"pool": "p", "endpoints": many}).to_string();
        assert!(refusal(&many).starts_with("endpoints has 10001 entries; allowed are 1 to 10000"));
        for (fields, expected) in [
            (r#""endpoints": []"#, "endpoints has 0 entries; allowed are 1 to 10000"),
            (r#""endpoints": ["10.0.0.1:1", "10.0.0.1:1"]"#, "endpoints has 10.0.0.1:1 twice"),
            (r#""endpoints": ["[::1]:1", "[0:0:0:0:0:0:0:1]:1"]"#, "endpoints has [::1]:1 twice"),
            (r#""endpoints": ["vllm-1:8000"]"#, r#"endpoints has "vllm-1:8000"; allowed are an IP address"#),
            (r#""endpoints": ["10.0.0.1"]"#, r#"endpoints has "10.0.0.1"; allowed are"#),
            (r#""endpoints": ["10.0.0.1:0"]"#, "a port that is not 0"),
            (r#""endpoints": ["::1:80"]"#, "[2001:db8::1]:8000"),
            (r#""endpoints": ["http://10.0.0.1:80"]"#, "allowed are an IP address"),
            (r#""endpoints": "10.0.0.1:1""#, "invalid type: string"),
            (r#""endpoints": [1]"#, "invalid type: integer"),
            (r#""agentCluster": "a", "endpoints": ["10.0.0.1:1"]"#, "agentCluster and endpoints exclude"),
            (r#""agentCluster": "a", "rules": "epp""#, "rules needs endpoints: with an agent"),
            (r#""endpoints": ["10.0.0.1:1"], "rules": "lora""#, r#"rules is "lora"; allowed without an"#),
            (r#""endpoints": ["10.0.0.1:1"], "agent": {}"#, "unknown field `agent`"),
        ] {
            let refusal = refusal(&with(fields));
            assert!(refusal.contains(expected), "{refusal}");
        }
    }

    #[test]
    fn an_explanation_needs_a_header_in_lower_case_and_a_long_secret() {
        for explain in [
            r#"{"header": "x-why"}"#,
            r#"{"secret": "0123456789abcdef"}"#,
            r#"{"header": "", "secret": "0123456789abcdef"}"#,
            r#"{"header": "X-Why", "secret": "0123456789abcdef"}"#,
            r#"{"header": "x-why", "secret": "0123456789abcde"}"#,
        ] {
            let json = format!(r#"{{"pool": "p", "agentCluster": "agent", "explain": {explain}}}"#);
            assert!(refusal(&json).starts_with("explain.header and explain.secret go together"), "{explain}");
        }
    }
}
