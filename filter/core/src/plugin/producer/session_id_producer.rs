//! `session-id-producer`: which session a request belongs to.

use std::sync::Arc;

use serde::Deserialize;

use crate::headers::Headers;
use crate::plugin::{Plugin, Roles, SessionProducer};

/// Takes the session's name from a header, or from a cookie; exactly one of the two is configured.
///
/// Blanks around a name do not count, and an empty one is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SessionIdProducer {
    header_name: String,
    cookie_name: String,
}

impl Plugin for SessionIdProducer {
    fn check(&self) -> Result<(), String> {
        match (self.header(), self.cookie()) {
            ("", "") => Err("neither headerName nor cookieName is given; exactly one is needed".to_owned()),
            ("", _) | (_, "") => Ok(()),
            _ => Err("both headerName and cookieName are given; exactly one is allowed".to_owned()),
        }
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { session_producer: Some(self), ..Roles::default() }
    }
}

impl SessionProducer for SessionIdProducer {
    fn session_id<'a>(&self, headers: Headers<'a>) -> Option<&'a str> {
        let id = if self.header().is_empty() {
            cookie(headers.get("cookie")?, self.cookie())?
        } else {
            headers.get(self.header())?
        };
        Some(id.trim()).filter(|id| !id.is_empty())
    }
}

impl SessionIdProducer {
    fn header(&self) -> &str {
        self.header_name.trim()
    }

    fn cookie(&self) -> &str {
        self.cookie_name.trim()
    }
}

fn cookie<'a>(header: &'a str, name: &str) -> Option<&'a str> {
    let pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn find(header_name: &str, cookie_name: &str, headers: &[(&str, &str)]) -> Option<String> {
        let headers = headers.iter().copied().collect();
        let producer =
            SessionIdProducer { header_name: header_name.to_owned(), cookie_name: cookie_name.to_owned() };
        producer.session_id(Headers(&headers)).map(str::to_owned)
    }

    #[test]
    fn a_session_is_named_by_a_header() {
        assert_eq!(find("X-Session", "", &[("x-session", " abc ")]).as_deref(), Some("abc"));
        assert_eq!(find("X-Session", "", &[("x-session", "  ")]), None);
        assert_eq!(find("X-Session", "", &[]), None);
    }

    #[test]
    fn a_session_is_named_by_a_cookie() {
        let cookies = &[("cookie", "theme=dark; sid=a=b; sid2=c; flag")];
        assert_eq!(find("", "sid", cookies).as_deref(), Some("a=b"));
        assert_eq!(find("", "sid2", cookies).as_deref(), Some("c"));
        assert_eq!(find("", "flag", cookies), None);
        assert_eq!(find("", "other", cookies), None);
    }

    #[test]
    fn exactly_one_source_is_needed() {
        let check = |header: &str, cookie: &str| {
            SessionIdProducer { header_name: header.to_owned(), cookie_name: cookie.to_owned() }.check()
        };
        assert!(check("", " ").is_err() && check("a", "b").is_err());
        assert!(check("a", "").is_ok() && check("", "b").is_ok());
    }
}
