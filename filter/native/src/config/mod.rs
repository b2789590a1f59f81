//! The module's configuration: the engine's fields, the way to the agent, and how requests are steered.

use core::fmt;
use std::path::PathBuf;

use endpoint_picker::decision::FailureMode;
use endpoint_picker_engine::config::{self, Config, Explain, Limits, Mode};
use endpoint_picker_engine::resume::{ResumeConfig, ResumeConfigError};
use endpoint_picker_engine::static_pool::EndpointList;
use endpoint_picker_wire::NamedRules;
use http::Uri;
use http::uri::Scheme;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Maximum number of other pools.
const MAX_FALLBACK: usize = 8;

/// Maximum number of agents.
const MAX_ADDRESSES: usize = 8;

/// The JSON of the module's configuration, read and checked.
#[derive(Clone, Debug)]
pub struct ModuleConfig {
    /// The fields that every shell has.
    pub engine: Config,
    /// The other pools that may take the pool's requests, in their order.
    pub fallback: FallbackList,
    /// The way to the agent; `None`: the configuration lists the pool's endpoints.
    pub agent: Option<AgentAccess>,
    /// How a request is steered to its endpoint.
    pub steering: Steering,
    /// `None`: streams are not resumed.
    pub resume_streams: Option<ResumeConfig>,
}

/// The list of other pools that may take a pool's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FallbackList {
    /// The list in the configuration.
    Pools(Vec<String>),
    /// The list in the pool's policy.
    OfPolicy,
    /// None, because requests cannot go to other pools, or came from one.
    Never,
}

impl FallbackList {
    /// The list in force; `of_policy` is the list in the pool's policy.
    pub(crate) fn list<'a>(&'a self, of_policy: &'a [String]) -> &'a [String] {
        match self {
            Self::Pools(pools) => pools,
            Self::OfPolicy => of_policy,
            Self::Never => &[],
        }
    }
}

impl ModuleConfig {
    /// The same configuration for another pool of the list, which moves no request on.
    pub(crate) fn of_fallback(&self, pool: &str) -> Self {
        let engine = Config { pool: pool.to_owned(), ..self.engine.clone() };
        Self { engine, fallback: FallbackList::Never, resume_streams: None, ..self.clone() }
    }
}

/// The JSON of the configuration in the filter chain: a picker for routes without a configuration, and the
/// part that acts before a request has its route.
#[derive(Clone, Debug)]
pub(crate) struct ChainConfig {
    /// `None`: the picker is off, unless a route has one.
    pub(crate) picker: Option<ModuleConfig>,
    /// `None`: bodies are not read to find routes.
    pub(crate) body_routing: Option<BodyRoutingConfig>,
    /// `None`: no list of models is sent.
    pub(crate) model_list: Option<ModelListConfig>,
}

/// Body-based routing.
#[derive(Clone, Debug)]
pub(crate) struct BodyRoutingConfig {
    /// The way to the agent, which knows the base models of adapters.
    pub(crate) agent: AgentAccess,
    /// How much of a body is held.
    pub(crate) limits: Limits,
}

/// The list of models in place of a server's.
#[derive(Clone, Debug)]
pub(crate) struct ModelListConfig {
    /// The pools whose models are listed; at least one.
    pub(crate) pools: Vec<String>,
    /// The way to the agent, which knows the pools' models.
    pub(crate) agent: AgentAccess,
}

/// The way to the agent: the module's own connections to one of several equal agents.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentAccess {
    /// `http://host:port` or `https://host:port` of each agent, in the order in which they are tried; at
    /// least one.
    pub addresses: Vec<AgentAddress>,
    /// The files for TLS; present if an address begins with `https`.
    pub tls: Option<TlsFiles>,
    /// The file whose first line is the bearer token.
    pub token: Option<PathBuf>,
}

/// The address of an agent: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AgentAddress(String);

impl AgentAddress {
    /// The URL of a path that begins with `/`.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }
}

impl fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TlsFiles {
    /// The authorities that are trusted. An agent's certificate must contain the host of its address.
    pub authorities: PathBuf,
    /// The certificate chain that the module presents, and its key.
    pub certificate_and_key: Option<(PathBuf, PathBuf)>,
}

/// How a request is steered to its endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Steering {
    /// A list of addresses in dynamic metadata, for the cluster's `override_host` policy.
    #[default]
    Metadata,
    /// One address as Envoy's upstream override host, for any cluster. Retries are balanced; a request with a
    /// subset hint has none.
    OverrideHost,
    /// A list of endpoints for a cluster of this module.
    Cluster,
}

