//! `approx-prefix-cache-producer`: block sizes and bounds of the prefix index.

use std::sync::Arc;

use serde::Deserialize;

use crate::Few;
use crate::decision::Records;
use crate::input::cycle::Cycle;
use crate::plugin::parameter::allow;
use crate::plugin::{Plugin, PrefixProducer, Recorder, Roles, Routed};
use crate::pool::reading::Reading;
use crate::request::prompt::BlockHashes;
use crate::state::PluginState;
use crate::state::prefix::{Capacity, PrefixIndex, SentPrompt, TokenScale, UsagePrediction, model_key};

/// Tokens per block at least, unless the configuration has fewer. The EPP's floor.
const MIN_BLOCK_TOKENS: u32 = 64;

/// Tokens per block that a configuration may have at least: vLLM's block size. Smaller blocks make an index
/// of many times the size.
const LOWEST_MIN_BLOCK_TOKENS: u32 = 16;

/// How prompts are cut into blocks and how many blocks are remembered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ApproxPrefixCacheProducer {
    /// Whether block size and capacity are taken from the servers' readings, where these have them.
    auto_tune: bool,
    /// Tokens per block where the servers do not report them. Values below `min_block_size_tokens` count as
    /// that.
    block_size_tokens: u32,
    /// Tokens per block at least, 16..=64.
    min_block_size_tokens: u32,
    /// Whether the cache that a server reports is counted in tokens: its tokens, or reported blocks ·
    /// reported block size, / tokens per block, and only full blocks are remembered. Without it, its blocks
    /// count as blocks of this size, as in the EPP.
    capacity_in_tokens: bool,
    /// Whether the usage in responses corrects the tokens of prompts and the capacities.
    learn_from_usage: bool,
    /// Accepted, without effect: the former size in characters.
    block_size: u32,
    /// Maximum number of tokens of a prompt that are looked up; 0: `max_prefix_blocks_to_match` decides.
    max_prefix_tokens_to_match: u32,
    /// Maximum number of blocks of a prompt that are looked up when the token bound is 0; both 0: no bound.
    max_prefix_blocks_to_match: u32,
    /// Blocks remembered per endpoint where the servers do not report them; 0 counts as 31 250.
    lru_capacity_per_server: u32,
}

const DEFAULT_CAPACITY: u32 = 31_250;

impl Default for ApproxPrefixCacheProducer {
    fn default() -> Self {
        Self {
            auto_tune: true,
            block_size_tokens: 16,
            min_block_size_tokens: MIN_BLOCK_TOKENS,
            capacity_in_tokens: false,
            learn_from_usage: false,
            block_size: 0,
            max_prefix_tokens_to_match: 131_072,
            max_prefix_blocks_to_match: 2048,
            lru_capacity_per_server: DEFAULT_CAPACITY,
        }
    }
}

impl Plugin for ApproxPrefixCacheProducer {
    fn check(&self) -> Result<(), String> {
        let is_known = self.auto_tune || self.block_size_tokens > 0;
        allow(is_known, "blockSizeTokens", self.block_size_tokens, "above 0 when autoTune is off")?;
        let min = self.min_block_size_tokens;
        let is_allowed = (LOWEST_MIN_BLOCK_TOKENS..=MIN_BLOCK_TOKENS).contains(&min);
        allow(is_allowed, "minBlockSizeTokens", min, "16 to 64")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { prefix_producer: Some(self.clone()), recorder: Some(self), ..Roles::default() }
    }
}

impl Recorder for ApproxPrefixCacheProducer {
    fn new_state(&self) -> Option<Box<dyn PluginState>> {
        Some(Box::new(PrefixIndex::default()))
    }

    fn reads_rated(&self) -> bool {
        false
    }

    /// Remembers the prompt when it is routed, before the server responds, as in the EPP.
    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>, records: &mut Records) {
        self.record_blocks(cycle, routed, PrefixIndex::fresh, records);
        records.usage_predictions.extend(self.predict_usage(cycle, routed));
    }
}

impl PrefixProducer for ApproxPrefixCacheProducer {
    fn block_size(&self, first: &Reading) -> u32 {
        let reported = first.block_size.filter(|&tokens| self.auto_tune && tokens > 0);
        reported.unwrap_or(self.block_size_tokens).max(self.min_block_size_tokens)
    }

    fn max_blocks(&self, block_size: u32) -> usize {
        let blocks = match (self.max_prefix_tokens_to_match, self.max_prefix_blocks_to_match) {
            (0, 0) => return usize::MAX,
            (0, blocks) => blocks,
            (tokens, _) => tokens / block_size,
        };
        blocks as usize
    }

