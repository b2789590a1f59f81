//! Endpoints that have just failed, and are avoided for 0.25 to 2 s.
//!
//! The EPP has no rule like this: it detects a dead server with the next scrapes. Here an endpoint that
//! [fails](crate::response::outcome::ServerOutcome) a request is avoided at once, for a short time that
//! doubles with every failure up to [`MOST_DOUBLINGS`] times. Only a generation that it serves ends it. An
//! avoided endpoint is not excluded: it is still picked where no other candidate is left.
//!
//! Failures and recoveries of several workers and proxies may arrive late and out of order. Their times
//! decide.

use core::time::Duration;

use hashbrown::HashMap;

use crate::period::Period;
use crate::pool::Endpoints;

/// How often the first time doubles: with the default of 250 ms an endpoint is avoided for 2 s at most.
pub const MOST_DOUBLINGS: u32 = 3;

/// A failure so long after the last one is a first one again. Without it, an endpoint that serves no
/// generations would be avoided for 2 s after each of its rare failures. A minute is 30 times the longest
/// avoidance.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// Maximum delay of a failure that arrives behind a later recovery. Proxies share none that is older than
/// half a second.
const MAX_DELAY: Duration = Duration::from_secs(1);

/// Endpoints that failed, and the periods in which they are avoided. All times are by the shell's clock.
#[derive(Clone, Debug, Default)]
pub struct Avoidance {
    /// Failures by the endpoint's [key](crate::pool::Endpoint::key).
    failing: HashMap<u64, Failing>,
    /// The last recoveries, by the endpoint's key.
    recovered: HashMap<u64, Duration>,
    /// In the order of the pool adopted last; empty while none fails.
    avoided: Vec<Period>,
    /// How long an endpoint is avoided after its first failure; zero: not at all.
    first: Duration,
    places: HashMap<u64, usize>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    failures: u32,
    /// When it last failed.
    at: Duration,
    avoided: Period,
}

impl Avoidance {
    /// Follows a change of the pool or its policy. An endpoint is avoided for `first` after its first
    /// failure; zero: not at all.
    pub fn adopt(&mut self, pool: &Endpoints, first: Duration) {
        self.first = first;
        let endpoints = pool.as_slice().iter().enumerate();
        self.places = endpoints.map(|(place, endpoint)| (endpoint.key(), place)).collect();
        self.failing.retain(|key, _| !first.is_zero() && self.places.contains_key(key));
        self.recovered.retain(|key, _| self.places.contains_key(key));
        self.order();
    }

    /// An endpoint failed at this time. A request that fails while the endpoint is avoided was sent before,
    /// and does not count.
    pub fn failed(&mut self, endpoint: u64, at: Duration) {
        if self.first.is_zero() || !self.places.contains_key(&endpoint) {
            return;
        }
        let is_outdated = |&recovered: &Duration| Period::new(recovered, MAX_DELAY).begins_soon_after(at);
        if self.recovered.get(&endpoint).is_some_and(is_outdated) {
            return;
        }
        let never = Failing { failures: 0, at, avoided: Period::default() };
        let failing = self.failing.entry(endpoint).or_insert(never);
        if failing.avoided.contains(at) {
            failing.at = failing.at.max(at);
            return;
        }
        if !Period::new(failing.at, FORGOTTEN_AFTER).contains(at) {
            failing.failures = 0;
        }
        failing.at = at;
        let doublings = failing.failures.min(MOST_DOUBLINGS);
        failing.failures = failing.failures.saturating_add(1);
        failing.avoided = Period::new(at, self.first * (1 << doublings));
        self.order();
    }

    /// An endpoint served a generation at this time: it is not avoided any more, unless it has failed since.
    pub fn recovered(&mut self, endpoint: u64, at: Duration) {
        if self.places.contains_key(&endpoint) {
            let recovered = self.recovered.entry(endpoint).or_insert(at);
            // A time far ahead is of a clock that was set back.
            if !Period::new(*recovered, MAX_DELAY).begins_soon_after(at) {
                *recovered = at;
            }
        }
        let failed_since = |failing: &Failing| failing.avoided.from(failing.at).begins_soon_after(at);
        if self.failing.get(&endpoint).is_some_and(|failing| !failed_since(failing)) {
            self.failing.remove(&endpoint);
            self.order();
        }
    }

    /// Whether the endpoint has failed since it last recovered.
    pub fn is_failing(&self, endpoint: u64) -> bool {
        self.failing.contains_key(&endpoint)
    }

    /// Whether any endpoint has failed since it last recovered.
    pub fn has_failing(&self) -> bool {
        !self.failing.is_empty()
    }

    /// The keys of the endpoints that are avoided at this time, in no order.
    pub fn avoided_endpoints(&self, now: Duration) -> impl Iterator<Item = u64> {
        let avoided = self.failing.iter().filter(move |(_, failing)| failing.avoided.contains(now));
        avoided.map(|(&key, _)| key)
    }

    /// When each endpoint is avoided, in the order of the pool adopted last; those missing at the end are
    /// not.
    pub fn avoided(&self) -> &[Period] {
        &self.avoided
    }

