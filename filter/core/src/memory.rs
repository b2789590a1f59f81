//! What plugins remember from one request to the next.
//!
//! A plugin's memory changes only by a [`Change`] that is recorded when a request is routed. Changes are values, so a shell
//! that decides in several places can pass them on and have every place remember the same.

use crate::plugin::ColdOrder;
use crate::prefix::PrefixIndex;

/// The memory of one plugin instance. Endpoints are given by their index in the pool.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Memory {
    /// The plugin remembers nothing.
    #[default]
    None,
    /// Prompts sent.
    Prefixes(PrefixIndex),
    /// Endpoints in the order of their last cold request.
    ColdOrder(ColdOrder),
}

/// Something a plugin instance is to remember.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The instance's index among the pipeline's plugins.
    pub plugin: usize,
    /// What to remember.
    pub change: Change,
}

/// A change of a plugin's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// `endpoint` was sent a prompt with these block hashes; it holds `capacity` blocks.
    SentPrompt {
        /// Where to.
        endpoint: usize,
        /// Blocks remembered for the endpoint.
        capacity: usize,
        /// The prompt's blocks, in order.
        hashes: Vec<u64>,
    },
    /// `endpoint` was sent a request that no endpoint had a prefix of.
    SentCold {
        /// Where to.
        endpoint: usize,
    },
}

impl Memory {
    /// Remembers a change. One that does not fit this memory changes nothing.
    pub fn apply(&mut self, change: &Change) {
        match (self, change) {
            (Self::Prefixes(index), Change::SentPrompt { endpoint, capacity, hashes }) => {
                index.add(*endpoint, hashes, *capacity);
            }
            (Self::ColdOrder(order), Change::SentCold { endpoint }) => order.touch(*endpoint),
            _ => {}
        }
    }

    /// Follows a change of the pool: `moves[old index]` is the endpoint's new index, or `None` if it left.
    pub fn remap(&mut self, moves: &[Option<usize>]) {
        match self {
            Self::None => {}
            Self::Prefixes(index) => index.remap(moves),
            Self::ColdOrder(order) => order.remap(moves),
        }
    }
}