    fn max_prompt_bytes(&self) -> usize {
        match (self.max_prefix_tokens_to_match, self.max_prefix_blocks_to_match) {
            (0, 0) => usize::MAX,
            // A server may report blocks of any size.
            (0, _) if self.auto_tune => usize::MAX,
            (0, blocks) => (blocks as usize)
                .saturating_mul(4 * self.block_size_tokens.max(self.min_block_size_tokens) as usize),
            (tokens, _) => (tokens as usize).saturating_mul(4),
        }
    }

    fn token_scale(&self, cycle: &Cycle<'_>) -> TokenScale {
        let index = cycle.state::<PrefixIndex>().filter(|_| self.learn_from_usage);
        index.map_or(TokenScale::ONE, |index| index.token_scale(cycle.request.model))
    }

    fn count_matches(
        &self,
        cycle: &Cycle<'_>,
        hashes: &BlockHashes,
        matched: &mut [u32],
        ends: &mut Vec<usize>,
    ) {
        let Some(index) = cycle.state::<PrefixIndex>() else { return };
        for list in hashes.lists() {
            index.add_matches(list, matched, ends);
        }
    }
}

impl ApproxPrefixCacheProducer {
    /// The usage that the response is predicted to have. `None` where an endpoint gets blocks from another
    /// one that computes the prompt: its cache does not show what it was sent.
    pub(super) fn predict_usage(&self, cycle: &Cycle<'_>, routed: &Routed<'_>) -> Option<UsagePrediction> {
        let matches = routed.matches?;
        let mut endpoints = routed.endpoints();
        let endpoint = endpoints.next().filter(|_| endpoints.next().is_none())?;
        let block = u64::from(matches.block_size);
        Some(UsagePrediction {
            plugin: cycle.plugin,
            endpoint: cycle.endpoint(endpoint).key(),
            model: model_key(cycle.request.model),
            estimated: cycle.request.input_tokens(),
            matched: u64::from(matches.blocks(endpoint)) * block,
            cached: None,
            block,
            // Tokens of images, videos and audio are the client's word.
            is_learning: self.learn_from_usage && !cycle.request.has_media(),
        })
    }

    /// Adds the changes by which the index remembers the prompt. `fresh` is the number of the first blocks of
    /// a prompt that are left out for an endpoint.
    pub(super) fn record_blocks(
        &self,
        cycle: &Cycle<'_>,
        routed: &Routed<'_>,
        fresh: impl Fn(&PrefixIndex, usize, &[u64]) -> usize,
        records: &mut Records,
    ) {
        let Some(((hashes, matches), index)) =
            routed.hashes.zip(routed.matches).zip(cycle.state::<PrefixIndex>())
        else {
            return;
        };
        // Servers cache full blocks only. A block of the index that is not full would take the room of a
        // whole one until it is evicted, because the next turn of its conversation has other blocks from
        // there on.
        let lists: Few<_> =
            if self.capacity_in_tokens { hashes.full_lists().collect() } else { hashes.lists().collect() };
        for endpoint in routed.endpoints() {
            let capacity = self.capacity(cycle.reading(endpoint), matches.block_size);
            for list in &lists {
                let chain = list.get(fresh(index, endpoint, list)..).unwrap_or_default();
                if !chain.is_empty() {
                    let change = cycle.state_change(endpoint, PrefixIndex::words(capacity, chain));
                    records.sent_prompts.extend(SentPrompt::of(&change, index, endpoint));
                    records.changes.push(change);
                }
            }
        }
    }

    /// The rules that match prompts where the events of a server are missing.
    pub(super) fn without_events() -> Self {
        Self { capacity_in_tokens: true, ..Self::default() }
    }

