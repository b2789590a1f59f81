//! Changes of other proxies' loads, which count little by little.
//!
//! The loads of other proxies are up to 40 ms old when they are read. If they counted in full at once,
//! proxies that share their changes would all send their next requests to the same best endpoint, until they
//! read each other's loads there. So where much changes within that time, endpoints are compared without the
//! greatest part of the latest changes. The rest is close to an average, and the proxy's own load, which is
//! always current, decides between endpoints that are alike on average.

use core::time::Duration;

use crate::pool::load::{FractionalLoad, Load};

/// The time in which the deferred part falls to half. It spans many syncs, one every 20 ms.
const HALF_LIFE: Duration = Duration::from_millis(700);

/// The age of the loads of other proxies, at most, in half-lives: two syncs of 20 ms over [`HALF_LIFE`].
const AGE: f64 = 0.04 / 0.7;

/// Requests by which the load of an endpoint changes unread with which half of a change is deferred. The
/// simulation in `tests/simulation/tests/simulation/herds` has few herds with it where much changes, and
/// current loads where little does.
const HALF_DEFERRED: f64 = 0.05;

/// Fewer requests and tokens count as zero.
const NOTHING: FractionalLoad = FractionalLoad { requests: 0.01, tokens: 1.0 };

/// The parts of changes that do not count yet, by the places of endpoints. A part is negative while a load
/// has become smaller.
#[derive(Clone, Debug, Default)]
pub struct DeferredLoads {
    /// Missing places at the end have none; empty: none has.
    loads: Vec<FractionalLoad>,
    /// The requests by which loads have changed, added up; the sum falls to half as the loads do.
    changes: f64,
}

impl DeferredLoads {
    /// The deferred part of the load at each place; missing places at the end have none.
    pub fn loads(&self) -> &[FractionalLoad] {
        &self.loads
    }

    /// Another proxy's load at the place of one of this many endpoints has changed.
    pub fn change(&mut self, place: usize, endpoints: usize, from: Load, to: Load) {
        if from == to {
            return;
        }
        let (from, to) = (FractionalLoad::from(from), FractionalLoad::from(to));
        self.changes += (to.requests - from.requests).abs();
        // Changes of one half-life add up to the sum times the logarithm of two.
        let unread = self.changes * core::f64::consts::LN_2 * AGE / endpoints.max(1) as f64;
        let share = unread / (unread + HALF_DEFERRED);
        let deferred = self.at(place);
        deferred.requests += share * (to.requests - from.requests);
        deferred.tokens += share * (to.tokens - from.tokens);
    }

    fn at(&mut self, place: usize) -> &mut FractionalLoad {
        if self.loads.len() <= place {
            self.loads.resize(place + 1, FractionalLoad::default());
        }
        &mut self.loads[place]
    }

    /// The same with endpoints at other places, `None` for those that are left out.
    #[must_use]
    pub fn moved(&self, places: impl Iterator<Item = Option<usize>>) -> Self {
        let mut moved = Self { loads: Vec::new(), changes: self.changes };
        for (&load, place) in self.loads.iter().zip(places) {
            if let Some(place) = place {
                *moved.at(place) = load;
            }
        }
        moved
    }

    /// Time passes: the deferred parts become smaller.
    pub fn pass(&mut self, time: Duration) {
        let left = (-time.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
        self.changes *= left;
        let mut is_nothing = self.changes < 1.0;
        for load in &mut self.loads {
            load.requests *= left;
            load.tokens *= left;
            is_nothing &= load.requests.abs() < NOTHING.requests && load.tokens.abs() < NOTHING.tokens;
        }
        if is_nothing {
            self.clear();
        }
    }

    /// Everything counts at once.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::assert_near;
    use crate::test;

    const NONE: Load = Load { requests: 0, tokens: 0 };

    fn load(requests: u64) -> Load {
        Load { requests, tokens: 100 * requests }
    }

    fn requests(deferred: &DeferredLoads) -> Vec<f64> {
        deferred.loads().iter().map(|load| load.requests).collect()
    }

    #[test]
    fn the_more_changes_there_are_for_an_endpoint_the_more_of_each_is_deferred() {
        let share = |changes: u64, endpoints| {
            let mut deferred = DeferredLoads::default();
            deferred.change(0, endpoints, NONE, load(changes));
            assert_near(&[deferred.loads()[0].tokens], &[100.0 * requests(&deferred)[0]]);
            requests(&deferred)[0] / changes as f64
        };
        assert!(share(1, 100) < 0.01, "{}", share(1, 100));
        assert!((0.4..0.5).contains(&share(100, 100)), "{}", share(100, 100));
        assert!(share(3_000, 100) > 0.95, "{}", share(3_000, 100));
        assert_near(&[share(30, 10)], &[share(300, 100)]);
    }

    #[test]
    fn what_is_deferred_falls_to_half_in_700_ms_and_to_nothing() {
        let mut deferred = DeferredLoads::default();
        deferred.change(1, 2, NONE, load(10));
        let before = requests(&deferred)[1];
        for _ in 0..35 {
            deferred.pass(Duration::from_millis(20));
        }
        assert_near(&requests(&deferred), &[0.0, before / 2.0]);
        deferred.pass(Duration::from_secs(10));
        assert_eq!(deferred.loads(), [], "all counts");
    }

    #[test]
    fn a_load_that_ends_counts_for_a_while_and_one_that_is_as_before_changes_nothing() {
        let mut deferred = DeferredLoads::default();
        deferred.change(0, 1, load(10), load(10));
        assert_eq!(deferred.loads(), []);
        deferred.change(0, 1, load(10), NONE);
        assert!(requests(&deferred)[0] < -5.0, "{deferred:?}");
    }

    #[test]
    fn what_is_deferred_moves_with_its_endpoint() {
        let mut deferred = DeferredLoads::default();
        deferred.change(0, 2, NONE, load(10));
        deferred.change(1, 2, NONE, load(20));
        let before = requests(&deferred);
        let moved = deferred.moved([None, Some(2)].into_iter());
        assert_near(&requests(&moved), &[0.0, 0.0, before[1]]);
    }
}
