//! How far a stream has been read.

use core::time::Duration;
use std::collections::BTreeSet;

use parking_lot::Mutex;

/// Time before the last entry that was read, at which a new connection begins: a store that failed over may
/// since have given out earlier numbers.
const OVERLAP: Duration = Duration::from_secs(2);

/// Maximum number of remembered entries, which a new connection reads again.
const MAX_RECENT: usize = 1 << 16;

/// The number of an entry: milliseconds of the store's clock, and a count within them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EntryId {
    pub(super) ms: u64,
    count: u64,
}

impl EntryId {
    /// Parses the number of an entry; `None` for other text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (ms, count) = text.split_once('-')?;
        Some(Self { ms: ms.parse().ok()?, count: count.parse().ok()? })
    }
}

/// How far a stream has been read, over several connections.
#[derive(Debug, Default)]
pub(super) struct ReadPosition {
    last: Option<EntryId>,
    /// The entries that a new connection reads again.
    recent: BTreeSet<EntryId>,
}

impl ReadPosition {
    /// Where a connection begins to read, in milliseconds of the store's clock, which is `now` and never
    /// before `oldest`.
    pub(super) fn begin(&self, now: u64, oldest: u64) -> u64 {
        // A store that has failed over, or is empty, may have a clock that is behind.
        self.last.map_or(oldest, |last| last.ms.min(now).saturating_sub(overlap()).max(oldest))
    }

    /// Notes that an entry was read. Returns whether it was the first time.
    pub(super) fn insert(&mut self, entry: EntryId) -> bool {
        self.last = Some(entry);
        let is_new = self.recent.insert(entry);
        while let Some(oldest) = self.recent.first()
            && (oldest.ms < entry.ms.saturating_sub(overlap()) || self.recent.len() > MAX_RECENT)
        {
            self.recent.pop_first();
        }
        is_new
    }
}

fn overlap() -> u64 {
    u64::try_from(OVERLAP.as_millis()).unwrap_or(u64::MAX)
}

/// How far an agent has read the stream of one pool.
#[derive(Debug)]
pub(in crate::sharing) struct Progress {
    state: Mutex<ProgressState>,
    /// The time for which the store may hold a read back.
    read_wait: Duration,
}

#[derive(Clone, Copy, Debug)]
struct ProgressState {
    is_connected: bool,
    /// When nothing was left to read, on the agent's clock.
    read_all: Duration,
}

impl Progress {
    /// Nothing has been read at `now`.
    pub(in crate::sharing) fn new(now: Duration, read_wait: Duration) -> Self {
        Self { state: Mutex::new(ProgressState { is_connected: false, read_all: now }), read_wait }
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        self.state.lock().is_connected = is_connected;
    }

    /// Notes that nothing is left to read.
    pub(super) fn has_read_all(&self, now: Duration) {
        self.state.lock().read_all = now;
    }

    /// Whether changes are exchanged with the store.
    pub(in crate::sharing) fn is_connected(&self) -> bool {
        self.state.lock().is_connected
    }

    /// The time for which entries may have waited to be read. A read that the store holds back shows that
    /// there are none.
    pub(in crate::sharing) fn behind(&self, now: Duration) -> Duration {
        let ProgressState { is_connected, read_all } = *self.state.lock();
        let allowed = if is_connected { self.read_wait } else { Duration::ZERO };
        now.saturating_sub(read_all).saturating_sub(allowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(text: &str) -> EntryId {
        EntryId::parse(text).unwrap()
    }

    #[test]
    fn a_connection_begins_a_little_before_the_last_entry_and_takes_none_twice() {
        let mut position = ReadPosition::default();
        assert_eq!(position.begin(9_000, 700), 700);
        for text in ["5000-0", "5000-1", "6000-0", "7500-0"] {
            assert!(position.insert(entry(text)), "{text}");
        }
        assert_eq!(position.begin(9_000, 700), 5_500);
        assert_eq!(position.begin(9_000, 6_000), 6_000);
        assert!(!position.insert(entry("6000-0")) && position.insert(entry("6000-1")));
        assert_eq!(position.recent.len(), 3, "those of the last two seconds");
    }

    #[test]
    fn a_store_whose_clock_is_behind_is_read_from_its_present_on() {
        let mut position = ReadPosition::default();
        position.insert(entry("90000-0"));
        assert_eq!(position.begin(50_000, 0), 48_000);
        assert!(position.insert(entry("49000-0")));
        assert_eq!(position.begin(50_000, 0), 47_000);
    }

    #[test]
    fn other_text_is_not_a_number_of_an_entry() {
        for text in ["", "5", "5-", "-5", "a-1", "5-1-1"] {
            assert_eq!(EntryId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_read_that_waits_is_not_behind_and_one_that_does_not_end_is() {
        let seconds = Duration::from_secs;
        let progress = Progress::new(seconds(10), seconds(1));
        assert_eq!((progress.is_connected(), progress.behind(seconds(13))), (false, seconds(3)));
        progress.set_connected(true);
        progress.has_read_all(seconds(13));
        assert_eq!((progress.is_connected(), progress.behind(seconds(14))), (true, Duration::ZERO));
        assert_eq!(progress.behind(seconds(18)), seconds(4), "the store does not answer");
        progress.set_connected(false);
        assert_eq!(progress.behind(seconds(18)), seconds(5));
    }
}
