//! The times since when endpoints have been in their states.

use core::time::Duration;
use std::collections::HashMap;

use parking_lot::Mutex;

use metrics_agent_status::pool::EndpointState;

/// The state of each endpoint when it was read last, and the time since when it has been in it.
#[derive(Debug, Default)]
pub(crate) struct StateTimes {
    pools: Mutex<HashMap<String, EndpointStates>>,
}

/// States by the endpoint's key.
type EndpointStates = HashMap<u64, (EndpointState, Duration)>;

impl StateTimes {
    /// Replaces the states of all endpoints of a pool. Returns for each the time since the call in which its
    /// present state began.
    pub(super) fn update(
        &self,
        pool: &str,
        states: impl Iterator<Item = (u64, EndpointState)>,
        now: Duration,
    ) -> Vec<Duration> {
        let mut pools = self.pools.lock();
        let known = pools.entry(pool.to_owned()).or_default();
        let older = core::mem::take(known);
        let mut times = Vec::new();
        for (key, state) in states {
            let same = older.get(&key).filter(|(before, _)| *before == state);
            let since = same.map_or(now, |(_, since)| *since);
            times.push(now.saturating_sub(since));
            known.insert(key, (state, since));
        }
        times
    }

    /// Forgets pools for which `is_kept` is false.
    pub(super) fn retain(&self, is_kept: impl Fn(&str) -> bool) {
        self.pools.lock().retain(|pool, _| is_kept(pool));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_lasts_until_it_changes_or_the_endpoint_leaves() {
        let times = StateTimes::default();
        let at = |second, states: &[(u64, EndpointState)]| -> Vec<u64> {
            let found = times.update("p", states.iter().copied(), Duration::from_secs(second));
            found.into_iter().map(|time| time.as_secs()).collect()
        };
        assert_eq!(at(10, &[(1, EndpointState::Ready), (2, EndpointState::Stale)]), [0, 0]);
        assert_eq!(at(12, &[(2, EndpointState::Stale), (1, EndpointState::Ready)]), [2, 2]);
        assert_eq!(at(15, &[(1, EndpointState::Failing), (2, EndpointState::Stale)]), [0, 5]);
        assert_eq!(at(18, &[(1, EndpointState::Failing)]), [3]);
        assert_eq!(
            at(20, &[(1, EndpointState::Failing), (2, EndpointState::Stale)]),
            [5, 0],
            "it has been away"
        );
        times.retain(|pool| pool != "p");
        assert_eq!(at(30, &[(1, EndpointState::Failing)]), [0]);
    }
}
