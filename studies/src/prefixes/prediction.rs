//! The cached part of a prompt as the picker predicted it, from the explanation of the decision.

use serde_json::{Value, json};

/// An index of the contents of caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    /// Prediction by the servers' KV-cache events.
    Events,
    /// Prediction by the prompts that each server was sent, up to the tokens that its cache can hold.
    SentPrompts,
    /// The same, up to a block of the index for each block of the cache, as in the EPP.
    EppCapacity,
}

/// Parts of the prompt of one request that the indices have for the server that it was sent to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Prediction {
    /// Blocks of the prompt.
    total: u64,
    /// The cached blocks by each index, in the order of [`Index::ALL`].
    cached: [u64; 3],
    /// Whether the index of events has them from events, and not from prompts that were sent.
    is_by_events: bool,
}

impl Index {
    pub(super) const ALL: [Self; 3] = [Self::Events, Self::SentPrompts, Self::EppCapacity];

    /// The scorer of weight 0 that shows the index in explanations.
    fn scorer(self) -> &'static str {
        match self {
            Self::Events => "by-events",
            Self::SentPrompts => "by-sent-prompts",
            Self::EppCapacity => "by-epp-capacity",
        }
    }
}

/// The producer of the index of events, which explanations show with the blocks of the prompt.
const PRODUCER: &str = "(events: ";

impl Prediction {
    /// Reads it from an explanation. `None`: no rules have picked the server, or the prompt has no block.
    pub(super) fn read(explanation: &str) -> Option<Self> {
        let picked = explanation.split("; ").find(|endpoint| endpoint.ends_with(" picked 1"))?;
        // As in "3 of 4 blocks by its KV-cache events".
        let (_, events) = picked.split_once(PRODUCER)?;
        let (events, _) = events.split_once(')')?;
        let total: u64 = events.split(' ').nth(2)?.parse().ok()?;
        let is_by_events = events.ends_with("by its KV-cache events");
        let cached = Index::ALL.map(|index| {
            // As in "by-events 0.750x0".
            let (_, score) = picked.split_once(&format!(" {} ", index.scorer()))?;
            let share: f64 = score.split('x').next()?.parse().ok()?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the total")]
            Some((share * total as f64).round() as u64)
        });
        let [Some(events), Some(sent), Some(epp)] = cached else { return None };
        (total > 0).then_some(Self { total, cached: [events, sent, epp], is_by_events })
    }

    /// Whether the index of events has the blocks from events.
    pub(super) fn is_by_events(&self) -> bool {
        self.is_by_events
    }

    /// Whether an index is wrong by more than a block, of a prompt of which the server had this number of
    /// tokens cached.
    pub(super) fn is_off(&self, index: Index, prompt: u64, cached: u64) -> bool {
        self.predicted(index).abs_diff(cached * self.total / prompt.max(1)) > 1
    }

    fn predicted(&self, index: Index) -> u64 {
        let [events, sent, epp] = self.cached;
        match index {
            Index::Events => events,
            Index::SentPrompts => sent,
            Index::EppCapacity => epp,
        }
    }

    /// Values for the report of a request.
    pub(super) fn report(&self) -> Value {
        let Self { total, cached: [events, sent, epp], is_by_events } = self;
        json!({"blocks": total, "by_events": events, "by_sent_prompts": sent, "by_epp_capacity": epp, "has_events": is_by_events})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPLANATION: &str = "routed; 127.0.0.1:1 (events: 3 of 16 blocks by its KV-cache events) expected-latency-scorer 0.907x1 \
        (102.5 ms: p 0 U 13 n 1.0) by-events 0.188x0 by-sent-prompts 0.250x0 by-epp-capacity 1.000x0 total 0.907 picked 1; \
        127.0.0.1:2 (events: 16 of 16 blocks just sent) expected-latency-scorer 0.500x1 by-events 1.000x0 by-sent-prompts 1.000x0 \
        by-epp-capacity 1.000x0 total 0.500";

    #[test]
    fn the_blocks_of_the_picked_endpoint_are_read() {
        let expected = Prediction { total: 16, cached: [3, 4, 16], is_by_events: true };
        assert_eq!(Prediction::read(EXPLANATION), Some(expected));
        assert_eq!(Prediction::read("abstained: no endpoints"), None);
    }

    #[test]
    fn an_index_is_off_beyond_one_block() {
        let prediction = Prediction::read(EXPLANATION).unwrap();
        let off = |index| [64, 128, 256, 319, 320].map(|cached| prediction.is_off(index, 1024, cached));
        assert_eq!(off(Index::Events), [true, false, false, false, true]);
        assert_eq!(off(Index::SentPrompts), [true, true, false, false, false]);
        assert_eq!(off(Index::EppCapacity), [true; 5]);
    }
}
