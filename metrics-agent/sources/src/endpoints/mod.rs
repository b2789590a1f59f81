//! Endpoint discovery: from flags and from a file, by address or by host name.

mod admission;
mod discovery;
mod fields;
mod file;
mod follower;
mod named_servers;

use core::fmt;
use std::collections::HashSet;

pub use admission::{Admission, LeftOut, LeftOutMetrics};
pub use discovery::{Counters, Discovery, Sources, start};
use endpoint_picker::pool::{Endpoint, Endpoints};
pub(crate) use fields::check_labels;
pub use file::{FileError, PORT_OF_POOL, WatchedFile, parse};
pub use named_servers::{NamedServer, Unresolved};

use super::names::{HostName, MAX_NAMES};

/// The newest valid endpoint set; before the first one, why there is none.
pub type EndpointSet = Result<Vec<Endpoint>, NoEndpoints>;

/// Why there is no endpoint set yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoEndpoints {
    /// Something has not happened yet, such as the first read of a file.
    Pending(String),
    /// The first read has failed, or its endpoints are refused, for this reason.
    Refused(String),
}

impl fmt::Display for NoEndpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending(reason) | Self::Refused(reason) => f.write_str(reason),
        }
    }
}

/// The newest valid servers; before the first ones, why there are none.
pub type DeclaredSet = Result<Declared, NoEndpoints>;

/// Servers as flags and files declare them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    /// Endpoints with a fixed address.
    pub endpoints: Vec<Endpoint>,
    /// Servers under a host name.
    pub named: Vec<NamedServer>,
}

impl Declared {
    /// Refuses servers with the same name or address, and too many host names.
    pub fn unique(self) -> Result<Self, String> {
        let hosts: HashSet<&HostName> = self.named.iter().map(|server| &server.host).collect();
        if hosts.len() > MAX_NAMES {
            return Err(format!("{} host names; at most {MAX_NAMES} are allowed", hosts.len()));
        }
        Endpoints::new(String::new(), self.endpoints.clone()).map_err(|error| error.to_string())?;
        let mut names: HashSet<&str> = self.endpoints.iter().map(Endpoint::name).collect();
        let mut addresses = HashSet::new();
        for NamedServer { name, host, port, .. } in &self.named {
            if !names.insert(name) {
                return Err(format!("two endpoints are named {name:?}; a name must be unique in a pool"));
            }
            if !addresses.insert((host, port)) {
                let port = port.map_or_else(String::new, |port| format!(":{port}"));
                return Err(format!(
                    "two endpoints listen on {host}{port}; an address must be unique in a pool"
                ));
            }
        }
        Ok(self)
    }
}

/// All servers together, if their names and addresses are unique.
fn combine(fixed: &Declared, found: &Declared, max: usize) -> Result<Declared, String> {
    let endpoints = [&*fixed.endpoints, &found.endpoints].concat();
    let named = [&*fixed.named, &found.named].concat();
    let count = endpoints.len() + named.len();
    if count > max {
        return Err(format!("{count} endpoints; at most {max} are allowed (--max-endpoints)"));
    }
    Declared { endpoints, named }.unique()
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;

    fn named(name: &str, host: &str) -> Declared {
        let host = host.parse().unwrap();
        let server = NamedServer { name: name.to_owned(), host, port: NonZeroU16::new(8000), labels: vec![] };
        Declared { endpoints: vec![], named: vec![server] }
    }

    #[test]
    fn names_and_addresses_of_host_names_are_unique_and_count_for_the_limits() {
        let (one, two) = (named("default/a", "one"), named("default/b", "two"));
        assert_eq!(combine(&one, &two, 2).unwrap().named.len(), 2);
        let endpoint = Endpoint::new("default/a".to_owned(), "10.0.0.1:1".parse().unwrap(), vec![]);
        let fixed = Declared { endpoints: vec![endpoint], named: vec![] };
        let many: Vec<_> =
            (0..=MAX_NAMES).flat_map(|n| named(&format!("default/{n}"), &format!("h{n}")).named).collect();
        for (fixed, found, max, problem) in [
            (&fixed, &one, 9, "two endpoints are named \"default/a\""),
            (&one, &one, 9, "two endpoints are named \"default/a\""),
            (&one, &named("default/b", "ONE"), 9, "two endpoints listen on one:8000"),
            (&one, &two, 1, "2 endpoints; at most 1 are allowed (--max-endpoints)"),
            (
                &one,
                &Declared { endpoints: vec![], named: many },
                9999,
                "host names; at most 1024 are allowed",
            ),
        ] {
            let refusal = combine(fixed, found, max).unwrap_err();
            assert!(refusal.contains(problem), "{refusal}");
        }
    }
}
