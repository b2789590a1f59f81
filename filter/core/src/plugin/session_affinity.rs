//! The affinity of sessions, for `session-affinity-scorer` and `session-affinity-filter`: a session's
//! requests go to the endpoint that its earlier requests went to.

use core::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use smallvec::smallvec;
use xxhash_rust::xxh64::xxh64;

use crate::decision::Records;
use crate::input::cycle::Cycle;
use crate::plugin::parameter::{allow, or_default};
use crate::plugin::{Need, NeedKind, Routed};
use crate::pool::Endpoint;
use crate::state::{PluginState, SessionBindings};

/// How the endpoint of a session is found.
///
/// - `encoded_endpoint_header`: the response carries the endpoint's name in a header, in base64, and the
///   client sends it back with its next request.
/// - `session_id`: the client names its session, and the endpoint is remembered here. The session is bound to
///   the endpoint that its first request went to, and to another when that endpoint is not a candidate any
///   more, or the session was not used for `evictionTtlSeconds`.
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
    /// The header, in request and response; empty: `x-session-token`.
    header: String,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct IdConfig {
    /// The sources of the session's name, in order of precedence; empty: the header `x-session-id`.
    sources: Vec<AffinitySource>,
    /// Seconds that an unused binding lives, above 0; 0: 300.
    eviction_ttl_seconds: f64,
    /// Accepted, without effect: bindings end on time and are not swept.
    eviction_sweep_seconds: f64,
}

/// A header, or the attribute of a producer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct AffinitySource {
    header: String,
    attribute: String,
    producer: String,
}

const TOKEN_HEADER: &str = "x-session-token";
const ID_HEADER: &str = "x-session-id";
const ID_ATTRIBUTE: &str = "SessionIDDataKey";
/// The attribute of `agent-identity`.
const AGENT_ATTRIBUTE: &str = "agent-identity";
/// The EPP's default of `evictionTtlSeconds`.
const LIFETIME_SECONDS: f64 = 300.0;

impl AffinitySource {
    /// The attribute and its producer. The EPP v0.10 has both in one text, `attribute/producer`.
    fn parts(&self) -> (&str, &str) {
        match self.attribute.split_once('/') {
            Some((ID_ATTRIBUTE, producer)) if self.producer.is_empty() => (ID_ATTRIBUTE, producer),
            _ => (&self.attribute, &self.producer),
        }
    }
}

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
            let (attribute, producer) = source.parts();
            let is_known = !source.header.is_empty() || [ID_ATTRIBUTE, AGENT_ATTRIBUTE].contains(&attribute);
            let known = format!("{ID_ATTRIBUTE} or {AGENT_ATTRIBUTE}");
            allow(is_known, &format!("{at}.attribute"), &source.attribute, &known)?;
            if attribute == ID_ATTRIBUTE && producer.is_empty() {
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

    /// Names the two parameters that take the place of `attribute/producer`.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let sources = self.session_id_config.sources.iter().enumerate();
        let older = sources.filter(|(_, source)| source.attribute.contains('/'));
        let warning = |(index, source): (usize, &AffinitySource)| {
            let (attribute, producer) = source.parts();
            format!(
                "sessionIdConfig.sources[{index}].attribute {:?} is the spelling of v0.10; with later versions of the \
                 EPP use attribute: {attribute} and producer: {producer}",
                source.attribute
            )
        };
        older.map(warning).collect()
    }

    pub(crate) fn needs(&self) -> Vec<Need<'_>> {
        let producers = self.session_id_config.sources.iter().filter(|source| source.header.is_empty());
        let parameter = "sessionIdConfig.sources";
        let named = producers.map(|source| match source.parts() {
            (AGENT_ATTRIBUTE, _) => Need { parameter, name: AGENT_ATTRIBUTE, kind: NeedKind::AgentIdentity },
            (_, name) => Need { parameter, name, kind: NeedKind::SessionProducer },
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

    /// Binds the session to the endpoint that got its request. A binding to another endpoint stays if the
    /// plugin rated that endpoint for this request, or rated none.
    pub(crate) fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>, records: &mut Records) {
        let binding = || {
            let bindings = cycle.state::<SessionBindings>()?;
            let session = self.session(cycle)?;
            let stage = routed.stage(&self.profile_name)?;
            let &endpoint = stage.picked.first()?;
            let bound = bindings.endpoint(session, cycle.now).filter(|&bound| bound != endpoint);
            let is_gone = |bound| routed.rated.is_some_and(|rated| !rated.contains(&bound));
            bound.is_none_or(is_gone).then(|| cycle.state_change(endpoint, smallvec![session]))
        };
        records.changes.extend(binding());
    }

    /// Whether responses name their endpoint to the client.
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
            let mut of_producers = cycle.sessions();
            sources.iter().find_map(|source| {
                if !source.header.is_empty() {
                    header(source.header.trim())
                } else if source.attribute == AGENT_ATTRIBUTE {
                    cycle.agent_identity()
                } else {
                    of_producers.next().flatten()
                }
            })
        };
        Some(xxh64(id?.as_bytes(), 0))
    }
}

