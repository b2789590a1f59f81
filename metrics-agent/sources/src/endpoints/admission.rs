//! Admits endpoints to a set: each address once, and up to a maximum.

use std::collections::HashMap;
use std::net::SocketAddr;

use endpoint_picker::pool::Endpoint;
use metrics_agent_support::runtime::Labels;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Maximum number of endpoints that the log names for one reason.
const MAX_NAMED: usize = 10;

/// Admits endpoints to one set.
#[derive(Debug)]
pub struct Admission {
    max: usize,
    /// The name of the endpoint that has each address.
    owners: HashMap<SocketAddr, String>,
    left_out: LeftOut,
}

/// Endpoints that are left out of a set, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Endpoints whose address another one has, each with the other one: a pod that has not ended yet, or two
    /// pods in the network of one node.
    pub same_address: Vec<(String, String)>,
    /// Endpoints beyond the maximum.
    pub beyond_limit: Vec<String>,
}

impl Admission {
    /// A set of up to `max` endpoints that has these.
    pub fn new<'a>(admitted: impl Iterator<Item = &'a Endpoint>, max: usize) -> Self {
        let owners = admitted.map(|endpoint| (endpoint.address(), endpoint.name().to_owned())).collect();
        Self { max, owners, left_out: LeftOut::default() }
    }

    /// Whether the set gets this endpoint.
    pub fn admits(&mut self, endpoint: &Endpoint) -> bool {
        let name = endpoint.name().to_owned();
        if let Some(owner) = self.owners.get(&endpoint.address()) {
            self.left_out.same_address.push((name, owner.clone()));
            return false;
        }
        if self.owners.len() >= self.max {
            self.left_out.beyond_limit.push(name);
            return false;
        }
        self.owners.insert(endpoint.address(), name);
        true
    }

    /// The endpoints that were not admitted.
    pub fn left_out(self) -> LeftOut {
        self.left_out
    }
}

impl LeftOut {
    /// Logs the endpoints; `of` is the source or the pool.
    pub fn log(&self, of: &str) {
        let Self { same_address, beyond_limit } = self;
        if !same_address.is_empty() {
            let names = same_address.iter().map(|(name, owner)| format!("{name} (the address of {owner})"));
            tracing::warn!(
                of,
                count = same_address.len(),
                endpoints = listed(names),
                "endpoints are left out, because another endpoint has their address"
            );
        }
        if !beyond_limit.is_empty() {
            tracing::error!(
                of,
                count = beyond_limit.len(),
                endpoints = listed(beyond_limit.iter().cloned()),
                "endpoints are left out, because the set is full (--max-endpoints)"
            );
        }
    }
}

/// The first names.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(MAX_NAMED);
    let first = names.take(MAX_NAMED).collect::<Vec<_>>().join(", ");
    if more == 0 { first } else { format!("{first} and {more} more") }
}

/// Numbers of endpoints that are left out. Clones count together.
#[derive(Clone, Debug)]
pub struct LeftOutMetrics(Family<Labels<2>, Gauge>);

impl LeftOutMetrics {
    /// Registers the gauge.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self(Family::default());
        let help =
            "Endpoints that are left out, by source (host_names, pods) and reason (same_address, limit)";
        registry.register("left_out_endpoints", help, metrics.0.clone());
        for source in ["host_names", "pods"] {
            metrics.set(source, [].into_iter());
        }
        metrics
    }

    /// Sets the numbers of a source.
    pub fn set<'a>(&self, source: &'static str, sets: impl Iterator<Item = &'a LeftOut>) {
        let add =
            |(same, limit), set: &LeftOut| (same + set.same_address.len(), limit + set.beyond_limit.len());
        let (same, limit) = sets.fold((0, 0), add);
        for (reason, count) in [("same_address", same), ("limit", limit)] {
            let gauge = self.0.get_or_create(&[("source", source), ("reason", reason)]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(name: &str, address: &str) -> Endpoint {
        Endpoint::new(name.to_owned(), address.parse().unwrap(), Vec::new())
    }

    #[test]
    fn an_address_is_used_once_and_the_limit_holds_and_the_others_are_named() {
        let mut admission = Admission::new([endpoint("first", "10.0.0.1:1")].iter(), 2);
        let offered = [("a", "10.0.0.1:1"), ("b", "10.0.0.2:1"), ("c", "10.0.0.2:1"), ("d", "10.0.0.3:1")];
        let admitted = offered.map(|(name, address)| admission.admits(&endpoint(name, address)));
        assert_eq!(admitted, [false, true, false, false]);
        let left_out = admission.left_out();
        let pairs = [("a", "first"), ("c", "b")].map(|(name, owner)| (name.to_owned(), owner.to_owned()));
        assert_eq!(left_out, LeftOut { same_address: pairs.into(), beyond_limit: vec!["d".to_owned()] });
    }

    #[test]
    fn a_long_list_is_cut() {
        assert_eq!(listed(["a".to_owned(), "b".to_owned()].into_iter()), "a, b");
        let many: Vec<_> = (0..15).map(|number| number.to_string()).collect();
        assert_eq!(listed(many.into_iter()), "0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 5 more");
    }
}
