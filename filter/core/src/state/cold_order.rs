//! Endpoints in the order of their last cold request.

use std::collections::VecDeque;

/// Endpoints in the order of their last cold request.
#[derive(Debug)]
pub struct ColdOrder {
    /// Oldest first.
    order: VecDeque<usize>,
    size: usize,
}

impl ColdOrder {
    pub(crate) fn new(size: usize) -> Self {
        Self { order: VecDeque::new(), size }
    }

    /// For each of a pool's endpoints: 0 if its last cold request is the oldest, and so on; `None` if none is remembered.
    pub(crate) fn positions(&self, endpoints: usize) -> Vec<Option<usize>> {
        let mut positions = vec![None; endpoints];
        for (position, &endpoint) in self.order.iter().enumerate() {
            if let Some(known) = positions.get_mut(endpoint) {
                *known = Some(position);
            }
        }
        positions
    }

    /// Makes the endpoint the most recent.
    pub(crate) fn touch(&mut self, endpoint: usize) {
        self.order.retain(|&known| known != endpoint);
        self.order.push_back(endpoint);
        if self.order.len() > self.size {
            self.order.pop_front();
        }
    }

    /// Follows a change of the pool.
    pub(crate) fn remap(&mut self, moves: &[Option<usize>]) {
        self.order = self.order.iter().filter_map(|&old| moves.get(old).copied().flatten()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn the_order_is_bounded_and_follows_the_pool() {
        let mut order = ColdOrder::new(2);
        for endpoint in [0, 1, 2, 1] {
            order.touch(endpoint);
        }
        assert_eq!(order.order, [2, 1]);
        order.remap(&[None, Some(0), None]);
        assert_eq!(order.order, [0]);
    }
}
