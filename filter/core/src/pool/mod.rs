//! The endpoints that serve one pool, as discovery reports them.

pub mod load;
pub mod reading;

use core::fmt;
use core::net::SocketAddr;

use hashbrown::{HashMap, HashSet};
use xxhash_rust::xxh64::xxh64;

/// Maximum number of endpoints one pool may have. State that is kept per endpoint stores its index in two
/// bytes.
pub const MAX_ENDPOINTS: usize = u16::MAX as usize;

/// One model-server rank that can be sent a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    name: String,
    address: SocketAddr,
    printed: String,
    key: u64,
    labels: Vec<(String, String)>,
}

impl Endpoint {
    /// `name` is the EPP's endpoint id, `namespace/name`; it identifies the endpoint across reloads.
    pub fn new(name: String, address: SocketAddr, mut labels: Vec<(String, String)>) -> Self {
        labels.sort_unstable();
        labels.dedup_by(|later, earlier| later.0 == earlier.0);
        let printed = address.to_string();
        let key = xxh64(format!("{name}\0{printed}").as_bytes(), 0);
        Self { name, address, printed, key, labels }
    }

    /// The EPP's endpoint id, `namespace/name`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Identifies name and address together: a server that moved has lost its caches and is another endpoint.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Where the endpoint listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address as Envoy prints it: `10.0.0.1:8000`, `[2001:db8::1]:8000`.
    pub fn printed_address(&self) -> &str {
        &self.printed
    }

    /// The value of a label, if the endpoint carries it.
    pub fn label(&self, key: &str) -> Option<&str> {
        let at = self.labels.binary_search_by(|(k, _)| k.as_str().cmp(key)).ok()?;
        self.labels.get(at).map(|(_, value)| value.as_str())
    }

    /// Every label, sorted by key.
    pub fn labels(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }
}

/// The endpoints of one pool. An endpoint is referred to by its index in [`Endpoints::as_slice`].
#[derive(Clone, Debug, Default)]
pub struct Endpoints {
    name: String,
    endpoints: Vec<Endpoint>,
    by_key: HashMap<u64, usize>,
    by_address: HashMap<SocketAddr, usize>,
}

impl Endpoints {
    /// Refuses more than [`MAX_ENDPOINTS`] endpoints, and two endpoints of one name or one address.
    pub fn new(name: String, endpoints: Vec<Endpoint>) -> Result<Self, PoolError> {
        if endpoints.len() > MAX_ENDPOINTS {
            return Err(PoolError::TooMany(endpoints.len()));
        }
        let mut names = HashSet::with_capacity(endpoints.len());
        let mut by_address = HashMap::with_capacity(endpoints.len());
        for (index, endpoint) in endpoints.iter().enumerate() {
            if !names.insert(endpoint.name()) {
                return Err(PoolError::SameName(endpoint.name.clone()));
            }
            if by_address.insert(endpoint.address, index).is_some() {
                return Err(PoolError::SameAddress(endpoint.address));
            }
        }
        drop(names);
        let by_key = endpoints.iter().enumerate().map(|(index, endpoint)| (endpoint.key, index)).collect();
        Ok(Self { name, endpoints, by_key, by_address })
    }

    /// The pool's name, `namespace/name` or another name of the operator's choice.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// All endpoints, ready or not, in discovery's order.
    pub fn as_slice(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// The endpoint of this index.
    ///
    /// # Panics
    ///
    /// On an index that is not of this pool. Indices come only from a decision on this pool, or are remapped
    /// when it changes.
    #[expect(
        clippy::indexing_slicing,
        reason = "decisions and their changes are about one pool; the only place that counts on it"
    )]
    pub fn endpoint(&self, index: usize) -> &Endpoint {
        &self.endpoints[index]
    }

    /// Where the endpoints of this pool are in `newer`: for each, the index of the endpoint of the same name
    /// and address, or `None` if it left.
    pub fn moves_to(&self, newer: &Self) -> Vec<Option<usize>> {
        self.endpoints.iter().map(|old| newer.index_of(old.key)).collect()
    }

    /// The index of the endpoint that listens on `address`.
    pub fn index_at(&self, address: SocketAddr) -> Option<usize> {
        self.by_address.get(&address).copied()
    }

    /// The endpoint with this key.
    pub fn of_key(&self, key: u64) -> Option<&Endpoint> {
        self.endpoints.get(self.index_of(key)?)
    }

    /// The index of the endpoint with this key.
    pub fn index_of(&self, key: u64) -> Option<usize> {
        self.by_key.get(&key).copied()
    }
}

/// Why a set of endpoints is not a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// More endpoints than [`MAX_ENDPOINTS`].
    TooMany(usize),
    /// Two endpoints of this name.
    SameName(String),
    /// Two endpoints on this address.
    SameAddress(SocketAddr),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany(n) => write!(f, "{n} endpoints in one pool; at most {MAX_ENDPOINTS} are allowed"),
            Self::SameName(name) => {
                write!(f, "two endpoints are named {name:?}; a name must be unique in a pool")
            }
            Self::SameAddress(address) => {
                write!(f, "two endpoints listen on {address}; an address must be unique in a pool")
            }
        }
    }
}

impl core::error::Error for PoolError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn endpoint(name: &str, address: &str) -> Endpoint {
        Endpoint::new(name.to_owned(), address.parse().unwrap(), vec![])
    }

    #[test]
    fn an_address_is_printed_as_envoy_prints_it() {
        assert_eq!(endpoint("a", "10.0.0.1:8000").printed_address(), "10.0.0.1:8000");
        assert_eq!(endpoint("a", "[2001:0db8::0001]:8000").printed_address(), "[2001:db8::1]:8000");
    }

    #[test]
    fn a_label_is_found_by_its_key_and_the_first_of_two_equal_keys_stays() {
        let labels = [("b", "2"), ("a", "1"), ("b", "3")].map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        let endpoint = Endpoint::new("n".to_owned(), "10.0.0.1:1".parse().unwrap(), labels);
        assert_eq!(endpoint.label("a"), Some("1"));
        assert_eq!(endpoint.label("b"), Some("2"));
        assert_eq!(endpoint.label("c"), None);
    }

    fn pool(endpoints: Vec<Endpoint>) -> Result<Endpoints, PoolError> {
        Endpoints::new("p".to_owned(), endpoints)
    }

    #[test]
    fn an_endpoint_moves_with_its_name_and_address_only() {
        let old =
            pool(vec![endpoint("a", "10.0.0.1:1"), endpoint("b", "10.0.0.2:1"), endpoint("c", "10.0.0.3:1")]);
        let new =
            pool(vec![endpoint("c", "10.0.0.3:1"), endpoint("a", "10.0.0.9:1"), endpoint("x", "10.0.0.2:1")]);
        assert_eq!(old.unwrap().moves_to(&new.unwrap()), [None, None, Some(0)]);
    }

    #[test]
    fn names_and_addresses_are_unique() {
        assert!(pool(vec![endpoint("a", "10.0.0.1:1"), endpoint("b", "10.0.0.1:2")]).is_ok());
        assert_eq!(
            pool(vec![endpoint("a", "10.0.0.1:1"), endpoint("a", "10.0.0.1:2")]).unwrap_err(),
            PoolError::SameName("a".to_owned())
        );
        assert_eq!(
            pool(vec![endpoint("a", "10.0.0.1:1"), endpoint("b", "10.0.0.1:1")]).unwrap_err(),
            PoolError::SameAddress("10.0.0.1:1".parse().unwrap())
        );
    }
}
