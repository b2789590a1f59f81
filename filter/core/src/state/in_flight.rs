//! Load in flight at each endpoint, counted by all senders.

use core::time::Duration;

use hashbrown::HashMap;

use super::deferred_load::DeferredLoads;
use crate::pool::Endpoints;
use crate::pool::load::{FractionalLoad, Load};

/// Set in the number of a sender that is another proxy.
const OTHER_PROXY: u64 = 1 << 63;

/// The number as a sender of another proxy that has this number.
pub const fn sender_of_proxy(proxy: u64) -> u64 {
    proxy | OTHER_PROXY
}

/// Whether the sender is another proxy and not one of our workers, which are numbered from zero upwards.
pub const fn is_other_proxy(sender: u64) -> bool {
    sender & OTHER_PROXY != 0
}

/// The loads that several *senders* (the workers of one proxy, and other proxies) put on the endpoints, and
/// how often they chose them.
///
/// Senders are counted separately, so that the loads of one that vanishes can be removed. Endpoints are named
/// by [key](crate::pool::Endpoint::key). Those that left the pool are kept while something is in flight
/// there: they may be back before it ends.
///
/// Every VM applies every VM's changes, so an update must be cheap: one hash lookup, then array accesses.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    /// The place of an endpoint in the arrays: the pool's endpoints first, in its order, then others.
    places: HashMap<u64, usize>,
    /// Endpoints of the pool.
    in_pool: usize,
    keys: Vec<u64>,
    /// Over all senders.
    sums: Vec<Load>,
    /// Over the senders that are other proxies.
    others: Vec<Load>,
    /// Changes of `others` that do not count yet when endpoints are compared.
    deferred: DeferredLoads,
    picks: Vec<u64>,
    /// Loads of each sender by place; missing places at the end are zero.
    senders: HashMap<u64, Vec<Load>>,
}

impl InFlight {
    /// Follows a change of the pool.
    pub fn adopt(&mut self, pool: &Endpoints) {
        let older = core::mem::take(self);
        for endpoint in pool.as_slice() {
            let place = self.place(endpoint.key());
            self.picks[place] = older.places.get(&endpoint.key()).map_or(0, |&place| older.picks[place]);
        }
        self.in_pool = self.keys.len();
        for &sender in older.senders.keys() {
            self.senders.insert(sender, Vec::new());
            for (endpoint, load) in older.of(sender) {
                self.add(sender, endpoint, load);
            }
        }
        let places: Vec<_> = older.keys.iter().map(|endpoint| self.places.get(endpoint).copied()).collect();
        self.deferred = older.deferred.moved(places.into_iter());
    }

    /// All senders' loads together, in the order of the pool adopted last.
    pub fn loads(&self) -> &[Load] {
        &self.sums[..self.in_pool]
    }

    /// The part of these loads that is of other proxies, in the same order.
    pub fn of_others(&self) -> &[Load] {
        &self.others[..self.in_pool]
    }

    /// The part of these loads that is deferred, in the same order. Those missing at the end have none.
    pub fn deferred(&self) -> &[FractionalLoad] {
        let deferred = self.deferred.loads();
        &deferred[..self.in_pool.min(deferred.len())]
    }

    /// Time passes: less is deferred.
    pub fn pass(&mut self, time: Duration) {
        self.deferred.pass(time);
    }

    /// The loads of this proxy's workers together, at each endpoint where they have any: also where it has
    /// left the pool. The endpoints' keys are in no order.
    pub fn own(&self) -> impl Iterator<Item = (u64, Load)> {
        let own = self.keys.iter().zip(self.own_sums());
        own.filter(|(_, load)| *load != Load::default()).map(|(&endpoint, load)| (endpoint, load))
    }

    /// The loads of this proxy's workers together, in the order of the pool adopted last.
    pub fn own_loads(&self) -> impl Iterator<Item = Load> {
        self.own_sums().take(self.in_pool)
    }

    fn own_sums(&self) -> impl Iterator<Item = Load> {
        self.sums.iter().zip(&self.others).map(|(&sum, &others)| {
            let mut own = sum;
            own -= others;
            own
        })
    }

    /// How often each endpoint was chosen since it came into the pool, in the order of the pool adopted last.
    pub fn picks(&self) -> &[u64] {
        &self.picks[..self.in_pool]
    }

    /// Counts a pick of an endpoint by `sender`, and adds to its load there.
    pub fn start(&mut self, sender: u64, endpoint: u64, load: Load) {
        let place = self.add(sender, endpoint, load);
        self.picks[place] += 1;
    }

    /// Subtracts from the load of `sender` at an endpoint, down to zero.
    pub fn end(&mut self, sender: u64, endpoint: u64, load: Load) {
        let Some(&place) = self.places.get(&endpoint) else { return };
        let Some(known) = self.senders.get_mut(&sender).and_then(|loads| loads.get_mut(place)) else {
            return;
        };
        let load = load.min(*known);
        *known -= load;
        self.sums[place] -= load;
        if is_other_proxy(sender) {
            self.others[place] -= load;
        }
    }