/// Declares a plugin by the affinity of sessions, which still needs the rule of its role.
macro_rules! session_affinity_plugin {
    ($(#[$doc:meta])* $name:ident is a $role:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(crate::plugin::session_affinity::SessionAffinity);

        impl crate::plugin::Plugin for $name {
            fn check(&self) -> Result<(), String> {
                self.0.check()
            }

            fn roles(self: std::sync::Arc<Self>) -> crate::plugin::Roles {
                let marker: std::sync::Arc<dyn crate::plugin::ResponseMarker> = self.clone();
                crate::plugin::Roles {
                    response_marker: self.0.marks_responses().then_some(marker),
                    recorder: Some(self.clone()),
                    $role: Some(self),
                    ..crate::plugin::Roles::default()
                }
            }

            fn needs(&self) -> Vec<crate::plugin::Need<'_>> {
                self.0.needs()
            }

            fn warnings(&self) -> Vec<String> {
                self.0.warnings()
            }

            fn is_alpha(&self) -> bool {
                true
            }
        }

        impl crate::plugin::Recorder for $name {
            fn new_state(&self) -> Option<Box<dyn crate::state::PluginState>> {
                self.0.new_state()
            }

            fn record(&self, cycle: &crate::input::cycle::Cycle<'_>, routed: &crate::plugin::Routed<'_>, records: &mut crate::decision::Records) {
                self.0.record(cycle, routed, records);
            }
        }

        impl crate::plugin::ResponseMarker for $name {
            fn profile(&self) -> &str {
                self.0.profile()
            }

            fn response_header(&self, endpoint: &crate::pool::Endpoint) -> (String, String) {
                self.0.response_header(endpoint)
            }
        }
    };
}

