//! Which endpoints have restarted, and so lost their caches.
//!
//! Every replica reads the same marks from the snapshot
//! ([`Reading::cached_since`](crate::pool::reading::Reading::cached_since)), but not at the same time. The
//! plugin state of an endpoint must be dropped at the same place among all changes, in every replica. So a
//! replica that reads a later mark than before reports it once to all replicas, and each drops the state at
//! the first report of that mark.
//!
//! Marks only grow: an agent that knows of an older start, or of none, changes nothing.

use core::time::Duration;

use hashbrown::HashMap;

/// Marks that differ by less are of one restart: two agents that watch a server return do not see it at the
/// same moment.
const SAME_RESTART: Duration = Duration::from_secs(5);

/// Endpoints that left are remembered until there are this many more than in the pool.
const MOST_DEPARTED: usize = 1024;

/// The newest marks of endpoints, by their keys.
#[derive(Debug, Default)]
pub struct Restarts {
    /// As this replica read them from snapshots; zero where a server that was scraped has none.
    read: HashMap<u64, Duration>,
    /// As replicas reported them.
    reported: HashMap<u64, Duration>,
}

impl Restarts {
    /// Takes in an endpoint's mark from a snapshot. Returns whether it shows a restart since the last one.
    pub fn read(&mut self, endpoint: u64, mark: Option<Duration>, is_scraped: bool) -> bool {
        let mark = match mark {
            Some(mark) => mark,
            None if is_scraped => Duration::ZERO,
            None => return false,
        };
        // The first mark is no restart: other replicas' state is about the caches of that start. Later marks
        // are compared with it.
        let known = *self.read.entry(endpoint).or_insert(mark);
        let has_restarted = is_later(mark, known);
        if has_restarted {
            self.read.insert(endpoint, mark);
        }
        has_restarted
    }

    /// The time since which the endpoint has its caches, by the newest mark; `None` if no mark is known.
    pub fn newest(&self, endpoint: u64) -> Option<Duration> {
        self.read.get(&endpoint).max(self.reported.get(&endpoint)).copied()
    }

    /// Whether no replica has reported this restart yet.
    pub fn is_unreported(&self, endpoint: u64, mark: Duration) -> bool {
        self.reported.get(&endpoint).is_none_or(|&reported| is_later(mark, reported))
    }

    /// Takes in a report. Returns whether it is the first of this restart: then the endpoint's plugin state
    /// is to be dropped.
    pub fn report(&mut self, endpoint: u64, mark: Duration) -> bool {
        let is_first = self.is_unreported(endpoint, mark);
        if is_first {
            self.reported.insert(endpoint, mark);
        }
        is_first
    }

    /// Follows a change of the pool, which now has `endpoints` endpoints. Up to 1 024 that left are
    /// remembered: they may come back.
    pub fn adopt(&mut self, endpoints: usize, is_in_pool: impl Fn(u64) -> bool) {
        for marks in [&mut self.read, &mut self.reported] {
            if marks.len() > endpoints + MOST_DEPARTED {
                marks.retain(|&key, _| is_in_pool(key));
            }
        }
    }
}

fn is_later(mark: Duration, known: Duration) -> bool {
    mark > known.saturating_add(SAME_RESTART)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    const SERVER: u64 = 7;

    #[expect(clippy::unnecessary_wraps, reason = "a mark is given as it is read, and some servers have none")]
    fn at(seconds: u64) -> Option<Duration> {
        Some(Duration::from_secs(seconds))
    }

    #[test]
    fn the_first_mark_is_no_restart_and_a_later_one_is_one_once() {
        let mut restarts = Restarts::default();
        assert!(!restarts.read(SERVER, at(1_000), true));
        assert!(!restarts.read(SERVER, at(1_000), true));
        assert!(restarts.read(SERVER, at(2_000), true));
        assert!(!restarts.read(SERVER, at(2_000), true));
        assert!(!restarts.read(8, at(2_000), true), "another endpoint");
        assert_eq!([SERVER, 8, 9].map(|key| restarts.newest(key)), [at(2_000), at(2_000), None]);
    }

    #[test]
    fn two_agents_in_turn_show_one_restart() {
        let mut restarts = Restarts::default();
        restarts.read(SERVER, at(1_000), true);
        assert!(restarts.read(SERVER, at(2_000), true));
        // The other agent saw the server return a moment later, knows only of its first start, or has not
        // scraped it.
        for mark in [at(2_001), at(2_000), at(1_000), None, at(2_000)] {
            assert!(!restarts.read(SERVER, mark, true), "{mark:?}");
        }
        assert!(!restarts.read(SERVER, None, false));
    }

    #[test]
    fn a_server_without_a_start_time_restarts_when_it_gets_a_mark() {
        let mut restarts = Restarts::default();
        assert!(!restarts.read(SERVER, None, false));
        assert!(!restarts.read(SERVER, None, true));
        assert!(restarts.read(SERVER, at(2_000), true));
        // A server that was not scraped yet may have a start time.
        let mut restarts = Restarts::default();
        assert!(!restarts.read(SERVER, None, false));
        assert!(!restarts.read(SERVER, at(2_000), true));
    }

    #[test]
    fn only_the_first_report_of_a_restart_drops_anything() {
        let mut restarts = Restarts::default();
        let [first, same, second] = [2_000, 2_001, 3_000].map(Duration::from_secs);
        assert!(restarts.is_unreported(SERVER, first));
        assert!(restarts.report(SERVER, first));
        assert!(!restarts.is_unreported(SERVER, same));
        assert!(!restarts.report(SERVER, first) && !restarts.report(SERVER, same));
        assert!(restarts.report(SERVER, second));
        assert!(!restarts.report(SERVER, first), "an older one that comes late");
        assert_eq!(restarts.newest(SERVER), Some(second));
    }

    #[test]
    fn a_replica_that_began_with_a_later_snapshot_applies_a_report_all_the_same() {
        let mut late = Restarts::default();
        assert!(!late.read(SERVER, at(2_000), true));
        assert!(late.report(SERVER, Duration::from_secs(2_000)));
    }

    #[test]
    fn an_endpoint_that_left_is_remembered_but_not_any_number() {
        let mut restarts = Restarts::default();
        restarts.read(SERVER, at(1_000), true);
        restarts.adopt(1, |key| key == 8);
        assert!(restarts.read(SERVER, at(2_000), true), "it came back");
        for key in 0..3_000 {
            restarts.read(key, at(1_000), true);
        }
        restarts.adopt(2, |key| [SERVER, 8].contains(&key));
        assert_eq!(restarts.read.len(), 2);
        assert!(restarts.read(SERVER, at(3_000), true));
    }
}
