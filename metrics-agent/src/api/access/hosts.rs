//! The allowed values of the `host` header.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};

/// The `host` of filters, whatever the name of the agent's cluster.
const FILTERS_NAME: &str = "metrics-agent";

/// The allowed values of the `host` header, beside the agent's own address.
///
/// They prevent DNS rebinding: a web page whose name resolves to the agent's address could read the API through the browser of a
/// user who can reach the agent. The browser then sends the page's name as `host`.
#[derive(Clone, Debug, Default)]
pub struct AllowedHosts(pub Vec<String>);

impl AllowedHosts {
    /// Whether a request to `address` names that address, `localhost` for a loopback address, or an allowed name. Ports are not
    /// compared, because tunnels change them.
    pub(super) fn allow(&self, headers: &HeaderMap, address: IpAddr) -> bool {
        let mut hosts = headers.get_all(header::HOST).iter();
        let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
        let Some(name) = host.to_str().ok().and_then(name_of) else { return false };
        let address = address.to_canonical();
        let is = |allowed: &str| name.eq_ignore_ascii_case(allowed);
        name.parse::<IpAddr>().is_ok_and(|named| named.to_canonical() == address)
            || is(FILTERS_NAME)
            || (is("localhost") && address.is_loopback())
            || self.0.iter().any(|allowed| is(allowed))
    }
}

/// The host without its port, an IPv6 address without its brackets.
fn name_of(host: &str) -> Option<String> {
    let authority: Authority = host.parse().ok().filter(|_| !host.contains('@'))?;
    Some(authority.host().trim_matches(['[', ']']).to_owned())
}

/// Reads a host name or an IP address, without a port.
pub fn allowed_host(text: &str) -> Result<String, String> {
    let bare = text.trim_matches(['[', ']']);
    let is_name = name_of(text).is_some_and(|name| name == text) && !text.contains('*');
    if bare.parse::<IpAddr>().is_ok() || is_name {
        Ok(bare.to_owned())
    } else {
        Err("must be a host name or an IP address, without a port".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(names: &[&str], hosts: &[&str], address: &str) -> bool {
        let allowed = AllowedHosts(names.iter().map(|name| allowed_host(name).unwrap()).collect());
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(header::HOST, host.parse().unwrap());
        }
        allowed.allow(&headers, address.parse().unwrap())
    }

    #[test]
    fn its_own_address_is_allowed_whatever_the_port() {
        for (host, address) in [
            ("127.0.0.1:9095", "127.0.0.1"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1:1234", "::ffff:127.0.0.1"),
            ("[::1]:9095", "::1"),
            ("10.0.0.7:9095", "10.0.0.7"),
            ("localhost:9095", "127.0.0.1"),
            ("LocalHost", "::1"),
            ("metrics-agent", "10.0.0.7"),
        ] {
            assert!(allows(&[], &[host], address), "{host} at {address}");
        }
    }

    #[test]
    fn a_name_is_allowed_only_if_a_flag_names_it() {
        for host in [
            "rebound.example",
            "rebound.example:9095",
            "127.0.0.1.rebound.example",
            "10.0.0.8",
            "",
            "a@127.0.0.1",
            "localhost",
        ] {
            assert!(!allows(&["agent.example"], &[host], "10.0.0.7"), "{host}");
        }
        assert!(!allows(&[], &[], "127.0.0.1"));
        assert!(!allows(&[], &["127.0.0.1", "rebound.example"], "127.0.0.1"));
        assert!(allows(&["agent.example"], &["Agent.Example:9095"], "10.0.0.7"));
        assert!(allows(&["10.0.0.8"], &["10.0.0.8:9095"], "10.0.0.7"));
        assert!(allows(&["[2001:db8::1]"], &["[2001:db8::1]:9095"], "10.0.0.7"));
    }

    #[test]
    fn invalid_names_are_refused() {
        for text in ["", "a:1", "10.0.0.1:80", "http://a", "a/b", "a@b", "*.example", "*"] {
            assert!(allowed_host(text).is_err(), "{text}");
        }
    }
}