    /// Moves load of `sender` from one endpoint to another.
    pub fn transfer(&mut self, sender: u64, from: u64, to: u64, load: Load) {
        self.end(sender, from, load);
        self.add(sender, to, load);
    }

    /// Replaces the load of `sender` at one endpoint. A change of another proxy's load is deferred, but not
    /// its first one.
    pub fn set_at(&mut self, sender: u64, endpoint: u64, load: Load) {
        let is_deferred = is_other_proxy(sender) && self.senders.contains_key(&sender);
        let all = Load { requests: u64::MAX, tokens: u64::MAX };
        let older = self.load_at(sender, endpoint);
        self.end(sender, endpoint, all);
        if load != Load::default() {
            self.add(sender, endpoint, load);
        }
        if is_deferred && let Some(&place) = self.places.get(&endpoint) {
            self.deferred.change(place, self.in_pool, older, load);
        }
    }

    /// Replaces the loads of `sender`; without any, the sender is removed. Changes of another proxy are
    /// deferred as by [`Self::set_at`].
    pub fn set(&mut self, sender: u64, loads: impl IntoIterator<Item = (u64, Load)>) {
        let older = self.senders.get(&sender).filter(|_| is_other_proxy(sender)).cloned();
        self.remove(sender);
        for (endpoint, load) in loads {
            self.add(sender, endpoint, load);
        }
        if let (Some(older), Some(newer)) = (older, self.senders.get(&sender)) {
            for (place, &to) in newer.iter().enumerate() {
                let from = older.get(place).copied().unwrap_or_default();
                self.deferred.change(place, self.in_pool, from, to);
            }
        }
        self.defer_nothing_alone();
    }

    /// Drops the loads of `sender`, which has left.
    pub fn forget(&mut self, sender: u64) {
        self.remove(sender);
        self.defer_nothing_alone();
    }

    /// Without other proxies, all loads are current.
    fn defer_nothing_alone(&mut self) {
        if !self.senders.keys().any(|&sender| is_other_proxy(sender)) {
            self.deferred.clear();
        }
    }

    fn remove(&mut self, sender: u64) {
        let loads = self.senders.remove(&sender).unwrap_or_default();
        for (sum, load) in self.sums.iter_mut().zip(&loads) {
            *sum -= *load;
        }
        if is_other_proxy(sender) {
            for (sum, load) in self.others.iter_mut().zip(&loads) {
                *sum -= *load;
            }
        }
    }

    /// The loads of `sender` by endpoint.
    pub fn of(&self, sender: u64) -> impl Iterator<Item = (u64, Load)> {
        let loads = self.senders.get(&sender).into_iter().flatten();
        let loads = self.keys.iter().zip(loads).filter(|(_, load)| **load != Load::default());
        loads.map(|(&endpoint, &load)| (endpoint, load))
    }

    /// The senders that have, or had, load in flight.
    pub fn senders(&self) -> impl Iterator<Item = u64> {
        self.senders.keys().copied()
    }

    /// Adds to the load of `sender` at an endpoint. Returns the endpoint's place.
    fn add(&mut self, sender: u64, endpoint: u64, load: Load) -> usize {
        let place = self.place(endpoint);
        let loads = self.senders.entry(sender).or_default();
        if loads.len() <= place {
            loads.resize(self.keys.len(), Load::default());
        }
        loads[place] += load;
        self.sums[place] += load;
        if is_other_proxy(sender) {
            self.others[place] += load;
        }
        place
    }

    fn load_at(&self, sender: u64, endpoint: u64) -> Load {
        let place = self.places.get(&endpoint);
        let loads = self.senders.get(&sender);
        place.and_then(|&place| loads?.get(place)).copied().unwrap_or_default()
    }