    /// The capacity of an endpoint with this reading, in blocks of this many tokens. One that is counted in
    /// tokens replaces an earlier one, which may be older than the endpoint's first reading.
    pub fn capacity(&self, reading: &Reading, block_size: u32) -> Capacity {
        let tokens = reading.kv_tokens().filter(|_| self.auto_tune && self.capacity_in_tokens);
        let of_tokens = tokens.map(|tokens| {
            let blocks = tokens / u64::from(block_size.max(1));
            u32::try_from(blocks).unwrap_or(u32::MAX).max(1)
        });
        let reported = || reading.num_blocks.filter(|&blocks| self.auto_tune && blocks > 0);
        let configured =
            if self.lru_capacity_per_server == 0 { DEFAULT_CAPACITY } else { self.lru_capacity_per_server };
        Capacity {
            blocks: of_tokens.or_else(reported).unwrap_or(configured) as usize,
            is_current: of_tokens.is_some(),
            is_learnt: self.learn_from_usage,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn reporting(block_size: u32, num_blocks: u32) -> Reading {
        Reading { block_size: Some(block_size), num_blocks: Some(num_blocks), ..Reading::default() }
    }

    fn blocks(producer: &ApproxPrefixCacheProducer, reading: &Reading, block_size: u32) -> usize {
        producer.capacity(reading, block_size).blocks
    }

    #[test]
    fn the_servers_block_size_is_taken_but_not_below_the_floor() {
        let producer = ApproxPrefixCacheProducer::default();
        assert_eq!(producer.block_size(&reporting(128, 0)), 128);
        assert_eq!(producer.block_size(&reporting(16, 0)), 64);
        assert_eq!(producer.block_size(&reporting(0, 0)), 64);
        assert_eq!(producer.block_size(&Reading::default()), 64);
    }

    #[test]
    fn without_auto_tune_the_configuration_decides() {
        let producer = ApproxPrefixCacheProducer {
            auto_tune: false,
            block_size_tokens: 100,
            lru_capacity_per_server: 7,
            ..ApproxPrefixCacheProducer::default()
        };
        assert_eq!(producer.block_size(&reporting(128, 9)), 100);
        assert_eq!(blocks(&producer, &reporting(128, 9), 100), 7);
    }

    #[test]
    fn capacity_is_the_servers_or_the_configured_or_the_default() {
        let producer = ApproxPrefixCacheProducer::default();
        assert_eq!(blocks(&producer, &reporting(16, 2048), 64), 2048);
        assert_eq!(blocks(&producer, &reporting(16, 0), 64), 31_250);
        let unset = ApproxPrefixCacheProducer { lru_capacity_per_server: 0, ..producer };
        assert_eq!(blocks(&unset, &Reading::default(), 64), 31_250);
    }

    #[test]
    fn the_servers_blocks_can_be_counted_in_tokens() {
        let producer =
            ApproxPrefixCacheProducer { capacity_in_tokens: true, ..ApproxPrefixCacheProducer::default() };
        assert_eq!(blocks(&producer, &reporting(16, 2048), 64), 512);
        assert_eq!(blocks(&producer, &reporting(16, 2048), 16), 2048);
        assert_eq!(
            blocks(&producer, &reporting(128, 2048), 64),
            4096,
            "the first candidate has smaller blocks"
        );
        assert_eq!(blocks(&producer, &reporting(16, 3), 64), 1);
        assert_eq!(blocks(&producer, &reporting(u32::MAX, u32::MAX), 16), u32::MAX as usize);
        assert_eq!(blocks(&producer, &reporting(0, 2048), 64), 2048, "their size is not known");
        assert_eq!(blocks(&producer, &reporting(16, 0), 64), 31_250);
        let hybrid = Reading { cache_tokens: Some(1_009_661), ..reporting(4, 8_121) };
        assert_eq!(blocks(&producer, &hybrid, 64), 15_775, "the server's own count of tokens");
        assert_eq!(blocks(&ApproxPrefixCacheProducer::default(), &hybrid, 64), 8_121, "as the EPP");
    }

    #[test]
    fn blocks_can_be_as_small_as_those_of_the_servers() {
        let of_16 =
            ApproxPrefixCacheProducer { min_block_size_tokens: 16, ..ApproxPrefixCacheProducer::default() };
        assert_eq!([8, 16, 32, 128].map(|size| of_16.block_size(&reporting(size, 0))), [16, 16, 32, 128]);
        assert_eq!(of_16.check(), Ok(()));
        for min_block_size_tokens in [0, 15, 65] {
            let producer = ApproxPrefixCacheProducer { min_block_size_tokens, ..of_16.clone() };
            let expected = format!("minBlockSizeTokens is {min_block_size_tokens}; allowed is 16 to 64");
            assert_eq!(producer.check(), Err(expected));
        }
    }

    #[test]
    fn the_token_bound_goes_before_the_block_bound() {
        let bounds = |tokens, blocks| ApproxPrefixCacheProducer {
            max_prefix_tokens_to_match: tokens,
            max_prefix_blocks_to_match: blocks,
            ..ApproxPrefixCacheProducer::default()
        };
        assert_eq!(bounds(128, 3).max_blocks(64), 2);
        assert_eq!(bounds(0, 3).max_blocks(64), 3);
        assert_eq!(bounds(0, 0).max_blocks(64), usize::MAX);
        assert_eq!(ApproxPrefixCacheProducer::default().max_blocks(64), 2048);
    }

    #[test]
    fn as_many_bytes_are_kept_as_the_largest_blocks_need() {
        let of_two_blocks = |auto_tune| ApproxPrefixCacheProducer {
            auto_tune,
            block_size_tokens: 100,
            max_prefix_tokens_to_match: 0,
            max_prefix_blocks_to_match: 2,
            ..ApproxPrefixCacheProducer::default()
        };
        assert_eq!(of_two_blocks(false).max_prompt_bytes(), 800);
        assert_eq!(of_two_blocks(true).max_prompt_bytes(), usize::MAX, "servers may report any size");
        assert_eq!(ApproxPrefixCacheProducer::default().max_prompt_bytes(), 4 * 131_072);
    }
}
