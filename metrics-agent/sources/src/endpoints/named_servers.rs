//! The model servers of a host name, and their endpoints.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;

use endpoint_picker::pool::Endpoint;

use super::{Admission, LeftOut, PORT_OF_POOL};
use crate::names::HostName;
use crate::names::table::NameState;

/// Model servers at one port of a host name: an endpoint for each of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedServer {
    /// The name of all of them, `namespace/name`.
    pub name: String,
    /// The host name to resolve.
    pub host: HostName,
    /// Their port; `None`: the pool's.
    pub port: Option<NonZeroU16>,
    /// Their labels.
    pub labels: Vec<(String, String)>,
}

impl NamedServer {
    /// The endpoint of an address. Its name depends on nothing else, so it stays the same endpoint while
    /// others come and go.
    fn endpoint(&self, ip: IpAddr) -> Endpoint {
        let address = SocketAddr::new(ip, self.port());
        Endpoint::new(format!("{}@{ip}", self.name), address, self.labels.clone())
    }

    /// An endpoint with its name and labels, by which its pool is found.
    pub(super) fn placeholder(&self) -> Endpoint {
        let address = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), self.port());
        Endpoint::new(self.name.clone(), address, self.labels.clone())
    }

    fn port(&self) -> u16 {
        self.port.map_or(PORT_OF_POOL, NonZeroU16::get)
    }
}

/// A host name that was not resolved by its last lookup, or not in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    /// Name and labels of its servers, without their address.
    pub placeholder: Endpoint,
    /// The host name.
    pub host: HostName,
    /// The number of addresses from its last successful lookup.
    pub addresses: usize,
    /// Whether name servers deny the name again and again, so that these addresses serve only while no other
    /// endpoint is ready.
    pub is_denied: bool,
    /// The reason.
    pub problem: String,
}

/// The endpoints of all servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Resolved {
    pub(super) endpoints: Vec<Endpoint>,
    /// The names of endpoints whose host name is denied, and whose address no other host name has.
    pub(super) denied: BTreeSet<String>,
    pub(super) left_out: LeftOut,
}

/// Endpoints with a fixed address, and after them endpoints of host names: in the order of the servers, then
/// of the addresses. An endpoint whose address an earlier one has is left out.
pub(super) fn resolved<'a>(
    fixed: &[Endpoint],
    servers: &[NamedServer],
    state: impl Fn(&HostName) -> Option<&'a NameState>,
    max: usize,
) -> Resolved {
    let mut resolved = Resolved { endpoints: fixed.to_vec(), ..Resolved::default() };
    let mut undenied = HashSet::new();
    let mut admission = Admission::new(fixed.iter(), max);
    for server in servers {
        let Some(state) = state(&server.host) else { continue };
        for ip in state.addresses() {
            let endpoint = server.endpoint(*ip);
            if state.is_denied() {
                resolved.denied.insert(endpoint.name().to_owned());
            } else {
                undenied.insert(endpoint.address());
            }
            if admission.admits(&endpoint) {
                resolved.endpoints.push(endpoint);
            }
        }
    }
    let kept = resolved.endpoints.iter().filter(|endpoint| !undenied.contains(&endpoint.address()));
    let kept: HashSet<&str> = kept.map(Endpoint::name).collect();
    resolved.denied.retain(|name| kept.contains(name.as_str()));
    resolved.left_out = admission.left_out();
    resolved
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn server(name: &str, host: &str) -> NamedServer {
        let port = NonZeroU16::new(8000);
        let labels = vec![("zone".to_owned(), "a".to_owned())];
        NamedServer { name: format!("default/{name}"), host: host.parse().unwrap(), port, labels }
    }

    /// The endpoints where name servers deny some of the host names.
    fn expanded(
        fixed: &[Endpoint],
        servers: &[NamedServer],
        max: usize,
        denied: &[&str],
    ) -> (Vec<String>, Resolved) {
        let state = |host: &str, texts: &[&str]| {
            let addresses = texts.iter().map(|text| text.parse().unwrap()).collect();
            (host.parse().unwrap(), NameState::with(addresses, denied.contains(&host)))
        };
        let known: BTreeMap<HostName, NameState> =
            [state("one", &["10.0.0.2", "10.0.0.1", "2001:db8::1"]), state("two", &["10.0.0.2", "10.0.0.3"])]
                .into();
        let resolved = resolved(fixed, servers, |host| known.get(host), max);
        assert!(resolved.endpoints.iter().all(|endpoint| endpoint.label("zone") == Some("a")));
        let printed = |e: &Endpoint| format!("{} {}", e.name(), e.printed_address());
        (resolved.endpoints.iter().map(printed).collect(), resolved)
    }

    #[test]
    fn each_address_of_a_name_is_an_endpoint_in_the_order_of_the_addresses() {
        let expected = [
            "default/a@10.0.0.1 10.0.0.1:8000",
            "default/a@10.0.0.2 10.0.0.2:8000",
            "default/a@2001:db8::1 [2001:db8::1]:8000",
        ];
        assert_eq!(expanded(&[], &[server("a", "one")], 10, &[]).0, expected);
        assert_eq!(expanded(&[], &[server("a", "unknown")], 10, &[]).1, Resolved::default());
    }

    #[test]
    fn an_address_of_two_names_is_an_endpoint_of_the_first_and_a_fixed_one_precedes_both() {
        let servers = [server("a", "one"), server("b", "two")];
        let (names, resolved) = expanded(&[], &servers, 10, &[]);
        assert_eq!((names.len(), names.last().unwrap().as_str()), (4, "default/b@10.0.0.3 10.0.0.3:8000"));
        let left_out = [("default/b@10.0.0.2".to_owned(), "default/a@10.0.0.2".to_owned())];
        assert_eq!(resolved.left_out.same_address, left_out);

        let labels = vec![("zone".to_owned(), "a".to_owned())];
        let fixed = Endpoint::new("default/f".to_owned(), "10.0.0.1:8000".parse().unwrap(), labels);
        let (names, resolved) = expanded(&[fixed], &servers, 3, &[]);
        assert_eq!(names[..2], ["default/f 10.0.0.1:8000", "default/a@10.0.0.2 10.0.0.2:8000"]);
        let LeftOut { same_address, beyond_limit } = resolved.left_out;
        assert_eq!((same_address.len(), beyond_limit), (2, vec!["default/b@10.0.0.3".to_owned()]));
    }

    #[test]
    fn an_address_that_another_name_or_a_flag_has_is_not_denied() {
        let servers = [server("a", "one"), server("b", "two")];
        let denied = |fixed: &[Endpoint], hosts: &[&str]| {
            let (endpoints, resolved) = expanded(fixed, &servers, 10, hosts);
            assert_eq!(endpoints.len(), 4, "denied addresses stay");
            Vec::from_iter(resolved.denied)
        };
        assert!(denied(&[], &[]).is_empty());
        assert_eq!(denied(&[], &["one"]), ["default/a@10.0.0.1", "default/a@2001:db8::1"]);
        assert_eq!(denied(&[], &["two"]), ["default/b@10.0.0.3"]);
        assert_eq!(denied(&[], &["one", "two"]).len(), 4);
        let labels = vec![("zone".to_owned(), "a".to_owned())];
        let fixed = Endpoint::new("default/f".to_owned(), "10.0.0.1:8000".parse().unwrap(), labels);
        assert_eq!(denied(&[fixed], &["one"]), ["default/a@2001:db8::1"]);
    }
}
