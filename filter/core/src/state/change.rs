//! Changes of plugins' state.

use core::time::Duration;

/// A change of the state of one plugin. `Chain` holds the hashes of a prompt's blocks: a list of its own, or a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<Chain = Vec<u64>> {
    /// The plugin's [key](crate::plugin::Instance::key).
    pub plugin: u64,
    /// The change.
    pub change: Change<Chain>,
}

/// A change of a plugin's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<Chain = Vec<u64>> {
    /// `endpoint` was sent a prompt with a list of tokens whose blocks have these hashes; it holds `capacity` blocks. Blocks at
    /// the beginning that are [fresh](crate::state::prefix::PrefixIndex::fresh) there are left out.
    SentPrompt {
        /// The endpoint's index in the pool.
        endpoint: usize,
        /// Blocks remembered for the endpoint.
        capacity: usize,
        /// The blocks of the list, each hash standing for the list up to there.
        chain: Chain,
    },
    /// `endpoint` was sent a request that no endpoint had a prefix of.
    SentCold {
        /// The endpoint's index in the pool.
        endpoint: usize,
        /// When, on the shell's clock.
        at: Duration,
    },
    /// A request of this session was sent to the endpoint it is bound to from now on.
    BoundSession {
        /// The hash of the session's name.
        session: u64,
        /// The endpoint's index in the pool.
        endpoint: usize,
        /// When, on the shell's clock.
        at: Duration,
    },
}
