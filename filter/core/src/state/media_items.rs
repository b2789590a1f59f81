//! The images, videos and audio that endpoints were sent.

use core::time::Duration;

use super::prefix::{Capacity, PrefixIndex};
use super::{PluginState, Words};

/// Items of content that each endpoint was sent, by their hashes: the most recent ones, up to a capacity, as
/// the [prefix index](PrefixIndex) has blocks. The words of a change are the capacity and the items.
#[derive(Debug, Default)]
pub struct MediaItems(PrefixIndex);

impl MediaItems {
    /// The words of the change by which an endpoint that holds `capacity` items was sent these.
    pub(crate) fn words(capacity: usize, items: &[u64]) -> Words {
        PrefixIndex::words(Capacity::first(capacity), items)
    }

    /// Whether the endpoint was sent the item so short a time ago that sending it again need not be recorded.
    pub(crate) fn is_fresh(&self, endpoint: usize, item: u64) -> bool {
        self.0.fresh(endpoint, &[item]) > 0
    }

    /// Counts for each endpoint, by its index, the items that it was sent.
    pub fn count(&self, items: &[u64], matched: &mut [u32]) {
        for item in items {
            self.0.count_matches(core::slice::from_ref(item), matched);
        }
    }
}

impl PluginState for MediaItems {
    fn can_read(&self, words: &[u64]) -> bool {
        self.0.can_read(words)
    }

    /// Adds each item by itself: an item is found whatever items were sent with it.
    fn apply(&mut self, endpoint: usize, _: Duration, words: &[u64]) {
        if let [capacity, items @ ..] = words {
            let capacity = usize::try_from(*capacity).unwrap_or(usize::MAX);
            for item in items {
                self.0.add(endpoint, core::slice::from_ref(item), capacity);
            }
        }
    }

    /// Items are a set: adding them late or twice only makes them more recent.
    fn merge(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        self.apply(endpoint, at, words);
    }

    fn resend(&mut self) {
        self.0.resend();
    }

    fn remap(&mut self, moves: &[Option<usize>]) {
        self.0.remap(moves);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    const AT: Duration = Duration::from_secs(1);

    fn counts(state: &MediaItems, items: &[u64]) -> [u32; 2] {
        let mut matched = [0; 2];
        state.count(items, &mut matched);
        matched
    }

    #[test]
    fn items_are_found_whatever_they_were_sent_with() {
        let mut state = MediaItems::default();
        state.apply(0, AT, &MediaItems::words(9, &[1, 2]));
        state.apply(1, AT, &MediaItems::words(9, &[2]));
        assert_eq!(counts(&state, &[1, 2]), [2, 1]);
        assert_eq!(counts(&state, &[3, 2, 1]), [2, 1]);
        assert_eq!(counts(&state, &[2, 3]), [1, 1]);
        state.remap(&[None, Some(0)]);
        assert_eq!(counts(&state, &[1, 2]), [1, 0]);
    }

    #[test]
    fn the_items_of_an_endpoint_are_bounded_and_the_newest_stay() {
        let mut state = MediaItems::default();
        let all: Vec<u64> = (0..100).collect();
        for item in &all {
            state.apply(0, AT, &MediaItems::words(16, &[*item]));
        }
        let [kept, _] = counts(&state, &all);
        assert!((16..=17).contains(&kept), "{kept}");
        assert_eq!(counts(&state, &all[84..]), [16, 0]);
        assert!(state.is_fresh(0, 99) && !state.is_fresh(0, 90) && !state.is_fresh(1, 99));
    }
}
