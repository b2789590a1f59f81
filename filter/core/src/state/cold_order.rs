//! Endpoints in the order of their last cold request.

use core::time::Duration;
use std::collections::VecDeque;

use super::PluginState;

/// Endpoints in the order of their last cold request. A change of it has no words.
#[derive(Debug)]
pub struct ColdOrder {
    /// Oldest first: endpoints, and when the request was sent, on the shell's clock.
    order: VecDeque<(usize, Duration)>,
    size: usize,
}

impl ColdOrder {
    pub(crate) fn new(size: usize) -> Self {
        Self { order: VecDeque::new(), size }
    }

    /// The rank of each endpoint by the age of its last cold request, 0 for the oldest; `None` if none is
    /// remembered.
    pub fn positions(&self, endpoints: usize) -> Vec<Option<usize>> {
        let mut positions = vec![None; endpoints];
        for (position, &(endpoint, _)) in self.order.iter().enumerate() {
            if let Some(known) = positions.get_mut(endpoint) {
                *known = Some(position);
            }
        }
        positions
    }

    fn bound(&mut self) {
        if self.order.len() > self.size {
            self.order.pop_front();
        }
    }
}

impl PluginState for ColdOrder {
    fn can_read(&self, words: &[u64]) -> bool {
        words.is_empty()
    }

    /// Makes the endpoint the most recent, at this time.
    fn apply(&mut self, endpoint: usize, at: Duration, _: &[u64]) {
        self.order.retain(|&(known, _)| known != endpoint);
        self.order.push_back((endpoint, at));
        self.bound();
    }

    /// Gives the endpoint the place of that time, unless it has a later one.
    fn merge(&mut self, endpoint: usize, at: Duration, _: &[u64]) {
        if self.order.iter().any(|&(known, last)| known == endpoint && last >= at) {
            return;
        }
        self.order.retain(|&(known, _)| known != endpoint);
        let place = self.order.iter().take_while(|&&(known, last)| (last, known) < (at, endpoint)).count();
        self.order.insert(place, (endpoint, at));
        self.bound();
    }

    fn remap(&mut self, moves: &[Option<usize>]) {
        let moved = |&(old, at): &(usize, Duration)| Some((moves.get(old).copied().flatten()?, at));
        self.order = self.order.iter().filter_map(moved).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_order_is_bounded_and_follows_the_pool() {
        let mut order = ColdOrder::new(2);
        for endpoint in [0, 1, 2, 1] {
            order.apply(endpoint, at(9), &[]);
        }
        assert_eq!(order.order, [(2, at(9)), (1, at(9))]);
        order.remap(&[None, Some(0), None]);
        assert_eq!(order.order, [(0, at(9))]);
    }

    #[test]
    fn cold_requests_of_other_proxies_are_ordered_by_their_time_however_they_arrive() {
        let requests = [(0, at(1)), (1, at(2)), (2, at(3)), (0, at(4)), (1, at(4))];
        for arrival in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1]] {
            let mut order = ColdOrder::new(3);
            for (endpoint, at) in arrival.map(|index| requests[index]) {
                order.merge(endpoint, at, &[]);
                order.merge(endpoint, at, &[]);
            }
            assert_eq!(order.order, [(2, at(3)), (0, at(4)), (1, at(4))], "{arrival:?}");
        }
    }

    #[test]
    fn an_own_cold_request_is_the_most_recent_also_after_the_clock_was_set_back() {
        let mut order = ColdOrder::new(3);
        order.merge(0, at(100), &[]);
        order.apply(1, at(5), &[]);
        assert_eq!(order.order, [(0, at(100)), (1, at(5))]);
    }
}
