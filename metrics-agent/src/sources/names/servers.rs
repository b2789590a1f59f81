//! The model servers of a host name, and their endpoints.

use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;

use endpoint_picker::pool::Endpoint;

use super::HostName;
use crate::sources::endpoints::PORT_OF_POOL;

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
    /// The endpoint of an address. Its name depends on nothing else, so it stays the same endpoint while others come and go.
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
    /// The reason.
    pub problem: String,
}

/// Endpoints of host names that are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Another endpoint has their address.
    pub(super) same_address: usize,
    /// The set is full.
    pub(super) beyond_limit: usize,
}

/// Endpoints with a fixed address, and after them endpoints of host names: in the order of the servers, then of the addresses. An
/// endpoint whose address an earlier one has is left out.
pub(super) fn endpoints<'a>(
    fixed: &[Endpoint],
    servers: &[NamedServer],
    addresses: impl Fn(&HostName) -> Option<&'a BTreeSet<IpAddr>>,
    max: usize,
) -> (Vec<Endpoint>, LeftOut) {
    let mut endpoints = fixed.to_vec();
    let mut taken: HashSet<SocketAddr> = fixed.iter().map(Endpoint::address).collect();
    let mut left_out = LeftOut::default();
    for server in servers {
        for ip in addresses(&server.host).into_iter().flatten() {
            let endpoint = server.endpoint(*ip);
            if !taken.insert(endpoint.address()) {
                left_out.same_address += 1;
            } else if endpoints.len() >= max {
                left_out.beyond_limit += 1;
            } else {
                endpoints.push(endpoint);
            }
        }
    }
    (endpoints, left_out)
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

    fn expanded(fixed: &[Endpoint], servers: &[NamedServer], max: usize) -> (Vec<String>, LeftOut) {
        let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let known: BTreeMap<HostName, BTreeSet<IpAddr>> = [
            ("one".parse().unwrap(), addresses(&["10.0.0.2", "10.0.0.1", "2001:db8::1"])),
            ("two".parse().unwrap(), addresses(&["10.0.0.2", "10.0.0.3"])),
        ]
        .into();
        let (endpoints, left_out) = endpoints(fixed, servers, |host| known.get(host), max);
        assert!(endpoints.iter().all(|endpoint| endpoint.label("zone") == Some("a")));
        (endpoints.iter().map(|e| format!("{} {}", e.name(), e.printed_address())).collect(), left_out)
    }

    #[test]
    fn each_address_of_a_name_is_an_endpoint_in_the_order_of_the_addresses() {
        let expected = [
            "default/a@10.0.0.1 10.0.0.1:8000",
            "default/a@10.0.0.2 10.0.0.2:8000",
            "default/a@2001:db8::1 [2001:db8::1]:8000",
        ];
        assert_eq!(expanded(&[], &[server("a", "one")], 10).0, expected);
        assert_eq!(expanded(&[], &[server("a", "unknown")], 10), (vec![], LeftOut::default()));
    }

    #[test]
    fn an_address_of_two_names_is_an_endpoint_of_the_first_and_a_fixed_one_precedes_both() {
        let servers = [server("a", "one"), server("b", "two")];
        let (names, left_out) = expanded(&[], &servers, 10);
        assert_eq!((names.len(), names.last().unwrap().as_str()), (4, "default/b@10.0.0.3 10.0.0.3:8000"));
        assert_eq!(left_out, LeftOut { same_address: 1, beyond_limit: 0 });

        let labels = vec![("zone".to_owned(), "a".to_owned())];
        let fixed = Endpoint::new("default/f".to_owned(), "10.0.0.1:8000".parse().unwrap(), labels);
        let (names, left_out) = expanded(&[fixed], &servers, 3);
        assert_eq!(names[..2], ["default/f 10.0.0.1:8000", "default/a@10.0.0.2 10.0.0.2:8000"]);
        assert_eq!(left_out, LeftOut { same_address: 2, beyond_limit: 1 });
    }
}