/// Why a configuration is refused.
#[derive(Debug)]
pub enum ConfigError {
    /// A field of every shell.
    Engine(config::ConfigError),
    /// `fallback` has this many pools.
    Fallback(usize),
    /// `fallback` has this value, which is not the name of another pool, or is there twice.
    FallbackPool(String),
    /// `fallback` is there without the steering or the mode that it needs.
    FallbackWithout(&'static str),
    /// A field of `resumeStreams`.
    ResumeStreams(ResumeConfigError),
    /// `resumeStreams` is there with `"mode": "shadow"`.
    ResumeStreamsOfShadow,
    /// `agent` is missing.
    NoAgent,
    /// This field is there without `agent`, and with `endpoints`.
    NeedsAgent(&'static str),
    /// `agentCluster` is there, which only the wasm filter has.
    AgentCluster,
    /// `agent.addresses` has none, or too many.
    Addresses(usize),
    /// One of `agent.addresses` has this value.
    Address(String),
    /// An address begins with `https`, and `agent.tls` is missing, or the other way round.
    Tls,
    /// `bodyBasedRouting` is in the configuration of a route.
    BodyRoutingOfRoute,
    /// `listModels` is in the configuration of a route.
    ModelListOfRoute,
    /// `listModels` names no pool, or has this value, which is not a pool's name.
    ModelListPool(Option<String>),
    /// Only one of `agent.tls.certFile` and `agent.tls.keyFile` is present.
    CertificateAndKey,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engine(error) => error.fmt(f),
            Self::Fallback(count) => {
                write!(f, "fallback has {count} pools; allowed are 1 to {MAX_FALLBACK}")
            }
            Self::FallbackPool(pool) => write!(
                f,
                "fallback has {pool:?}; allowed are the names of other pools, each once: letters, digits, '-', '_' and '.', and a \
                 namespace with '/' before the name"
            ),
            Self::FallbackWithout(field) => write!(
                f,
                "fallback needs {field}; only a cluster of the module, with the same pool and fallback, has the endpoints of all \
                 pools"
            ),
            Self::ResumeStreams(error) => error.fmt(f),
            Self::ResumeStreamsOfShadow => f.write_str(
                "resumeStreams needs \"mode\": \"pick\"; a shadow does not send requests",
            ),
            Self::NoAgent => f.write_str(
                "agent is missing; its addresses are those of the metrics agent, in whose place endpoints can list the pool's servers",
            ),
            Self::NeedsAgent(field) => write!(f, "{field} needs agent, and is not possible with endpoints"),
            Self::AgentCluster => f.write_str(
                "agentCluster is a field of the wasm filter; the native module connects to the metrics agent itself: name it in \
                 agent.addresses, such as \"agent\": {\"addresses\": [\"http://127.0.0.1:9095\"]}",
            ),
            Self::Addresses(count) => {
                write!(f, "agent.addresses has {count} entries; allowed are 1 to {MAX_ADDRESSES}")
            }
            Self::Address(address) => write!(
                f,
                "agent.addresses has {address:?}; allowed are http://host:port and https://host:port, without path"
            ),
            Self::Tls => f.write_str(
                "agent.tls and https go together: agent.tls.caFile names the trusted authorities if an address begins with \
                 https, and is not allowed otherwise",
            ),
            Self::BodyRoutingOfRoute => f.write_str(
                "bodyBasedRouting is allowed in the filter chain only: a request has its route after its body was read",
            ),
            Self::ModelListOfRoute => f.write_str(
                "listModels is allowed in the filter chain only: the list is that of all its routes",
            ),
            Self::ModelListPool(pool) => write!(
                f,
                "listModels has {}; allowed are the names of one or more pools: letters, digits, '-', '_' and '.', and a namespace \
                 with '/' before the name",
                pool.as_ref().map_or_else(|| "no pool".to_owned(), |pool| format!("{pool:?}"))
            ),
            Self::CertificateAndKey => {
                f.write_str("agent.tls.certFile and agent.tls.keyFile go together: the module's certificate and its key")
            }
        }
    }
}

