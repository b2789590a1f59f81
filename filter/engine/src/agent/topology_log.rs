//! The log of changes of a pool's endpoints and policy.

use core::time::Duration;

use endpoint_picker::period::Period;

use crate::pool_view::PoolView;

/// A version that was replaced longer ago counts as new.
const RECENT: Duration = Duration::from_secs(60);

/// Maximum number of versions that are kept.
const MAX_VERSIONS: usize = 8;

/// Number of returns to recent versions, less than [`RECENT`] apart, at which a warning says that the agents
/// differ. Fewer returns may be an operator's who reverts a change.
const MANY_RETURNS: u32 = 3;

/// The log of changes of a pool's endpoints and policy. Two agents of one cluster that differ make them
/// change with every poll.
#[derive(Debug, Default)]
pub struct TopologyLog {
    recent: Vec<(u64, Period)>,
    returns: u32,
    /// Time since the last return.
    since_return: Period,
}

/// How a change relates to the changes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TopologyChange {
    /// A new version, or fewer than [`MANY_RETURNS`] returns to recent versions.
    Usual,
    /// Recent versions return repeatedly; this has not been logged yet.
    Alternating,
    /// Recent versions return repeatedly; this has been logged.
    StillAlternating,
}

impl TopologyLog {
    /// Logs that a view has another version of endpoints and policy than the view before.
    pub fn log(&mut self, view: &PoolView, now: Duration) {
        let version = view.versions().map_or(0, |versions| versions.topology);
        let (pool, endpoints) = (view.pool().name(), view.pool().as_slice().len());
        match self.classify(version, now) {
            TopologyChange::Usual => log::info!("pool {pool} has {endpoints} endpoints"),
            TopologyChange::Alternating => log::warn!(
                "the endpoints or the policy of pool {pool} alternate: its agents differ. Give them the same endpoints, manifests and \
                 flags. Further changes are only counted, in topology_changes"
            ),
            TopologyChange::StillAlternating => {}
        }
    }

    fn classify(&mut self, version: u64, now: Duration) -> TopologyChange {
        let Self { recent, returns, since_return } = self;
        recent.retain(|(_, period)| period.contains(now));
        let is_return = recent.iter().any(|(known, _)| *known == version);
        recent.retain(|(known, _)| *known != version);
        if recent.len() >= MAX_VERSIONS {
            recent.remove(0);
        }
        recent.push((version, Period::new(now, RECENT)));
        if !since_return.contains(now) {
            *returns = 0;
        }
        if !is_return {
            return TopologyChange::Usual;
        }
        *returns = returns.saturating_add(1);
        *since_return = Period::new(now, RECENT);
        match *returns {
            ..MANY_RETURNS => TopologyChange::Usual,
            MANY_RETURNS => TopologyChange::Alternating,
            _ => TopologyChange::StillAlternating,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_000_000);

    fn changes(versions: impl IntoIterator<Item = (u64, u64)>) -> Vec<TopologyChange> {
        let mut log = TopologyLog::default();
        versions
            .into_iter()
            .map(|(version, at)| log.classify(version, START + Duration::from_secs(at)))
            .collect()
    }

    #[test]
    fn versions_that_alternate_are_logged_as_such_once() {
        let found = changes((0..100).map(|poll| (poll % 2, poll)));
        let expected = [
            [TopologyChange::Usual; 4].as_slice(),
            &[TopologyChange::Alternating],
            &[TopologyChange::StillAlternating; 95],
        ];
        assert_eq!(found, expected.concat());
    }

    #[test]
    fn changes_that_do_not_come_back_and_one_that_is_taken_back_are_usual() {
        assert_eq!(changes((0..1000).map(|n| (n, n))), [TopologyChange::Usual; 1000]);
        assert_eq!(changes([(1, 0), (2, 5), (1, 10), (3, 15)]), [TopologyChange::Usual; 4]);
        // Every ten minutes between two versions.
        assert_eq!(changes((0..100).map(|n| (n % 2, 600 * n))), [TopologyChange::Usual; 100]);
    }
}
