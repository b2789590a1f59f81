//! `header-based-testing-filter`: endpoints that a header names, for conformance tests.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use hashbrown::HashSet;
use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::{Filter, Plugin, Roles};
use crate::rng::Rng;

/// The header with the endpoints: addresses, each with a port or without, separated by commas.
const HEADER: &str = "test-epp-endpoint-selection";

/// Maximum number of endpoints that are read from it.
const MAX_NAMED: usize = 64;

/// Keeps the endpoints that a header names, one for each IP address. Without the header it keeps none.
///
/// An address with a port names this endpoint, one without a port the last endpoint with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeaderBasedTestingFilter {}

impl Plugin for HeaderBasedTestingFilter {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
    }

    fn warnings(&self) -> Vec<String> {
        vec![format!("it is for tests: any client chooses its server with the header {HEADER}")]
    }

    /// The EPP counts it as beta. A client that chooses its server is more than a production pool should
    /// allow.
    fn is_alpha(&self) -> bool {
        true
    }
}

impl Filter for HeaderBasedTestingFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        let header = cycle.request.headers.get(HEADER).unwrap_or_default();
        let mut used: HashSet<IpAddr> = HashSet::new();
        let mut kept = Vec::new();
        for (ip, port) in header.split(',').take(MAX_NAMED).filter_map(|name| address(name.trim())) {
            let is_named = |&&endpoint: &&usize| {
                let own = cycle.endpoint(endpoint).address();
                own.ip() == ip && port.is_none_or(|port| own.port() == port)
            };
            if let Some(&named) = candidates.iter().rev().find(is_named)
                && used.insert(ip)
            {
                kept.push(named);
            }
        }
        candidates.retain(|endpoint| kept.contains(endpoint));
    }
}

/// An IP address, in brackets or not, and its port if it has one.
fn address(name: &str) -> Option<(IpAddr, Option<u16>)> {
    if let Ok(address) = name.parse::<SocketAddr>() {
        return Some((address.ip(), Some(address.port())));
    }
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
    Some((bare.parse().ok()?, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, headers};
    use crate::test;

    /// The endpoints kept of three at 10.0.0.1, ports 8000 to 8002.
    fn kept(value: &str) -> Vec<usize> {
        let mut fixture = Fixture::of(3);
        fixture.request.headers = headers(&[(HEADER, value)]);
        fixture.kept(&HeaderBasedTestingFilter {}, 1)
    }

    #[test]
    fn the_header_names_one_endpoint_of_each_address() {
        assert_eq!(kept("10.0.0.1:8001"), [1]);
        assert_eq!(kept(" 10.0.0.9 , 10.0.0.1:8000, 10.0.0.1:8002"), [0]);
        assert_eq!(kept("10.0.0.1"), [2], "without a port the last one");
        for none in ["", " , ", "10.0.0.1:9", "10.0.0.2", "localhost", "10.0.0.1:8000:1"] {
            assert_eq!(kept(none), [0; 0], "{none:?}");
        }
        assert_eq!(Fixture::of(3).kept(&HeaderBasedTestingFilter {}, 1), [0; 0]);
    }

    #[test]
    fn addresses_of_ipv6_may_be_in_brackets() {
        let ip: IpAddr = "2001:db8::1".parse().unwrap();
        assert_eq!(address("2001:db8::1"), Some((ip, None)));
        assert_eq!(address("[2001:db8::1]"), Some((ip, None)));
        assert_eq!(address("[2001:db8::1]:80"), Some((ip, Some(80))));
        assert_eq!([address("[2001:db8::1"), address("")], [None; 2]);
    }
}
