//! The prompt prefixes that endpoints were sent, and so probably have in their caches.

#[expect(
    clippy::indexing_slicing,
    reason = "an endpoint's log is made before it is used, and a chain is cut where it matched"
)]
mod index;
#[expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "only this file makes slots, and an arena's pages stay"
)]
mod log;

pub use index::{MAX_BLOCKS_PER_ENDPOINT, PrefixIndex};

/// How much of one request's prompt each endpoint was sent before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrefixMatch {
    /// Blocks of the prompt that each endpoint of the pool was sent before, by endpoint index. Empty when the request has no prompt.
    pub matched: Vec<u32>,
    /// Blocks in the prompt, all its token lists together.
    pub total: u32,
    /// Tokens per block.
    pub block_size: u32,
}

impl PrefixMatch {
    /// Share of the prompt that the endpoint was sent before, 0..=1; 0 for a request without a prompt.
    pub fn ratio(&self, endpoint: usize) -> f64 {
        if self.total == 0 { 0.0 } else { f64::from(self.blocks(endpoint)) / f64::from(self.total) }
    }

    /// Matched blocks of the endpoint.
    pub fn blocks(&self, endpoint: usize) -> u32 {
        self.matched.get(endpoint).copied().unwrap_or(0)
    }
}
