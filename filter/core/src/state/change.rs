//! Changes of plugins' state.

use core::time::Duration;

/// Something a plugin instance is to remember. `Chain` holds the hashes of a prompt's blocks: its own, or where they stand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<Chain = Vec<u64>> {
    /// The instance's key.
    pub plugin: u64,
    /// What to remember.
    pub change: Change<Chain>,
}

/// A change of a plugin's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<Chain = Vec<u64>> {
    /// `endpoint` was sent a prompt with a list of tokens whose blocks have these hashes; it holds `capacity` blocks. Blocks at
    /// the beginning that are [fresh](crate::state::prefix::PrefixIndex::fresh) there are left out.
    SentPrompt {
        /// Where to.
        endpoint: usize,
        /// Blocks remembered for the endpoint.
        capacity: usize,
        /// The blocks of the list, each hash standing for the list up to there.
        chain: Chain,
    },
    /// `endpoint` was sent a request that no endpoint had a prefix of.
    SentCold {
        /// Where to.
        endpoint: usize,
    },
    /// A request of this session was sent to the endpoint it is bound to from now on.
    BoundSession {
        /// The hash of the session's name.
        session: u64,
        /// Where to.
        endpoint: usize,
        /// When, on the shell's clock.
        at: Duration,
    },
}
