//! `agent-identity`: the agent session that a request belongs to, from the headers of known agents.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::providers::AgentSessionHeaders;
use crate::plugin::{Plugin, Roles};

/// Headers by which agents name their session, after the ones that the configuration adds.
const SESSION_HEADERS: [&str; 4] =
    ["x-claude-code-session-id", "x-session-affinity", "session-id", "session_id"];

/// Publishes the value of the first header that is not empty as the request's attribute `agent-identity`. It
/// is the fairness id of requests that name none, and a source of session affinity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct AgentIdentity {
    /// Headers that come before the known ones. An empty name matches none.
    additional_session_headers: Vec<String>,
}

impl Plugin for AgentIdentity {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { agent_identity: Some(Arc::new(self.session_headers())), ..Roles::default() }
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl AgentIdentity {
    /// The headers that name the session.
    pub fn session_headers(&self) -> AgentSessionHeaders {
        let additional = self.additional_session_headers.iter().cloned();
        AgentSessionHeaders(additional.chain(SESSION_HEADERS.map(str::to_owned)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Headers;
    use crate::test;

    fn find(additional: &[&str], sent: &[(&str, &str)]) -> Option<String> {
        let additional_session_headers = additional.iter().map(|&name| name.to_owned()).collect();
        let headers = sent.iter().copied().collect();
        let plugin = AgentIdentity { additional_session_headers };
        plugin.session_headers().find(Headers(&headers)).map(|(_, id)| id.to_owned())
    }

    #[test]
    fn the_first_header_with_a_value_names_the_session() {
        let sent = &[("session-id", "s"), ("x-session-affinity", "a")];
        assert_eq!(find(&[], sent).as_deref(), Some("a"));
        assert_eq!(find(&["session-id"], sent).as_deref(), Some("s"));
        assert_eq!(find(&[], &[("session_id", " u ")]).as_deref(), Some(" u "), "the value is not trimmed");
        assert_eq!(find(&[], &[("x-claude-code-session-id", ""), ("session_id", "u")]).as_deref(), Some("u"));
        assert_eq!(find(&[], &[("x-session-id", "s")]), None);
    }

    #[test]
    fn names_of_headers_have_any_case_and_an_empty_one_matches_none() {
        assert_eq!(find(&["", "X-TEAM"], &[("x-team", "t"), ("session-id", "s")]).as_deref(), Some("t"));
    }
}