impl core::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Engine(error) => Some(error),
            Self::ResumeStreams(error) => Some(error),
            Self::Fallback(_)
            | Self::FallbackPool(_)
            | Self::FallbackWithout(_)
            | Self::ResumeStreamsOfShadow
            | Self::NoAgent
            | Self::NeedsAgent(_)
            | Self::AgentCluster
            | Self::Addresses(_)
            | Self::Address(_)
            | Self::Tls
            | Self::BodyRoutingOfRoute
            | Self::ModelListOfRoute
            | Self::ModelListPool(_)
            | Self::CertificateAndKey => None,
        }
    }
}

impl From<config::ConfigError> for ConfigError {
    fn from(error: config::ConfigError) -> Self {
        Self::Engine(error)
    }
}

/// A field that earlier versions of the module had.
#[derive(Deserialize)]
struct RemovedFields {
    #[serde(rename = "agentCluster")]
    agent_cluster: Option<IgnoredAny>,
}

/// All fields, as they are written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConfigFields {
    // Read by a function, so that a configuration without the field is refused: only `null` switches the
    // picker off.
    #[serde(deserialize_with = "Option::deserialize")]
    pool: Option<String>,
    fallback: Option<Vec<String>>,
    agent: Option<AgentFields>,
    endpoints: Option<EndpointList>,
    #[serde(default, deserialize_with = "config::named_rules")]
    rules: Option<NamedRules>,
    #[serde(default)]
    mode: Mode,
    #[serde(default)]
    failure_mode: FailureMode,
    #[serde(default)]
    limits: Limits,
    #[serde(default)]
    explain: Explain,
    #[serde(default, deserialize_with = "config::count_tokens")]
    count_tokens: bool,
    #[serde(default)]
    steering: Steering,
    resume_streams: Option<ResumeConfig>,
    body_based_routing: Option<bool>,
    list_models: Option<Vec<String>>,
}

/// The field `agent`, as it is written.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct AgentFields {
    addresses: Vec<String>,
    tls: Option<TlsFields>,
    token_file: Option<PathBuf>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TlsFields {
    ca_file: PathBuf,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
}

impl ModuleConfig {
    /// Reads and checks a configuration. Files that it names are read later. `None`: its pool is `null`, so
    /// the picker is off, and its other fields have no effect.
    pub fn parse(json: &[u8]) -> Result<Option<Self>, ConfigError> {
        let fields = ConfigFields::parse(json)?;
        if fields.body_based_routing.is_some() {
            return Err(ConfigError::BodyRoutingOfRoute);
        }
        if fields.list_models.is_some() {
            return Err(ConfigError::ModelListOfRoute);
        }
        Self::of(fields)
    }

    fn of(fields: ConfigFields) -> Result<Option<Self>, ConfigError> {
        let ConfigFields {
            pool,
            fallback,
            agent,
            endpoints,
            rules,
            mode,
            failure_mode,
            limits,
            explain,
            count_tokens,
            steering,
            resume_streams,
            ..
        } = fields;
        let Some(pool) = pool else { return Ok(None) };
        let engine = Config {
            pool,
            agent_cluster: None,
            endpoints,
            rules,
            route_metadata: false,
            mode,
            failure_mode,
            limits,
            explain,
            count_tokens,
        }
        .checked()?;
        let fallback = match (checked_fallback(&engine.pool, fallback)?, steering, mode) {
            (fallback, Steering::Cluster, Mode::Pick) => fallback,
            (FallbackList::OfPolicy | FallbackList::Never, _, _) => FallbackList::Never,
            (FallbackList::Pools(_), Steering::Cluster, Mode::Shadow) => {
                return Err(ConfigError::FallbackWithout("\"mode\": \"pick\""));
            }
            (FallbackList::Pools(_), Steering::Metadata | Steering::OverrideHost, _) => {
                return Err(ConfigError::FallbackWithout("\"steering\": \"cluster\""));
            }
        };
        let agent = match (agent, &engine.endpoints, &fallback) {
            (Some(_), Some(_), _) => return Err(config::ConfigError::AgentAndEndpoints("agent").into()),
            (None, None, _) => return Err(ConfigError::NoAgent),
            (None, Some(_), FallbackList::Pools(_)) => return Err(ConfigError::NeedsAgent("fallback")),
            (agent, ..) => agent.map(AgentFields::checked).transpose()?,
        };
        if resume_streams.is_some() && mode == Mode::Shadow {
            return Err(ConfigError::ResumeStreamsOfShadow);
        }
        let resume_streams = resume_streams.map(ResumeConfig::checked).transpose();
        let resume_streams = resume_streams.map_err(ConfigError::ResumeStreams)?;
        Ok(Some(Self { engine, fallback, agent, steering, resume_streams }))
    }
}

