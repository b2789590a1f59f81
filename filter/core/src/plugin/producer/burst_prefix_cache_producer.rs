//! `burst-prefix-cache-producer`: requests with the same prompt that come in a burst go to one endpoint.

use core::num::NonZeroU64;
use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use crate::decision::Records;
use crate::input::cycle::Cycle;
use crate::plugin::parameter::allow;
use crate::plugin::{Plugin, PrefixProducer, Recorder, Roles, Routed};
use crate::pool::reading::Reading;
use crate::request::prompt::BlockHashes;
use crate::state::{Bursts, PluginState};

/// The first request of a prompt matches nowhere; those with the same prompt that follow it within the window
/// match its endpoint with all blocks, until `maxPerReplica` have gone there. The next one is the first of a
/// new group.
///
/// The EPP holds all requests of a window and then places groups together. This producer holds none, so
/// groups are placed one by one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct BurstPrefixCacheProducer {
    /// Milliseconds from the first request of a group to its end, 1..=10 000.
    window_duration_ms: u64,
    /// Maximum number of requests of a group, at least 1; -1: no maximum.
    max_per_replica: i64,
    /// Tokens per block, at least 1.
    block_size_tokens: u32,
    /// Maximum number of tokens of a prompt by which it is recognized; 0: 2048 blocks.
    max_prefix_tokens_to_match: u32,
    /// Leading blocks by which requests with other prompts join a group; only 0, off, is supported.
    min_colocate_blocks: u32,
    /// Accepted, without effect: no requests are held.
    max_batch_size: i64,
    balance_by: BalanceBy,
}

/// Measure of the load that the EPP spreads evenly over endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum BalanceBy {
    #[default]
    #[serde(alias = "")]
    Requests,
    Tokens,
}

const DEFAULT_MAX_BLOCKS: usize = 2048;

impl Default for BurstPrefixCacheProducer {
    fn default() -> Self {
        Self {
            window_duration_ms: 100,
            max_per_replica: -1,
            block_size_tokens: 64,
            max_prefix_tokens_to_match: 0,
            min_colocate_blocks: 0,
            max_batch_size: 1000,
            balance_by: BalanceBy::default(),
        }
    }
}

/// -1, which means no limit, or at least 1.
fn is_limit(value: i64) -> bool {
    value == -1 || value >= 1
}

impl BurstPrefixCacheProducer {
    fn window(&self) -> Duration {
        Duration::from_millis(self.window_duration_ms)
    }

    /// The endpoint of the prompt's group, the time since its first request, and how many requests it has;
    /// `None`: the request begins a group.
    fn group(&self, cycle: &Cycle<'_>, prompt: u64) -> Option<(usize, Duration, u64)> {
        let group = cycle.state::<Bursts>()?.group(prompt, cycle.now)?;
        let most = u64::try_from(self.max_per_replica).ok().and_then(NonZeroU64::new);
        let has_room = most.is_none_or(|most| group.requests < most.get());
        has_room.then(|| (group.endpoint, cycle.now.saturating_sub(group.began), group.requests))
    }
}

impl Plugin for BurstPrefixCacheProducer {
    fn check(&self) -> Result<(), String> {
        let window = self.window_duration_ms;
        allow((1..=10_000).contains(&window), "windowDurationMs", window, "1 to 10000")?;
        let unlimited = "-1, which means no limit, or at least 1";
        allow(is_limit(self.max_per_replica), "maxPerReplica", self.max_per_replica, unlimited)?;
        allow(is_limit(self.max_batch_size), "maxBatchSize", self.max_batch_size, unlimited)?;
        let (block, tokens) = (self.block_size_tokens, self.max_prefix_tokens_to_match);
        allow(block > 0, "blockSizeTokens", block, "at least 1")?;
        let is_known = tokens == 0 || tokens >= block;
        allow(is_known, "maxPrefixTokensToMatch", tokens, "0, or at least blockSizeTokens")?;
        let together = "because requests are not held until they can be placed together";
        let blocks = self.min_colocate_blocks;
        allow(blocks == 0, "minColocateBlocks", blocks, &format!("0, {together}"))?;
        let is_by_requests = self.balance_by == BalanceBy::Requests;
        allow(is_by_requests, "balanceBy", "tokens", &format!("requests, {together}"))
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { prefix_producer: Some(self.clone()), recorder: Some(self), ..Roles::default() }
    }

    fn warnings(&self) -> Vec<String> {
        vec![format!(
            "requests are not held for the window of {} ms: the first one with a prompt goes where the other scorers send it, and those that come \
             within the window follow it",
            self.window_duration_ms
        )]
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl Recorder for BurstPrefixCacheProducer {
    fn new_state(&self) -> Option<Box<dyn PluginState>> {
        Some(Box::new(Bursts::new(self.window())))
    }

    /// A request that goes elsewhere than its group leaves the group as it is.
    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>, records: &mut Records) {
        let prompt = routed.hashes.and_then(BlockHashes::digest);
        let Some((prompt, &picked)) = prompt.zip(routed.primary.picked.first()) else { return };
        let (age, requests) = match self.group(cycle, prompt) {
            Some((endpoint, age, requests)) if endpoint == picked => (age, requests),
            Some(_) => return,
            None => (Duration::ZERO, 0),
        };
        let words = Bursts::words(prompt, age, requests.saturating_add(1));
        records.changes.push(cycle.state_change(picked, words));
    }
}

impl PrefixProducer for BurstPrefixCacheProducer {
    fn block_size(&self, _: &Reading) -> u32 {
        self.block_size_tokens
    }

    fn max_blocks(&self, block_size: u32) -> usize {
        match self.max_prefix_tokens_to_match {
            0 => DEFAULT_MAX_BLOCKS,
            tokens => (tokens / block_size.max(1)) as usize,
        }
    }

