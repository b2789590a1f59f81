//! A pool without an agent: the filter's own configuration lists its endpoints and names its rules.
//!
//! Its [view](StaticPool::view) is that of a snapshot whose servers were never scraped and are all ready.
//! Everything that the proxy sees itself counts as with an agent: prompts, sessions, load, learnt speeds and
//! failures.

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use endpoint_picker_wire::{Message as _, NamedRules, v1};
use hashbrown::HashSet;
use serde::Deserialize;

use crate::pool_view::{PoolView, Topology, TopologyRefusal};

/// Maximum number of endpoints; the agent's default.
const MAX_ENDPOINTS: usize = 10_000;

/// How long an endpoint is avoided after its first failure; the agent's default.
pub const AVOID_FAILING: Duration = Duration::from_millis(250);

/// The time at which the readings of a pool without an agent have arrived: there are none, so they do not
/// age.
const NEVER_STALE: Duration = Duration::MAX;

/// The addresses of a pool's servers; at least one, and each once.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct EndpointList(Vec<SocketAddr>);

/// Why a list of endpoints is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointListError {
    /// It has this number of entries.
    Count(usize),
    /// An entry has this text.
    Address(String),
    /// This address is there twice.
    Twice(SocketAddr),
}

impl fmt::Display for EndpointListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => {
                write!(f, "endpoints has {count} entries; allowed are 1 to {MAX_ENDPOINTS}")
            }
            Self::Address(text) => write!(
                f,
                "endpoints has {text:?}; allowed are an IP address and a port that is not 0, such as 10.0.0.1:8000 and \
                 [2001:db8::1]:8000. Host names need an agent, which resolves them"
            ),
            Self::Twice(address) => write!(f, "endpoints has {address} twice"),
        }
    }
}

impl core::error::Error for EndpointListError {}

impl TryFrom<Vec<String>> for EndpointList {
    type Error = EndpointListError;

    fn try_from(texts: Vec<String>) -> Result<Self, EndpointListError> {
        if !(1..=MAX_ENDPOINTS).contains(&texts.len()) {
            return Err(EndpointListError::Count(texts.len()));
        }
        let mut addresses = Vec::with_capacity(texts.len());
        let mut known = HashSet::new();
        for text in texts {
            let address = text.parse::<SocketAddr>().ok().filter(|address| address.port() != 0);
            let address = address.ok_or(EndpointListError::Address(text))?;
            if !known.insert(address) {
                return Err(EndpointListError::Twice(address));
            }
            addresses.push(address);
        }
        Ok(Self(addresses))
    }
}

/// A pool without an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticPool {
    name: String,
    endpoints: EndpointList,
    rules: NamedRules,
}

impl StaticPool {
    /// The pool of this name.
    pub(crate) fn new(name: &str, endpoints: EndpointList, rules: NamedRules) -> Self {
        Self { name: name.to_owned(), endpoints, rules }
    }

    /// The view of the pool, in place of an older one.
    pub fn view(&self, older: &PoolView) -> Result<PoolView, TopologyRefusal> {
        let message = self.topology();
        let version = version_of(&message);
        let reading = v1::Reading { ready: true, ..v1::Reading::default() };
        let snapshot = v1::Snapshot {
            topology_version: version,
            readings_version: version,
            readings: vec![reading; message.endpoints.len()],
            ..v1::Snapshot::default()
        };
        let topology = match older.versions() {
            Some(known) if known.topology == version => Arc::clone(older.topology()),
            Some(_) | None => Arc::new(Topology::compile(message)?),
        };
        Ok(PoolView::new(topology, snapshot, NEVER_STALE))
    }

    /// The endpoints and the policy as an agent with these flags publishes them.
    fn topology(&self) -> v1::Topology {
        let endpoint = |address: &SocketAddr| v1::Endpoint {
            name: format!("default/{address}"),
            address: address.to_string(),
            labels: Vec::new(),
        };
        let avoid_failing = u64::try_from(AVOID_FAILING.as_millis()).unwrap_or(u64::MAX);
        let policy = v1::Policy {
            picker_config: self.rules.picker_config(),
            avoid_failing_ms: avoid_failing,
            ..v1::Policy::default()
        };
        v1::Topology {
            pool: self.name.clone(),
            endpoints: self.endpoints.0.iter().map(endpoint).collect(),
            policy: Some(policy),
        }
    }
}

/// A notice for the log: what such a pool lacks.
impl fmt::Display for StaticPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, endpoints, rules } = self;
        write!(
            f,
            "pool {name} has {} endpoints of the configuration, the rules {} and no agent: there are no queues, KV-cache usage, cache sizes, \
             loaded adapters and restarts of servers, no saturation by them, no KV-cache events, no sharing with other proxies, and no page",
            endpoints.0.len(),
            rules.as_str()
        )?;
        match rules {
            NamedRules::ExpectedLatency => Ok(()),
            NamedRules::Epp => {
                f.write_str("; queue-scorer and kv-cache-utilization-scorer rate all endpoints alike")
            }
        }
    }
}

/// A number that equal endpoints and policies have in every worker, and others do not.
fn version_of(topology: &v1::Topology) -> u64 {
    let mut hasher = DefaultHasher::new();
    topology.encode_to_vec().hash(&mut hasher);
    hasher.finish()
}
