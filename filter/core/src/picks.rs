//! How often each endpoint was chosen.

use hashbrown::HashMap;

use crate::pool::Pool;

/// Counts of requests, or parts of them, that endpoints were sent. Endpoints are kept by
/// [key](crate::pool::Endpoint::key).
#[derive(Clone, Debug, Default)]
pub struct Picks(HashMap<u64, u64>);

impl Picks {
    /// Follows a change of the pool: endpoints that left are forgotten, so that the counts stay as many as endpoints.
    pub fn adopt(&mut self, pool: &Pool) {
        self.0.retain(|&key, _| pool.index_of(key).is_some());
    }

    /// An endpoint was chosen once more.
    pub fn count(&mut self, endpoint: u64) {
        *self.0.entry(endpoint).or_default() += 1;
    }

    /// How often an endpoint was chosen since it came into the pool.
    pub fn of(&self, endpoint: u64) -> u64 {
        self.0.get(&endpoint).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Endpoint;
    use crate::test;

    fn pool(hosts: &[u8]) -> Pool {
        let endpoint = |&n: &u8| Endpoint::new(n.to_string(), ([10, 0, 0, n], 8000).into(), vec![]);
        Pool::new("p".to_owned(), hosts.iter().map(endpoint).collect()).unwrap()
    }

    fn key(host: u8) -> u64 {
        pool(&[host]).endpoints()[0].key()
    }

    #[test]
    fn each_endpoint_has_its_own_count() {
        let mut picks = Picks::default();
        picks.count(key(1));
        picks.count(key(2));
        picks.count(key(1));
        assert_eq!([1, 2, 3].map(|host| picks.of(key(host))), [2, 1, 0]);
    }

    #[test]
    fn an_endpoint_that_left_begins_anew_and_one_that_stays_does_not() {
        let mut picks = Picks::default();
        picks.count(key(1));
        picks.count(key(2));
        picks.adopt(&pool(&[2, 3]));
        assert_eq!([1, 2].map(|host| picks.of(key(host))), [0, 1]);
    }
}