    fn max_prompt_bytes(&self) -> usize {
        match self.max_prefix_tokens_to_match {
            0 => DEFAULT_MAX_BLOCKS.saturating_mul(4 * self.block_size_tokens as usize),
            tokens => (tokens as usize).saturating_mul(4),
        }
    }

    fn count_matches(
        &self,
        cycle: &Cycle<'_>,
        hashes: &BlockHashes,
        matched: &mut [u32],
        _ends: &mut Vec<usize>,
    ) {
        let group = hashes.digest().and_then(|prompt| self.group(cycle, prompt));
        if let Some(blocks) = group.and_then(|(endpoint, ..)| matched.get_mut(endpoint)) {
            *blocks = u32::try_from(hashes.all().len()).unwrap_or(u32::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::Stage;
    use crate::plugin::fixture::{Fixture, NOW, records};
    use crate::request::prompt::{Pieces, Prompt, block_hashes};
    use crate::state::PluginStates;
    use crate::test;
    use serde_json::{Value, json};

    fn producer(parameters: Value) -> BurstPrefixCacheProducer {
        serde_json::from_value(parameters).unwrap()
    }

    /// The hashes of a prompt of 128 tokens.
    fn hashes(first: u32) -> BlockHashes {
        let mut pieces = Pieces::new(usize::MAX);
        pieces.ids((first..first + 128).collect(), 128);
        block_hashes(&Prompt::one(pieces), "m", None, 64, 2048)
    }

    /// Sends requests with these prompts, each to an endpoint at a time in milliseconds, and returns the
    /// blocks that each found at three endpoints.
    fn matches(parameters: Value, requests: &[(u32, usize, u64)]) -> Vec<[u32; 3]> {
        let producer = producer(parameters);
        assert_eq!(producer.check(), Ok(()));
        let mut fixture = Fixture::of(3);
        let mut bursts = Bursts::new(producer.window());
        let mut all = Vec::new();
        for &(prompt, endpoint, milliseconds) in requests {
            let hashes = hashes(prompt);
            fixture.now = NOW + Duration::from_millis(milliseconds);
            fixture.states =
                PluginStates::only(Box::new(core::mem::replace(&mut bursts, Bursts::new(producer.window()))));
            let mut matched = [0; 3];
            let changes = fixture.with_cycle(|cycle| {
                producer.count_matches(cycle, &hashes, &mut matched, &mut Vec::new());
                let stage = Stage { profile: "default", picked: &[endpoint] };
                let routed = Routed {
                    stages: &[stage],
                    primary: &stage,
                    rated: None,
                    hashes: Some(&hashes),
                    matches: None,
                };
                records(&producer, cycle, &routed).changes
            });
            let states = core::mem::take(&mut fixture.states);
            bursts = states.of::<Bursts>(0).unwrap().clone();
            for change in changes {
                bursts.apply(endpoint, change.at, &change.words);
            }
            all.push(matched);
        }
        all
    }

    #[test]
    fn those_that_follow_the_first_within_the_window_match_its_endpoint() {
        let requests =
            [(1, 0, 0), (1, 0, 10), (2, 1, 20), (1, 0, 100), (2, 2, 110), (2, 1, 115), (1, 0, 101)];
        let (none, x, y) = ([0; 3], [2, 0, 0], [0, 2, 0]);
        assert_eq!(matches(json!({}), &requests), [none, x, none, x, y, y, none]);
    }

    #[test]
    fn a_group_is_full_with_k_requests_and_the_next_one_begins_another() {
        let requests = [(1, 0, 0), (1, 0, 1), (1, 1, 2), (1, 1, 3), (1, 2, 4)];
        let (none, x, y) = ([0; 3], [2, 0, 0], [0, 2, 0]);
        assert_eq!(matches(json!({"maxPerReplica": 2}), &requests), [none, x, none, y, none]);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        for (parameters, expected) in [
            (json!({"windowDurationMs": 0}), "windowDurationMs is 0; allowed is 1 to 10000"),
            (json!({"windowDurationMs": 10_001}), "windowDurationMs is 10001; allowed is 1 to 10000"),
            (
                json!({"maxPerReplica": 0}),
                "maxPerReplica is 0; allowed is -1, which means no limit, or at least 1",
            ),
            (
                json!({"maxBatchSize": -2}),
                "maxBatchSize is -2; allowed is -1, which means no limit, or at least 1",
            ),
            (json!({"blockSizeTokens": 0}), "blockSizeTokens is 0; allowed is at least 1"),
            (
                json!({"maxPrefixTokensToMatch": 63}),
                "maxPrefixTokensToMatch is 63; allowed is 0, or at least blockSizeTokens",
            ),
            (
                json!({"minColocateBlocks": 2}),
                "minColocateBlocks is 2; allowed is 0, because requests are not held",
            ),
            (
                json!({"balanceBy": "tokens"}),
                "balanceBy is tokens; allowed is requests, because requests are not held",
            ),
        ] {
            let refused = producer(parameters).check().unwrap_err();
            assert!(refused.starts_with(expected), "{refused}");
        }
        assert_eq!(producer(json!({"balanceBy": "", "maxBatchSize": -1})).check(), Ok(()));
    }

    #[test]
    fn the_blocks_of_a_prompt_that_count_are_bounded() {
        let default = BurstPrefixCacheProducer::default();
        assert_eq!((default.max_blocks(64), default.max_prompt_bytes()), (2048, 4 * 64 * 2048));
        let short = producer(json!({"blockSizeTokens": 10, "maxPrefixTokensToMatch": 35}));
        assert_eq!(
            (short.block_size(&Reading::default()), short.max_blocks(10), short.max_prompt_bytes()),
            (10, 3, 140)
        );
    }
}
