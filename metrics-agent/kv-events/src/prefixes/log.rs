//! The newest changes of servers' prefixes.

use std::collections::VecDeque;

use crate::event::StorageTier;

/// Maximum number of changes, of 16 bytes each. A hundred servers that compute 5000 tokens a second each fill
/// it in half a minute.
const MAX_CHANGES: usize = 1 << 19;

/// A change of the tier in which a server has a prefix; `None`: it does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexChange {
    pub(super) key: u64,
    pub(super) server: u32,
    pub(super) from: Option<StorageTier>,
    pub(super) to: Option<StorageTier>,
}

/// The newest changes. A version is the number of changes before it.
#[derive(Debug, Default)]
pub(super) struct PrefixLog {
    /// `None`: something else has changed.
    changes: VecDeque<Option<IndexChange>>,
    /// The version before the first of them.
    first: u64,
}

impl PrefixLog {
    /// The version behind the last change.
    pub(super) fn version(&self) -> u64 {
        self.first + self.changes.len() as u64
    }

    /// Adds a change. Returns the one that it displaces.
    pub(super) fn push(&mut self, change: Option<IndexChange>) -> Option<IndexChange> {
        let mut oldest = None;
        if self.changes.len() >= MAX_CHANGES {
            oldest = self.changes.pop_front().flatten();
            self.first += 1;
        }
        self.changes.push_back(change);
        oldest
    }

    /// The changes behind a version; `None`: some of them are forgotten, or the version is later than the
    /// last change.
    pub(super) fn since(&self, version: u64) -> Option<impl Iterator<Item = Option<IndexChange>>> {
        let start = version.checked_sub(self.first).and_then(|start| usize::try_from(start).ok())?;
        (start <= self.changes.len()).then(|| self.changes.range(start..).copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_changes_are_forgotten() {
        let change = |key| IndexChange { key, server: 1, from: None, to: Some(StorageTier::Gpu) };
        let mut log = PrefixLog::default();
        for key in 0..MAX_CHANGES as u64 {
            assert_eq!(log.push(Some(change(key))), None);
        }
        assert_eq!(log.push(None), Some(change(0)));
        assert_eq!(log.push(None), Some(change(1)));
        assert_eq!(log.version(), MAX_CHANGES as u64 + 2);
        let since = |version| log.since(version).map(Iterator::count);
        assert_eq!([since(0), since(1), since(2)], [None, None, Some(MAX_CHANGES)]);
        assert_eq!([since(log.version() - 1), since(log.version())], [Some(1), Some(0)]);
        assert_eq!(since(log.version() + 1), None);
        assert_eq!(log.since(2).and_then(|mut changes| changes.next()), Some(Some(change(2))));
    }
}