    fn order(&mut self) {
        self.avoided.clear();
        if self.failing.is_empty() {
            return;
        }
        self.avoided.resize(self.places.len(), Period::default());
        for (key, failing) in &self.failing {
            let place = self.places.get(key).and_then(|&place| self.avoided.get_mut(place));
            if let Some(avoided) = place {
                *avoided = failing.avoided;
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unchecked_time_subtraction, reason = "the tests begin long after the epoch")]
mod tests {
    use super::*;
    use crate::pool::Endpoint;
    use crate::test;

    const FIRST: Duration = Duration::from_millis(250);
    const START: Duration = Duration::from_secs(1_000);

    fn pool(hosts: &[u8]) -> Endpoints {
        let endpoint = |&n: &u8| Endpoint::new(n.to_string(), ([10, 0, 0, n], 8000).into(), vec![]);
        Endpoints::new("p".to_owned(), hosts.iter().map(endpoint).collect()).unwrap()
    }

    fn key(host: u8) -> u64 {
        pool(&[host]).as_slice()[0].key()
    }

    fn avoidance(hosts: &[u8]) -> Avoidance {
        let mut avoidance = Avoidance::default();
        avoidance.adopt(&pool(hosts), FIRST);
        avoidance
    }

    #[test]
    fn an_endpoint_is_avoided_for_longer_with_every_failure_up_to_a_limit() {
        let mut avoidance = avoidance(&[1, 2]);
        let mut at = START;
        for expected in [250, 500, 1000, 2000, 2000] {
            avoidance.failed(key(2), at);
            let length = Duration::from_millis(expected);
            assert_eq!(avoidance.avoided(), [Period::default(), Period::new(at, length)]);
            at += length;
        }
    }

    #[test]
    fn an_endpoint_is_avoided_until_its_time_is_over_also_without_a_recovery() {
        let mut avoidance = avoidance(&[1, 2]);
        avoidance.failed(key(1), START);
        let avoided = |at| avoidance.avoided_endpoints(at).collect::<Vec<_>>();
        assert_eq!(avoided(START + FIRST / 2), [key(1)]);
        assert!(avoided(START + FIRST).is_empty());
        assert!(avoidance.is_failing(key(1)), "the next failure is not a first one");
    }

    #[test]
    fn many_requests_that_fail_together_are_one_failure() {
        let mut avoidance = avoidance(&[1]);
        for late in 0..100 {
            avoidance.failed(key(1), START + Duration::from_millis(late));
        }
        assert_eq!(avoidance.avoided(), [Period::new(START, FIRST)]);
    }

    #[test]
    fn a_recovery_ends_it_and_the_next_failure_is_a_first_one() {
        let mut avoidance = avoidance(&[1]);
        avoidance.failed(key(1), START);
        avoidance.failed(key(1), START + FIRST);
        avoidance.recovered(key(1), START);
        assert!(avoidance.is_failing(key(1)), "that was before the last failure");
        avoidance.recovered(key(1), START + FIRST);
        assert!(!avoidance.is_failing(key(1)));
        assert_eq!(avoidance.avoided(), []);
        avoidance.failed(key(1), START + FIRST);
        assert_eq!(avoidance.avoided(), [Period::new(START + FIRST, FIRST)]);
    }

    #[test]
    fn failures_and_recoveries_count_by_their_times_in_whatever_order_they_arrive() {
        let (early, late) = (START, START + FIRST / 2);
        for (failed, recovered, is_avoided) in [(early, late, false), (late, early, true)] {
            let mut forwards = avoidance(&[1]);
            forwards.failed(key(1), failed);
            forwards.recovered(key(1), recovered);
            let mut backwards = avoidance(&[1]);
            backwards.recovered(key(1), recovered);
            backwards.failed(key(1), failed);
            let expected = if is_avoided { &[Period::new(failed, FIRST)][..] } else { &[] };
            assert_eq!([forwards.avoided(), backwards.avoided()], [expected; 2]);
        }
    }

    #[test]
    fn a_failure_long_after_the_last_one_is_a_first_one() {
        let mut avoidance = avoidance(&[1]);
        avoidance.failed(key(1), START);
        avoidance.failed(key(1), START + FIRST);
        let later = START + FIRST + FORGOTTEN_AFTER;
        avoidance.failed(key(1), later);
        assert_eq!(avoidance.avoided(), [Period::new(later, FIRST)]);
    }

    #[test]
    fn a_recovery_after_the_clock_was_set_back_ends_it_and_a_failure_begins_a_new_period() {
        let back = START - Duration::from_secs(100);
        let mut avoidance = avoidance(&[1, 2]);
        avoidance.failed(key(1), START);
        avoidance.failed(key(2), START);
        assert!(!avoidance.avoided()[1].contains(back));
        avoidance.recovered(key(1), back);
        assert!(!avoidance.is_failing(key(1)));
        avoidance.failed(key(2), back);
        assert!(avoidance.avoided()[1].contains(back));
        assert!(!avoidance.avoided()[1].contains(back + 2 * FIRST));
    }

    #[test]
    fn switched_off_nothing_is_avoided() {
        let mut avoidance = avoidance(&[1]);
        avoidance.failed(key(1), START);
        avoidance.adopt(&pool(&[1]), Duration::ZERO);
        assert!(!avoidance.is_failing(key(1)));
        avoidance.failed(key(1), START);
        assert!(!avoidance.is_failing(key(1)));
    }

    #[test]
    fn unknown_endpoints_and_those_that_leave_are_not_kept() {
        let mut avoidance = avoidance(&[1, 2]);
        avoidance.failed(key(3), START);
        assert_eq!(avoidance.avoided(), []);
        avoidance.failed(key(2), START);
        avoidance.adopt(&pool(&[2, 1]), FIRST);
        assert_eq!(avoidance.avoided(), [Period::new(START, FIRST), Period::default()]);
        avoidance.adopt(&pool(&[1]), FIRST);
        avoidance.adopt(&pool(&[1, 2]), FIRST);
        assert_eq!(avoidance.avoided(), []);
    }
}
