//! What is under way at each endpoint, counted by everyone who sends requests there.

use hashbrown::HashMap;

use crate::cycle::Load;
use crate::pool::Pool;

/// The loads that several *senders* (the VMs of one proxy) put on the endpoints.
///
/// Senders are kept apart, so that one that vanishes takes its counts with it. Endpoints are kept by
/// [key](crate::pool::Endpoint::key), also those that left the pool: they may be back before their requests end.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    senders: HashMap<u64, HashMap<u64, Load>>,
    /// Sums over the senders, in the order of the pool adopted last.
    sums: Vec<Load>,
    places: HashMap<u64, usize>,
}

impl InFlight {
    /// Follows a change of the pool.
    pub fn adopt(&mut self, pool: &Pool) {
        self.places =
            pool.endpoints().iter().enumerate().map(|(place, endpoint)| (endpoint.key(), place)).collect();
        self.sums = vec![Load::default(); pool.endpoints().len()];
        for (key, load) in self.senders.values().flatten() {
            if let Some(&place) = self.places.get(key) {
                self.sums[place] += *load;
            }
        }
    }

    /// All senders' loads together, in the order of the pool adopted last.
    pub fn loads(&self) -> &[Load] {
        &self.sums
    }

    /// Adds to what `sender` has under way at an endpoint.
    pub fn start(&mut self, sender: u64, endpoint: u64, load: Load) {
        *self.senders.entry(sender).or_default().entry(endpoint).or_default() += load;
        if let Some(&place) = self.places.get(&endpoint) {
            self.sums[place] += load;
        }
    }

    /// Takes from what `sender` has under way at an endpoint, never more than is there.
    pub fn end(&mut self, sender: u64, endpoint: u64, load: Load) {
        let Some(loads) = self.senders.get_mut(&sender) else { return };
        let Some(known) = loads.get_mut(&endpoint) else { return };
        let load = load.min(*known);
        *known -= load;
        if *known == Load::default() {
            loads.remove(&endpoint);
        }
        if let Some(&place) = self.places.get(&endpoint) {
            self.sums[place] -= load;
        }
    }

    /// Replaces all that `sender` has under way.
    pub fn set(&mut self, sender: u64, loads: impl IntoIterator<Item = (u64, Load)>) {
        self.forget(sender);
        for (endpoint, load) in loads {
            self.start(sender, endpoint, load);
        }
    }

    /// Drops all that `sender` has under way: it is gone.
    pub fn forget(&mut self, sender: u64) {
        for (endpoint, load) in self.senders.remove(&sender).unwrap_or_default() {
            if let Some(&place) = self.places.get(&endpoint) {
                self.sums[place] -= load;
            }
        }
    }

    /// What `sender` has under way, by endpoint.
    pub fn of(&self, sender: u64) -> impl Iterator<Item = (u64, Load)> {
        self.senders.get(&sender).into_iter().flatten().map(|(&endpoint, &load)| (endpoint, load))
    }

    /// Everyone who has, or had, something under way.
    pub fn senders(&self) -> impl Iterator<Item = u64> {
        self.senders.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Endpoint;
    use crate::test;

    const ONE: Load = Load { requests: 1, tokens: 100 };
    const NONE: Load = Load { requests: 0, tokens: 0 };

    fn pool(hosts: &[u8]) -> Pool {
        let endpoint = |&n: &u8| Endpoint::new(n.to_string(), ([10, 0, 0, n], 8000).into(), vec![]);
        Pool::new("p".to_owned(), hosts.iter().map(endpoint).collect()).unwrap()
    }

    fn key(host: u8) -> u64 {
        pool(&[host]).endpoints()[0].key()
    }

    #[test]
    fn the_loads_of_all_senders_add_up_in_the_pools_order() {
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool(&[1, 2]));
        in_flight.start(7, key(2), ONE);
        in_flight.start(8, key(2), ONE);
        in_flight.start(8, key(1), ONE);
        assert_eq!(in_flight.loads(), [ONE, Load { requests: 2, tokens: 200 }]);
        in_flight.end(7, key(2), Load { requests: 0, tokens: 100 });
        in_flight.end(8, key(1), ONE);
        assert_eq!(in_flight.loads(), [NONE, Load { requests: 2, tokens: 100 }]);
    }

    #[test]
    fn nobody_can_end_more_than_he_started() {
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool(&[1]));
        in_flight.end(7, key(1), ONE);
        in_flight.start(8, key(1), ONE);
        in_flight.end(7, key(1), ONE);
        assert_eq!(in_flight.loads(), [ONE]);
        in_flight.end(8, key(1), Load { requests: 5, tokens: 5 });
        assert_eq!(in_flight.loads(), [Load { requests: 0, tokens: 95 }]);
    }

    #[test]
    fn a_sender_that_vanishes_takes_its_loads_with_it() {
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool(&[1, 2]));
        in_flight.start(7, key(1), ONE);
        in_flight.start(8, key(1), ONE);
        in_flight.forget(7);
        assert_eq!(in_flight.loads(), [ONE, NONE]);
        in_flight.set(8, [(key(2), ONE)]);
        assert_eq!(in_flight.loads(), [NONE, ONE]);
        assert_eq!(in_flight.of(8).collect::<Vec<_>>(), [(key(2), ONE)]);
    }

    #[test]
    fn an_endpoint_that_comes_back_has_its_load_still() {
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool(&[1, 2]));
        in_flight.start(7, key(1), ONE);
        in_flight.adopt(&pool(&[2]));
        assert_eq!(in_flight.loads(), [NONE]);
        in_flight.adopt(&pool(&[1, 2]));
        assert_eq!(in_flight.loads(), [ONE, NONE]);
        in_flight.adopt(&pool(&[2]));
        in_flight.end(7, key(1), ONE);
        in_flight.adopt(&pool(&[1, 2]));
        assert_eq!(in_flight.loads(), [NONE, NONE]);
    }
}