pub(crate) use session_affinity_plugin;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::plugin::Stage;
    use crate::plugin::fixture::{Fixture, headers, records};
    use crate::plugin::{Plugin, Recorder, SessionAffinityFilter, SessionAffinityScorer};
    use crate::state::PluginStates;
    use crate::test;
    use serde_json::json;

    /// base64 of `default/1`.
    const TOKEN: &str = "ZGVmYXVsdC8x";

    fn scorer(parameters: serde_json::Value) -> SessionAffinityScorer {
        serde_json::from_value(parameters).unwrap()
    }

    fn filter(parameters: serde_json::Value) -> SessionAffinityFilter {
        serde_json::from_value(parameters).unwrap()
    }

    fn sent(headers_sent: &[(&str, &str)]) -> Fixture {
        let mut fixture = Fixture::of(3);
        fixture.request.headers = headers(headers_sent);
        fixture
    }

    #[test]
    fn a_token_leads_to_its_endpoint() {
        let fixture = sent(&[("x-session-token", TOKEN)]);
        assert_eq!(fixture.scores(&scorer(json!({}))), [0.0, 1.0, 0.0]);
        assert_eq!(fixture.kept(&filter(json!({})), 1), [1]);
    }

    #[test]
    fn a_token_of_no_candidate_and_no_token_leave_all() {
        for token in ["ZGVmYXVsdC85", "not base64!", ""] {
            let fixture = sent(&[("x-session-token", token)]);
            assert_eq!(fixture.scores(&scorer(json!({}))), [0.0; 3], "{token:?}");
            assert_eq!(fixture.kept(&filter(json!({})), 1), [0, 1, 2], "{token:?}");
        }
    }

    /// A request that went to `picked` after the plugin had been rated about `rated`.
    fn routed<R>(picked: usize, rated: &[usize], look: impl FnOnce(&Routed<'_>) -> R) -> R {
        let stages = [Stage { profile: "default", picked: &[picked] }];
        look(&Routed {
            stages: &stages,
            primary: &stages[0],
            rated: Some(rated),
            hashes: None,
            matches: None,
        })
    }

    #[test]
    fn the_answer_carries_the_endpoints_name() {
        let header = |parameters| {
            let roles = Arc::new(scorer(parameters)).roles();
            Fixture::of(3).with_cycle(|cycle| Some(roles.response_marker?.response_header(cycle.endpoint(1))))
        };
        assert_eq!(header(json!({})), Some(("x-session-token".to_owned(), TOKEN.to_owned())));
        let named = json!({"encodedEndpointHeaderConfig": {"header": " X-Mine "}});
        assert_eq!(header(named), Some(("x-mine".to_owned(), TOKEN.to_owned())));
        assert_eq!(header(json!({"strategy": "session_id"})), None);
    }

    /// Sends a request of a session to `picked` out of `candidates`, `later` seconds after the start.
    fn send(state: &mut PluginStates, later: u64, picked: usize, candidates: &[usize]) {
        let scorer = scorer(json!({"strategy": "session_id"}));
        let mut fixture = sent(&[("x-session-id", "abc")]);
        fixture.now += Duration::from_secs(later);
        fixture.states = core::mem::take(state);
        let (changes, pool) = routed(picked, candidates, |routed| {
            fixture.with_cycle(|cycle| (records(&scorer, cycle, routed).changes, cycle.pool.clone()))
        });
        *state = fixture.states;
        for change in changes {
            state.apply(&change, &pool);
        }
    }

    fn bound(state: &mut PluginStates, later: u64) -> Vec<usize> {
        let mut fixture = sent(&[("x-session-id", "abc")]);
        fixture.now += Duration::from_secs(later);
        fixture.states = core::mem::take(state);
        let kept = fixture.kept(&filter(json!({"strategy": "session_id"})), 1);
        *state = fixture.states;
        kept
    }

    fn new_state() -> PluginStates {
        PluginStates::only(scorer(json!({"strategy": "session_id"})).new_state().unwrap())
    }

    #[test]
    fn a_session_stays_with_the_endpoint_of_its_first_request() {
        let mut state = new_state();
        assert_eq!(bound(&mut state, 0), [0, 1, 2]);
        send(&mut state, 0, 1, &[0, 1, 2]);
        assert_eq!(bound(&mut state, 0), [1]);
        send(&mut state, 1, 2, &[0, 1, 2]);
        assert_eq!(bound(&mut state, 1), [1], "passed over once");
        assert_eq!(bound(&mut state, 300), [1]);
        assert_eq!(bound(&mut state, 301), [0, 1, 2], "the request that went elsewhere was no use of it");
    }

    #[test]
    fn a_session_whose_endpoint_is_no_candidate_moves() {
        let mut state = new_state();
        send(&mut state, 0, 1, &[0, 1, 2]);
        send(&mut state, 1, 2, &[0, 2]);
        assert_eq!(bound(&mut state, 1), [2]);
    }

    #[test]
    fn a_session_is_found_in_the_first_source_that_has_it() {
        let parameters = json!({"strategy": "session_id", "sessionIdConfig": {"sources": [
            {"header": "X-First"},
            {"attribute": "SessionIDDataKey", "producer": "cookies"},
        ]}});
        let (scorer, mut fixture) = (scorer(parameters), sent(&[("x-session-id", "not read")]));
        let record = |fixture: &Fixture| {
            routed(0, &[0, 1, 2], |routed| {
                fixture.with_cycle(|cycle| records(&scorer, cycle, routed).changes)
            })
        };
        fixture.states = PluginStates::only(scorer.new_state().unwrap());
        assert_eq!(record(&fixture)[..], []);
        fixture.session("abc");
        let by_cookie = record(&fixture);
        fixture.request.headers = headers(&[("x-first", " abc ")]);
        assert_eq!((record(&fixture), by_cookie.len()), (by_cookie, 1));
    }

    #[test]
    fn an_attribute_is_read_as_v0_10_spells_it() {
        let of = |source| scorer(json!({"strategy": "session_id", "sessionIdConfig": {"sources": [source]}}));
        let older = of(json!({"attribute": "SessionIDDataKey/session-id-producer"}));
        let newer = of(json!({"attribute": "SessionIDDataKey", "producer": "session-id-producer"}));
        for plugin in [&older, &newer] {
            assert_eq!(plugin.check(), Ok(()));
            let needs: Vec<_> = plugin.needs().iter().map(|need| (need.kind, need.name.to_owned())).collect();
            assert_eq!(needs, [(NeedKind::SessionProducer, "session-id-producer".to_owned())]);
        }
        assert!(newer.warnings().is_empty());
        assert_eq!(
            older.warnings(),
            [
                "sessionIdConfig.sources[0].attribute \"SessionIDDataKey/session-id-producer\" is the spelling of v0.10; \
                 with later versions of the EPP use attribute: SessionIDDataKey and producer: session-id-producer"
            ]
        );
        for refused in ["SessionIDDataKey/", "Other/session-id-producer", "SessionIDDataKeys"] {
            assert!(of(json!({"attribute": refused})).check().is_err(), "{refused}");
        }
    }

    #[test]
    fn an_agent_session_is_a_session() {
        let sources = json!([{"attribute": "agent-identity"}, {"header": "x-session-id"}]);
        let scorer = scorer(json!({"strategy": "session_id", "sessionIdConfig": {"sources": sources}}));
        let needs: Vec<_> = scorer.needs().iter().map(|need| need.kind).collect();
        assert_eq!(needs, [NeedKind::AgentIdentity]);
        let mut fixture = sent(&[("x-session-id", "abc")]);
        fixture.states = PluginStates::only(scorer.new_state().unwrap());
        let record = |fixture: &Fixture| {
            routed(0, &[0, 1, 2], |routed| {
                fixture.with_cycle(|cycle| records(&scorer, cycle, routed).changes)
            })
        };
        let by_header = record(&fixture);
        fixture.request.headers = headers(&[("session-id", "xyz"), ("x-session-id", "abc")]);
        assert_ne!(record(&fixture), by_header);
        fixture.request.headers = headers(&[("session-id", "abc")]);
        assert_eq!(record(&fixture), by_header);
    }

    #[test]
    fn sources_that_name_nothing_are_refused() {
        let refusal = |config| scorer(json!({"strategy": "session_id", "sessionIdConfig": config})).check();
        for config in [
            json!({"sources": [{}]}),
            json!({"sources": [{"header": "a", "attribute": "SessionIDDataKey"}]}),
            json!({"sources": [{"attribute": "SessionIDDataKey"}]}),
            json!({"evictionTtlSeconds": -1}),
            json!({"evictionSweepSeconds": -1}),
        ] {
            assert!(refusal(config.clone()).is_err(), "{config}");
        }
        let error = refusal(json!({"sources": [{"attribute": "agent"}]})).unwrap_err();
        assert!(error.contains("agent-identity") && error.contains("SessionIDDataKey"), "{error}");
        assert_eq!(refusal(json!({"sources": [{"attribute": "agent-identity"}]})), Ok(()));
        assert_eq!(scorer(json!({})).check(), Ok(()));
    }
}