impl ChainConfig {
    /// Reads and checks the configuration of the filter in the chain.
    pub(crate) fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        let fields = ConfigFields::parse(json)?;
        let agent = |field| match (&fields.agent, &fields.endpoints) {
            (Some(agent), _) => agent.clone().checked(),
            (None, Some(_)) => Err(ConfigError::NeedsAgent(field)),
            (None, None) => Err(ConfigError::NoAgent),
        };
        let routing = || {
            let agent = agent("bodyBasedRouting")?;
            Ok::<_, ConfigError>(BodyRoutingConfig { agent, limits: fields.limits.checked()? })
        };
        let body_routing = fields.body_based_routing.unwrap_or(false).then(routing).transpose()?;
        let list = |pools: &Vec<String>| {
            let refused = pools.iter().find(|pool| !config::is_pool_name(pool));
            if pools.is_empty() || refused.is_some() {
                return Err(ConfigError::ModelListPool(refused.cloned()));
            }
            Ok(ModelListConfig { pools: pools.clone(), agent: agent("listModels")? })
        };
        let model_list = fields.list_models.as_ref().map(list).transpose()?;
        Ok(Self { picker: ModuleConfig::of(fields)?, body_routing, model_list })
    }
}

impl ConfigFields {
    fn parse(json: &[u8]) -> Result<Self, ConfigError> {
        if serde_json::from_slice(json).is_ok_and(|RemovedFields { agent_cluster }| agent_cluster.is_some()) {
            return Err(ConfigError::AgentCluster);
        }
        Ok(serde_json::from_slice(json).map_err(config::ConfigError::Json)?)
    }
}

/// The other pools of this pool's list.
pub(crate) fn checked_fallback(pool: &str, list: Option<Vec<String>>) -> Result<FallbackList, ConfigError> {
    let Some(list) = list else { return Ok(FallbackList::OfPolicy) };
    if !(1..=MAX_FALLBACK).contains(&list.len()) {
        return Err(ConfigError::Fallback(list.len()));
    }
    for (place, other) in list.iter().enumerate() {
        let is_listed = list.iter().take(place).any(|earlier| earlier == other);
        if is_listed || other == pool || !config::is_pool_name(other) {
            return Err(ConfigError::FallbackPool(other.clone()));
        }
    }
    Ok(FallbackList::Pools(list))
}

impl AgentFields {
    /// The way to the agent that the fields describe.
    pub(crate) fn checked(self) -> Result<AgentAccess, ConfigError> {
        let Self { addresses, tls, token_file } = self;
        if !(1..=MAX_ADDRESSES).contains(&addresses.len()) {
            return Err(ConfigError::Addresses(addresses.len()));
        }
        let addresses: Vec<(AgentAddress, Scheme)> =
            addresses.into_iter().map(checked_address).collect::<Result<_, _>>()?;
        if tls.is_some() != addresses.iter().any(|(_, scheme)| *scheme == Scheme::HTTPS) {
            return Err(ConfigError::Tls);
        }
        Ok(AgentAccess {
            addresses: addresses.into_iter().map(|(address, _)| address).collect(),
            tls: tls.map(TlsFields::checked).transpose()?,
            token: token_file,
        })
    }
}

/// Host and port are required, so that no default port surprises; anything behind them is not allowed.
fn checked_address(text: String) -> Result<(AgentAddress, Scheme), ConfigError> {
    let parsed: Option<(AgentAddress, Scheme)> = text.parse::<Uri>().ok().and_then(|uri| {
        let scheme = uri.scheme()?;
        let authority = uri.authority()?;
        let is_plain = [Scheme::HTTP, Scheme::HTTPS].contains(scheme)
            && authority.port_u16().is_some()
            && !authority.host().is_empty()
            && !authority.as_str().contains('@')
            && uri.query().is_none()
            && uri.path() == "/";
        is_plain.then(|| (AgentAddress(format!("{scheme}://{authority}")), scheme.clone()))
    });
    parsed.ok_or(ConfigError::Address(text))
}

impl TlsFields {
    fn checked(self) -> Result<TlsFiles, ConfigError> {
        let certificate_and_key = match (self.cert_file, self.key_file) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) | (None, Some(_)) => return Err(ConfigError::CertificateAndKey),
        };
        Ok(TlsFiles { authorities: self.ca_file, certificate_and_key })
    }
}

#[cfg(test)]
mod tests;