    /// The place of an endpoint; a new one if it has none.
    fn place(&mut self, endpoint: u64) -> usize {
        *self.places.entry(endpoint).or_insert_with(|| {
            self.keys.push(endpoint);
            self.sums.push(Load::default());
            self.others.push(Load::default());
            self.picks.push(0);
            self.keys.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::assert_near;
    use crate::pool::Endpoint;
    use crate::test;

    const ONE: Load = Load { requests: 1, tokens: 100 };
    const NONE: Load = Load { requests: 0, tokens: 0 };

    fn pool(hosts: &[u8]) -> Endpoints {
        let endpoint = |&n: &u8| Endpoint::new(n.to_string(), ([10, 0, 0, n], 8000).into(), vec![]);
        Endpoints::new("p".to_owned(), hosts.iter().map(endpoint).collect()).unwrap()
    }

    fn key(host: u8) -> u64 {
        pool(&[host]).as_slice()[0].key()
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
    fn loads_of_other_proxies_count_but_are_not_own() {
        let other = sender_of_proxy(7);
        assert!(is_other_proxy(other) && !is_other_proxy(7));
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool(&[1, 2]));
        in_flight.start(7, key(2), ONE);
        in_flight.set_at(other, key(2), ONE);
        in_flight.set_at(other, key(2), Load { requests: 3, tokens: 30 });
        in_flight.set_at(other, key(1), ONE);
        assert_eq!(in_flight.loads(), [ONE, Load { requests: 4, tokens: 130 }]);
        assert_eq!(in_flight.own_loads().collect::<Vec<_>>(), [NONE, ONE]);
        assert_eq!(in_flight.own().collect::<Vec<_>>(), [(key(2), ONE)]);
        assert_eq!(in_flight.picks(), [0, 1], "of this proxy");
        in_flight.set_at(other, key(1), NONE);
        in_flight.adopt(&pool(&[2]));
        assert_eq!(in_flight.loads(), [Load { requests: 4, tokens: 130 }]);
        assert_eq!(in_flight.own_loads().collect::<Vec<_>>(), [ONE]);
        in_flight.set(other, [(key(2), ONE)]);
        assert_eq!(in_flight.own_loads().collect::<Vec<_>>(), [ONE]);
        in_flight.forget(other);
        assert_eq!(in_flight.loads(), [ONE]);
        in_flight.forget(7);
        assert_eq!(in_flight.own().count(), 0);
    }

    fn deferred(in_flight: &InFlight) -> Vec<f64> {
        in_flight.deferred().iter().map(|load| load.requests).collect()
    }

    #[test]
    fn changes_of_other_proxies_are_deferred_and_own_ones_are_not() {
        let other = sender_of_proxy(7);
        let requests = |requests| Load { requests, tokens: 0 };
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool(&[1, 2]));
        in_flight.start(7, key(1), ONE);
        in_flight.set_at(7, key(1), requests(5));
        in_flight.set(8, [(key(2), requests(5))]);
        in_flight.set(8, [(key(2), requests(6))]);
        assert!(deferred(&in_flight).is_empty(), "of this proxy");
        in_flight.set(other, [(key(1), requests(10))]);
        assert!(deferred(&in_flight).is_empty(), "what a proxy has when it is first read from");
        in_flight.set_at(other, key(1), requests(20));
        let of_first = deferred(&in_flight)[0];
        assert!((5.0..10.0).contains(&of_first), "{of_first}");
        in_flight.set(other, [(key(1), requests(20)), (key(2), requests(4))]);
        let of_second = deferred(&in_flight)[1];
        assert!((2.0..4.0).contains(&of_second), "{of_second}");
        assert_near(&deferred(&in_flight), &[of_first, of_second]);
        in_flight.set(other, [(key(2), requests(4))]);
        let [ended, unchanged] = deferred(&in_flight)[..] else { panic!("two endpoints") };
        assert!(ended < 0.0, "{ended}");
        assert_near(&[unchanged], &[of_second]);
        in_flight.set_at(other, key(2), NONE);
        assert_eq!(in_flight.loads(), [requests(5), requests(6)], "the sums are as they were read");
    }

    #[test]
    fn what_is_deferred_follows_its_endpoint_and_ends_with_the_last_other_proxy() {
        let (one, two) = (sender_of_proxy(1), sender_of_proxy(2));
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool(&[1, 2]));
        in_flight.set(one, [(key(2), ONE)]);
        in_flight.set(two, [(key(2), ONE)]);
        in_flight.set_at(one, key(2), Load { requests: 11, tokens: 100 });
        let of_second = deferred(&in_flight)[1];
        assert!(of_second > 5.0, "{of_second}");
        in_flight.adopt(&pool(&[2]));
        assert_near(&deferred(&in_flight), &[of_second]);
        in_flight.pass(Duration::from_millis(700));
        assert_near(&deferred(&in_flight), &[of_second / 2.0]);
        in_flight.set(two, []);
        assert_near(&deferred(&in_flight), &[of_second / 2.0]);
        in_flight.forget(one);
        assert!(deferred(&in_flight).is_empty(), "its loads do not count any more, not as an average either");
    }

    #[test]
    fn a_sender_cannot_end_more_than_it_started() {
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
    fn an_endpoint_that_comes_back_still_has_its_load() {
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

    #[test]
    fn a_load_that_is_transferred_is_in_flight_elsewhere() {
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool(&[1, 2]));
        in_flight.start(7, key(1), ONE);
        in_flight.transfer(7, key(1), key(2), ONE);
        assert_eq!(in_flight.loads(), [NONE, ONE]);
        assert_eq!(in_flight.picks(), [1, 0], "the pick counts where the request began");
    }

    #[test]
    fn picks_are_counted_for_as_long_as_an_endpoint_is_in_the_pool() {
        let mut in_flight = InFlight::default();
        in_flight.adopt(&pool(&[1, 2]));
        in_flight.start(7, key(1), ONE);
        in_flight.start(8, key(2), ONE);
        in_flight.start(8, key(2), ONE);
        in_flight.forget(8);
        assert_eq!(in_flight.picks(), [1, 2]);
        in_flight.adopt(&pool(&[2, 3]));
        assert_eq!(in_flight.picks(), [2, 0]);
        in_flight.adopt(&pool(&[1, 2, 3]));
        assert_eq!(in_flight.picks(), [0, 2, 0], "one that left starts at zero");
    }
}
