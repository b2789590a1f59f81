//! What `session-affinity-scorer` and `session-affinity-filter` have in common: a session's requests go to the endpoint
//! that its earlier ones went to.

mod plugins;

pub use plugins::{SessionAffinityFilter, SessionAffinityScorer};

use core::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use xxhash_rust::xxh64::xxh64;

use crate::input::cycle::Cycle;
use crate::plugin::parameter::{allow, or_default};
use crate::plugin::{Need, NeedKind, Routed};
use crate::pool::Endpoint;
use crate::state::{PluginState, SessionBindings, StateChange};

/// How the endpoint of a session is found.
///
/// - `encoded_endpoint_header`: the answer carries the endpoint's name in a header, in base64, and the client sends it
///   back with its next request.
/// - `session_id`: the client names its session, and the endpoint is remembered here. The session is bound to the endpoint
///   that its first request went to, and to another when that one is not a candidate any more, or the session was not used
///   for `evictionTtlSeconds`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SessionAffinity {
    strategy: Strategy,
    encoded_endpoint_header_config: TokenConfig,
    session_id_config: IdConfig,
    /// The profile whose choice counts; empty: the one that names the destination.
    profile_name: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Strategy {
    #[default]
    EncodedEndpointHeader,
    SessionId,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct TokenConfig {
    /// The header, in request and answer; empty: `x-session-token`.
    header: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct IdConfig {
    /// Where the session's name is looked for, in this order; empty: in the header `x-session-id`.
    sources: Vec<Source>,
    /// Seconds that an unused binding lives, above 0; 0: 300.
    eviction_ttl_seconds: f64,
    /// Accepted, without effect: bindings end on time and are not swept.
    eviction_sweep_seconds: f64,
}

/// A header, or the attribute of a producer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Source {
    header: String,
    attribute: String,
    producer: String,
}

const TOKEN_HEADER: &str = "x-session-token";
const ID_HEADER: &str = "x-session-id";
const ID_ATTRIBUTE: &str = "SessionIDDataKey";
const LIFETIME_SECONDS: f64 = 300.0;

impl SessionAffinity {
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.strategy == Strategy::EncodedEndpointHeader {
            return Ok(());
        }
        for (index, source) in self.session_id_config.sources.iter().enumerate() {
            let at = format!("sessionIdConfig.sources[{index}]");
            if source.header.is_empty() == source.attribute.is_empty() {
                return Err(format!("{at} needs either a header or an attribute"));
            }
            let is_known = source.header.is_empty().then_some(&source.attribute);
            let is_known = is_known.is_none_or(|attribute| attribute == ID_ATTRIBUTE);
            allow(is_known, &format!("{at}.attribute"), &source.attribute, ID_ATTRIBUTE)?;
            if source.header.is_empty() && source.producer.is_empty() {
                return Err(format!("{at}.producer is empty; the name of a session-id-producer is needed"));
            }
        }
        let seconds = |parameter, seconds: f64| {
            let is_allowed = seconds >= 0.0 && Duration::try_from_secs_f64(seconds).is_ok();
            allow(
                is_allowed,
                &format!("sessionIdConfig.{parameter}"),
                seconds,
                "above 0, or 0 for the default",
            )
        };
        seconds("evictionTtlSeconds", self.session_id_config.eviction_ttl_seconds)?;
        seconds("evictionSweepSeconds", self.session_id_config.eviction_sweep_seconds)
    }

    pub(crate) fn needs(&self) -> Vec<Need<'_>> {
        let producers = self.session_id_config.sources.iter().filter(|source| source.header.is_empty());
        let parameter = "sessionIdConfig.sources";
        let named = producers.map(|source| Need {
            parameter,
            name: &source.producer,
            kind: NeedKind::SessionProducer,
        });
        if self.strategy == Strategy::SessionId { named.collect() } else { Vec::new() }
    }

    /// The candidate that the request's session belongs to.
    pub(crate) fn endpoint(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> Option<usize> {
        match self.strategy {
            Strategy::EncodedEndpointHeader => {
                let name = BASE64_STANDARD.decode(cycle.request.headers.get(self.token_header())?).ok()?;
                let is_named = |&endpoint: &usize| cycle.endpoint(endpoint).name().as_bytes() == name;
                candidates.iter().copied().find(is_named)
            }
            Strategy::SessionId => {
                let bindings = cycle.state::<SessionBindings>()?;
                let bound = bindings.endpoint(self.session(cycle)?, cycle.now)?;
                candidates.contains(&bound).then_some(bound)
            }
        }
    }

    pub(crate) fn new_state(&self) -> Option<Box<dyn PluginState>> {
        match self.strategy {
            Strategy::EncodedEndpointHeader => None,
            Strategy::SessionId => Some(Box::new(SessionBindings::new(self.lifetime()))),
        }
    }

    /// Binds the session to where its request went, unless it is bound to another endpoint that was there to be chosen, and
    /// was passed over this once, or that was not looked for.
    pub(crate) fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>) -> Vec<StateChange> {
        let binding = || {
            let bindings = cycle.state::<SessionBindings>()?;
            let session = self.session(cycle)?;
            let stage = routed.stage(&self.profile_name)?;
            let &endpoint = stage.picked.first()?;
            let bound = bindings.endpoint(session, cycle.now).filter(|&bound| bound != endpoint);
            let is_gone = |bound| routed.rated.is_some_and(|rated| !rated.contains(&bound));
            bound.is_none_or(is_gone).then(|| cycle.state_change(endpoint, vec![session]))
        };
        binding().into_iter().collect()
    }

    /// Whether answers name their endpoint to the client.
    pub(crate) fn marks_responses(&self) -> bool {
        self.strategy == Strategy::EncodedEndpointHeader
    }

    pub(crate) fn profile(&self) -> &str {
        &self.profile_name
    }

    pub(crate) fn response_header(&self, endpoint: &Endpoint) -> (String, String) {
        (self.token_header().to_ascii_lowercase(), BASE64_STANDARD.encode(endpoint.name()))
    }

    fn token_header(&self) -> &str {
        or_default(self.encoded_endpoint_header_config.header.trim(), TOKEN_HEADER)
    }

    fn lifetime(&self) -> Duration {
        let seconds = self.session_id_config.eviction_ttl_seconds;
        let seconds = if seconds == 0.0 { LIFETIME_SECONDS } else { seconds };
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// The hash of the session's name. Two names of one hash would share an endpoint, which does no harm.
    fn session(&self, cycle: &Cycle<'_>) -> Option<u64> {
        let header = |name: &str| cycle.request.headers.get(name).map(str::trim).filter(|id| !id.is_empty());
        let sources = &self.session_id_config.sources;
        let id = if sources.is_empty() {
            header(ID_HEADER)
        } else {
            sources.iter().find_map(|source| {
                if source.header.is_empty() {
                    cycle.session(&source.producer)
                } else {
                    header(source.header.trim())
                }
            })
        };
        Some(xxh64(id?.as_bytes(), 0))
    }
}
