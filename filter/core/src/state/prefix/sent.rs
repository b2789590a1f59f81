//! Prompts that an index counts as cached while their responses are awaited.

use core::time::Duration;

use smallvec::smallvec;

use super::PrefixIndex;
use crate::state::StateChange;

/// The first word of a change that takes back a prompt; no capacity has this value.
pub(super) const RETRACTION: u64 = u64::MAX - 1;

/// The part of a prompt that an endpoint was sent for the first time. An index counts it as cached from the
/// decision on, because requests that come before the response share it. If the endpoint does not serve the
/// request, the part is not in its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentPrompt {
    plugin: u64,
    endpoint: u64,
    range: Retraction,
}

/// The blocks that a change takes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retraction {
    /// The first block of the addition.
    pub(super) first: u64,
    /// The number of its first blocks that stay.
    pub(super) known: u64,
    /// The block behind them.
    pub(super) new: u64,
}

impl SentPrompt {
    /// The part of an addition to this index that is new to its endpoint; `None` if nothing is.
    pub(crate) fn of(change: &StateChange, index: &PrefixIndex, endpoint: usize) -> Option<Self> {
        let chain = change.words.get(1..)?;
        let known = index.known(endpoint, chain);
        let (&first, &new) = (chain.first()?, chain.get(known)?);
        let range = Retraction { first, known: known as u64, new };
        Some(Self { plugin: change.plugin, endpoint: change.endpoint, range })
    }

    /// The key of the endpoint.
    pub fn endpoint(&self) -> u64 {
        self.endpoint
    }

    /// The change by which the index no longer counts it as cached.
    pub fn retraction(&self, at: Duration) -> StateChange {
        let Self { plugin, endpoint, range: Retraction { first, known, new } } = *self;
        StateChange { plugin, endpoint, at, words: smallvec![RETRACTION, first, known, new] }
    }
}

impl Retraction {
    /// Reads the words behind [`RETRACTION`]; `None` for words that no retraction has.
    pub(super) fn read(words: &[u64]) -> Option<Self> {
        match *words {
            [first, known, new] => Some(Self { first, known, new }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Capacity;
    use super::*;
    use crate::state::PluginState;
    use crate::test;

    const AT: Duration = Duration::from_secs(9);

    fn addition(chain: &[u64]) -> StateChange {
        StateChange { plugin: 7, endpoint: 8, at: AT, words: PrefixIndex::words(Capacity::first(100), chain) }
    }

    /// Sends a prompt to the endpoint, and returns its new part.
    fn send(index: &mut PrefixIndex, chain: &[u64]) -> Option<SentPrompt> {
        let sent = SentPrompt::of(&addition(chain), index, 0);
        index.apply(0, AT, &addition(chain).words);
        sent
    }

    fn retract(index: &mut PrefixIndex, sent: Option<SentPrompt>) {
        let change = sent.unwrap().retraction(AT);
        assert!(index.can_read(&change.words));
        index.merge(0, AT, &change.words);
    }

    fn known(index: &PrefixIndex, chain: &[u64]) -> u32 {
        let mut matched = [0];
        index.count_matches(chain, &mut matched);
        matched[0]
    }

    #[test]
    fn the_part_that_an_endpoint_was_not_sent_before_is_taken_back() {
        let mut index = PrefixIndex::default();
        let first = send(&mut index, &[1, 2]);
        let second = send(&mut index, &[1, 2, 3, 4]);
        assert_eq!(SentPrompt::of(&addition(&[1, 2, 3]), &index, 0), None, "nothing is new");
        retract(&mut index, second);
        assert_eq!(known(&index, &[1, 2, 3, 4]), 2);
        retract(&mut index, first);
        assert!(index.is_empty());
    }

    #[test]
    fn prompts_that_share_the_part_before_keep_it() {
        let mut index = PrefixIndex::default();
        send(&mut index, &[1, 2]);
        let failed = send(&mut index, &[1, 2, 3, 4]);
        send(&mut index, &[1, 2, 5]);
        retract(&mut index, failed);
        assert_eq!([&[1, 2, 3, 4][..], &[1, 2, 5]].map(|chain| known(&index, chain)), [2, 3]);
        retract(&mut index, failed);
        assert_eq!(known(&index, &[1, 2, 5]), 3, "a change that comes twice");
    }

    #[test]
    fn a_prompt_that_is_gone_is_not_taken_back() {
        let mut index = PrefixIndex::default();
        let failed = send(&mut index, &[1, 2]);
        index.remap(&[None]);
        retract(&mut index, failed);
        assert!(index.is_empty());
        send(&mut index, &[1, 9]);
        let other = SentPrompt::of(&addition(&[1, 2]), &index, 0);
        retract(&mut index, other);
        assert_eq!(known(&index, &[1, 9]), 2, "another prompt begins like it");
        for words in [&[RETRACTION][..], &[RETRACTION, 1], &[RETRACTION, 1, 0, 1, 1]] {
            assert!(!index.can_read(words));
            index.apply(0, AT, words);
        }
        assert_eq!(known(&index, &[1, 9]), 2);
    }
}
