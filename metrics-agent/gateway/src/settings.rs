//! Settings that all routes and clusters of the extension server share.

use core::fmt;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value as Json};

use super::ownership::Ownership;
use super::pool::RoutePool;

/// Where Envoy finds the native module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Module {
    /// The path of its file in the proxy's container.
    File(String),
    /// A name: Envoy looks for `lib<name>.so` in its search path.
    Name(String),
}

impl Module {
    /// A path begins with `/`.
    pub fn of_flag(text: &str) -> Self {
        if text.starts_with('/') { Self::File(text.to_owned()) } else { Self::Name(text.to_owned()) }
    }
}

/// Settings of the hooks. Replicas with equal settings give equal responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSettings {
    /// The pools that the filter picks for.
    pub ownership: Ownership,
    /// The module.
    pub module: Module,
    /// The module's configuration, which each route gets with its pool.
    pub filter: FilterConfig,
    /// Whether routes obey the headers of the conformance tests.
    pub conformance: bool,
}

/// The module's configuration without a pool: the way to the agents, limits, and `failureMode` for pools that
/// do not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterConfig {
    fields: Map<String, Json>,
    /// `bodyBasedRouting`, which acts before a request has its route.
    body_routing: Option<Json>,
    /// Whether the filter in the chain lists the models of its routes' pools.
    lists_models: bool,
}

/// The setting of body-based routing.
const BODY_ROUTING: &str = "bodyBasedRouting";

/// The setting of lists of models: a boolean in the file, and pools in a chain.
const LIST_MODELS: &str = "listModels";

/// A file that is not such a configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct FilterConfigError {
    file: PathBuf,
    problem: String,
}

impl fmt::Display for FilterConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (--extension-filter-config): {}", self.file.display(), self.problem)
    }
}

impl core::error::Error for FilterConfigError {}

impl FilterConfig {
    /// Reads the text of `file`. The module checks the fields; those that depend on the route are refused
    /// here.
    pub fn read(file: &Path, text: &[u8]) -> Result<Self, FilterConfigError> {
        let refuse = |problem: String| FilterConfigError { file: file.to_owned(), problem };
        let mut fields: Map<String, Json> =
            serde_json::from_slice(text).map_err(|error| refuse(format!("is not a JSON object: {error}")))?;
        if let Some(field) = ["pool", "steering"].into_iter().find(|field| fields.contains_key(*field)) {
            return Err(refuse(format!(
                "{field} is not allowed: the extension server sets it for each route"
            )));
        }
        if !fields.get("agent").is_some_and(Json::is_object) {
            return Err(refuse(
                "agent is missing; it is the module's way to the agents, such as \
                 {\"addresses\": [\"http://10.0.0.1:9095\"]}"
                    .to_owned(),
            ));
        }
        let body_routing = fields.remove(BODY_ROUTING);
        let lists_models = match fields.remove(LIST_MODELS) {
            None => false,
            Some(Json::Bool(lists_models)) => lists_models,
            Some(other) => {
                return Err(refuse(format!(
                    "{LIST_MODELS} is {other}; allowed are true and false: the extension server sets the pools of each listener"
                )));
            }
        };
        Ok(Self { fields, body_routing, lists_models })
    }

    /// The configuration of the filter in a chain whose routes lead to these pools: it is off, unless it
    /// reads bodies to find routes or lists models.
    pub(super) fn of_chain(&self, pools: &BTreeSet<String>) -> String {
        let mut chain = Map::from_iter([("pool".to_owned(), Json::Null)]);
        let body_routing = self.body_routing.as_ref().filter(|it| **it != false);
        chain.extend(body_routing.map(|it| (BODY_ROUTING.to_owned(), it.clone())));
        if self.lists_models {
            chain.insert(LIST_MODELS.to_owned(), pools.iter().map(String::as_str).collect());
        }
        if chain.len() > 1 {
            let needed = ["agent", "limits"].into_iter();
            chain.extend(needed.filter_map(|name| Some((name.to_owned(), self.fields.get(name)?.clone()))));
        }
        Json::Object(chain).to_string()
    }

    /// The configuration of a route to this pool.
    pub(super) fn of_route(&self, pool: &RoutePool) -> String {
        let mut fields = self.fields.clone();
        fields.insert("pool".to_owned(), pool.name.clone().into());
        fields.insert("steering".to_owned(), "cluster".into());
        if let Some(mode) = pool.failure_mode {
            fields.insert("failureMode".to_owned(), mode.as_str().into());
        }
        Json::Object(fields).to_string()
    }

    /// The configuration of this pool's cluster.
    pub(super) fn of_cluster(&self, pool: &RoutePool) -> String {
        let mut fields = Map::new();
        fields.insert("pool".to_owned(), pool.name.clone().into());
        if let Some(agent) = self.fields.get("agent") {
            fields.insert("agent".to_owned(), agent.clone());
        }
        Json::Object(fields).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_with_fields_of_a_route_or_without_agents_is_refused() {
        let read = |text: &str| FilterConfig::read(Path::new("filter.json"), text.as_bytes());
        for (text, part) in [
            ("[]", "filter.json (--extension-filter-config): is not a JSON object"),
            (r#"{"agent": {}, "pool": "x"}"#, "pool is not allowed"),
            (r#"{"agent": {}, "steering": "metadata"}"#, "steering is not allowed"),
            (r#"{"agent": {}, "listModels": ["x"]}"#, "listModels is [\"x\"]; allowed are true and false"),
            ("{}", "agent is missing"),
        ] {
            let refusal = read(text).unwrap_err().to_string();
            assert!(refusal.contains(part), "{refusal}");
        }
        assert!(read(r#"{"agent": {"addresses": ["http://10.0.0.1:9095"]}}"#).is_ok());
    }

    #[test]
    fn only_the_filter_in_the_chain_routes_by_bodies_and_lists_models() {
        let config = |routing: &str| {
            let text = format!(r#"{{"agent": {{}}, "limits": {{}}, "countTokens": true{routing}}}"#);
            FilterConfig::read(Path::new("filter.json"), text.as_bytes()).unwrap()
        };
        let pools = ["team/chat", "team/embed"].map(str::to_owned).into();
        for off in ["", r#", "bodyBasedRouting": false, "listModels": false"#] {
            assert_eq!(config(off).of_chain(&pools), r#"{"pool":null}"#);
        }
        let chain = r#"{"agent":{},"limits":{},"listModels":["team/chat","team/embed"],"pool":null}"#;
        assert_eq!(config(r#", "listModels": true"#).of_chain(&pools), chain);
        let config = config(r#", "bodyBasedRouting": true, "listModels": false"#);
        let chain = r#"{"agent":{},"bodyBasedRouting":true,"limits":{},"pool":null}"#;
        assert_eq!(config.of_chain(&pools), chain);
        let pool = serde_json::json!({
            "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
            "metadata": {"name": "chat", "namespace": "team"},
        });
        let pool = RoutePool::read(pool.to_string().as_bytes(), &Ownership::default()).unwrap();
        let route = r#"{"agent":{},"countTokens":true,"limits":{},"pool":"team/chat","steering":"cluster"}"#;
        assert_eq!(config.of_route(&pool), route);
        assert_eq!(config.of_cluster(&pool), r#"{"agent":{},"pool":"team/chat"}"#);
    }
}
