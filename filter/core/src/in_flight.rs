//! What is under way at each endpoint.

use core::net::SocketAddr;

use hashbrown::HashMap;

use crate::cycle::Load;
use crate::pool::Pool;

/// The load of every endpoint that has any, also of those that left the pool with requests under way: they may be back
/// before these end.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    by_address: HashMap<SocketAddr, Load>,
    /// The same in the pool's order.
    loads: Vec<Load>,
}

impl InFlight {
    /// Follows a change of the pool.
    pub fn adopt(&mut self, pool: &Pool) {
        let load = |address| self.by_address.get(&address).copied().unwrap_or_default();
        self.loads = pool.endpoints().iter().map(|endpoint| load(endpoint.address())).collect();
    }

    /// The loads in the order of the pool adopted last.
    pub fn loads(&self) -> &[Load] {
        &self.loads
    }

    /// Adds to an endpoint's load.
    pub fn add(&mut self, pool: &Pool, address: SocketAddr, load: Load) {
        let now = self.by_address.entry(address).or_default();
        now.requests += load.requests;
        now.tokens += load.tokens;
        let now = *now;
        self.show(pool, address, now);
    }

    /// Takes from an endpoint's load what was added to it before; never below zero.
    pub fn subtract(&mut self, pool: &Pool, address: SocketAddr, load: Load) {
        let Some(now) = self.by_address.get_mut(&address) else { return };
        now.requests = now.requests.saturating_sub(load.requests);
        now.tokens = now.tokens.saturating_sub(load.tokens);
        let now = *now;
        if now == Load::default() {
            self.by_address.remove(&address);
        }
        self.show(pool, address, now);
    }

    fn show(&mut self, pool: &Pool, address: SocketAddr, load: Load) {
        if let Some(shown) = pool.index_of(address).and_then(|index| self.loads.get_mut(index)) {
            *shown = load;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Endpoint;

    const ONE: Load = Load { requests: 1, tokens: 100 };

    fn address(n: u8) -> SocketAddr {
        ([10, 0, 0, n], 8000).into()
    }

    fn pool(hosts: &[u8]) -> Pool {
        let endpoint = |&n: &u8| Endpoint::new(n.to_string(), address(n), vec![]);
        Pool::new("p".to_owned(), hosts.iter().map(endpoint).collect()).unwrap()
    }

    #[test]
    fn what_is_added_and_taken_is_shown_in_the_pools_order() {
        let pool = pool(&[1, 2]);
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool);
        in_flight.add(&pool, address(2), ONE);
        in_flight.add(&pool, address(2), ONE);
        assert_eq!(in_flight.loads(), [Load::default(), Load { requests: 2, tokens: 200 }]);
        in_flight.subtract(&pool, address(2), Load { requests: 0, tokens: 100 });
        in_flight.subtract(&pool, address(2), ONE);
        assert_eq!(in_flight.loads(), [Load::default(), Load { requests: 1, tokens: 0 }]);
    }

    #[test]
    fn a_load_never_falls_below_zero() {
        let pool = pool(&[1]);
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool);
        in_flight.subtract(&pool, address(1), ONE);
        in_flight.add(&pool, address(1), ONE);
        in_flight.subtract(&pool, address(1), Load { requests: 5, tokens: 5 });
        assert_eq!(in_flight.loads(), [Load { requests: 0, tokens: 95 }]);
    }

    #[test]
    fn an_endpoint_that_comes_back_has_its_load_still() {
        let (both, one) = (pool(&[1, 2]), pool(&[2]));
        let mut in_flight = InFlight::default();
        in_flight.adopt(&both);
        in_flight.add(&both, address(1), ONE);
        in_flight.adopt(&one);
        assert_eq!(in_flight.loads(), [Load::default()]);
        in_flight.adopt(&both);
        assert_eq!(in_flight.loads(), [ONE, Load::default()]);
        in_flight.adopt(&one);
        in_flight.subtract(&one, address(1), ONE);
        in_flight.adopt(&both);
        assert_eq!(in_flight.loads(), [Load::default(); 2]);
    }
}
