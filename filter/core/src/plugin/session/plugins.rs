//! `session-affinity-scorer` and `session-affinity-filter`.

use std::sync::Arc;

use serde::Deserialize;

use super::SessionAffinity;
use crate::input::cycle::Cycle;
use crate::plugin::{Filter, Need, Plugin, Recorder, ResponseMarker, Roles, Routed, Scorer};
use crate::pool::Endpoint;
use crate::rng::Rng;
use crate::state::{PluginState, StateChange};

macro_rules! session_affinity_plugins {
    ($($(#[$doc:meta])* $name:ident is a $role:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Deserialize)]
        #[serde(transparent)]
        pub struct $name(SessionAffinity);

        impl Plugin for $name {
            fn check(&self) -> Result<(), String> {
                self.0.check()
            }

            fn roles(self: Arc<Self>) -> Roles {
                let marker: Arc<dyn ResponseMarker> = self.clone();
                Roles {
                    response_marker: self.0.marks_responses().then_some(marker),
                    recorder: Some(self.clone()),
                    $role: Some(self),
                    ..Roles::default()
                }
            }

            fn needs(&self) -> Vec<Need<'_>> {
                self.0.needs()
            }

            fn is_alpha(&self) -> bool {
                true
            }
        }

        impl Recorder for $name {
            fn new_state(&self) -> Option<Box<dyn PluginState>> {
                self.0.new_state()
            }

            fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>) -> Vec<StateChange> {
                self.0.record(cycle, routed)
            }
        }

        impl ResponseMarker for $name {
            fn profile(&self) -> &str {
                self.0.profile()
            }

            fn response_header(&self, endpoint: &Endpoint) -> (String, String) {
                self.0.response_header(endpoint)
            }
        }
    )*};
}

session_affinity_plugins! {
    /// `session-affinity-scorer`: 1 for the endpoint of the request's session, 0 for the others.
    SessionAffinityScorer is a scorer;
    /// `session-affinity-filter`: keeps the endpoint of the request's session only; all, if it is not a candidate.
    SessionAffinityFilter is a filter;
}

impl Scorer for SessionAffinityScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let bound = self.0.endpoint(cycle, candidates);
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            *score = if bound == Some(endpoint) { 1.0 } else { 0.0 };
        }
    }
}

impl Filter for SessionAffinityFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        if let Some(bound) = self.0.endpoint(cycle, candidates) {
            candidates.retain(|&endpoint| endpoint == bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Stage;
    use crate::plugin::fixture::{Fixture, headers};
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
        look(&Routed { stages: &stages, primary: &stages[0], rated: Some(rated), hashes: None })
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
        fixture.now += core::time::Duration::from_secs(later);
        fixture.states = core::mem::take(state);
        let (changes, pool) = routed(picked, candidates, |routed| {
            fixture.with_cycle(|cycle| (scorer.record(cycle, routed), cycle.pool.clone()))
        });
        *state = fixture.states;
        for change in changes {
            state.apply(&change, &pool);
        }
    }

    fn bound(state: &mut PluginStates, later: u64) -> Vec<usize> {
        let mut fixture = sent(&[("x-session-id", "abc")]);
        fixture.now += core::time::Duration::from_secs(later);
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
            routed(0, &[0, 1, 2], |routed| fixture.with_cycle(|cycle| scorer.record(cycle, routed)))
        };
        fixture.states = PluginStates::only(scorer.new_state().unwrap());
        assert_eq!(record(&fixture), []);
        fixture.session("cookies", "abc");
        let by_cookie = record(&fixture);
        fixture.request.headers = headers(&[("x-first", " abc ")]);
        assert_eq!((record(&fixture), by_cookie.len()), (by_cookie, 1));
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
        let error = refusal(json!({"sources": [{"attribute": "agent-identity"}]})).unwrap_err();
        assert!(error.contains("agent-identity") && error.contains("SessionIDDataKey"), "{error}");
        assert_eq!(scorer(json!({})).check(), Ok(()));
    }
}
