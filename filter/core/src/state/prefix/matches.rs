//! The part of a prompt that each endpoint was sent before.

use super::usage::TokenScale;

/// Match of one request's prompt with what each endpoint was sent before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrefixMatch {
    /// Blocks of the prompt that each endpoint of the pool was sent before, by endpoint index. Empty when the
    /// request has no prompt.
    pub matched: Vec<u32>,
    /// Blocks in the prompt, all its token lists together.
    pub total: u32,
    /// Tokens per block.
    pub block_size: u32,
    /// Tokens of the request's model.
    pub scale: TokenScale,
}

impl PrefixMatch {
    /// Share of the prompt that the endpoint was sent before, 0..=1; 0 for a request without a prompt.
    pub fn ratio(&self, endpoint: usize) -> f64 {
        if self.total == 0 { 0.0 } else { f64::from(self.blocks(endpoint)) / f64::from(self.total) }
    }

    /// Tokens of a prompt that was estimated to have this many that the endpoint was not sent before: (total
    /// − matched blocks) · block size, and the tokens beyond the last block; all in tokens of the model.
    pub fn missing_tokens(&self, prompt: u64, endpoint: usize) -> u64 {
        let block = u64::from(self.block_size);
        let missing = u64::from(self.total.saturating_sub(self.blocks(endpoint)));
        let beyond = prompt.saturating_sub(u64::from(self.total).saturating_mul(block));
        self.scale.tokens(missing.saturating_mul(block).saturating_add(beyond))
    }

    /// The [missing](Self::missing_tokens) tokens of a prompt, of whose tokens only `carried` are not
    /// claimed.
    pub fn missing_carried_tokens(&self, prompt: u64, carried: u64, endpoint: usize) -> u64 {
        let missing = self.missing_tokens(prompt, endpoint);
        // The last block of a prompt counts in full, so there may be more than the prompt has.
        if carried < prompt { missing.min(self.scale.tokens(carried)) } else { missing }
    }

    /// Matched blocks of the endpoint.
    pub fn blocks(&self, endpoint: usize) -> u32 {
        self.matched.get(endpoint).copied().unwrap_or(0)
    }
}
