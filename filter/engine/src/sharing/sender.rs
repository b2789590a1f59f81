//! This proxy as a sender: its identity, and how far it has read the feeds of agents. A worker that takes
//! over continues with both.

use endpoint_picker_wire::changes;

/// Identity of a proxy among those that share changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// A number that no other proxy has.
    pub sender: u64,
    /// Grows when another worker of the proxy begins to send; from 1 on.
    pub epoch: u64,
}

/// Maximum number of feeds whose positions are kept: an agent that restarts has a new one.
const MAX_FEEDS: usize = 8;

/// Positions up to which a proxy has read the feeds that it got lately. A balancer may send its requests to
/// several agents in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions(Vec<FeedPosition>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FeedPosition {
    feed: u64,
    next: u64,
}

impl Positions {
    /// Positions from numbers, as [`Self::numbers`] gives them.
    pub fn from_numbers(numbers: &[[u64; 2]]) -> Self {
        let positions = numbers.iter().map(|&[feed, next]| FeedPosition { feed, next });
        Self(positions.take(MAX_FEEDS).collect())
    }

    /// The feeds with the next position of each; the feed that was read last is first.
    pub fn numbers(&self) -> impl Iterator<Item = [u64; 2]> {
        self.0.iter().map(|position| [position.feed, position.next])
    }

    /// Takes the position of a response, from which the next sync reads.
    pub(super) fn set(&mut self, changes::Position { feed, next }: changes::Position) {
        self.0.retain(|position| position.feed != feed);
        self.0.insert(0, FeedPosition { feed, next });
        self.0.truncate(MAX_FEEDS);
    }

    pub(super) fn to_wire(&self) -> Vec<changes::Position> {
        self.0.iter().map(|&FeedPosition { feed, next }| changes::Position { feed, next }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_feeds_read_last_are_kept() {
        let mut positions = Positions::default();
        for feed in 0..20 {
            positions.set(changes::Position { feed, next: 1 });
            positions.set(changes::Position { feed: 0, next: feed });
        }
        let numbers: Vec<_> = positions.numbers().collect();
        assert_eq!(numbers[..2], [[0, 19], [19, 1]]);
        assert_eq!(numbers.len(), MAX_FEEDS);
        assert_eq!(Positions::from_numbers(&numbers), positions);
        assert_eq!(positions.to_wire()[0], changes::Position { feed: 0, next: 19 });
    }
}
