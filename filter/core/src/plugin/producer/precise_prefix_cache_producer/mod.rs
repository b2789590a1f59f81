//! `precise-prefix-cache-producer`: the part of a prompt that servers have cached, by their KV-cache events.

mod parameters;

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use self::parameters::{Backend, Indexer, KvEvents, TokenProcessor};
use crate::decision::Records;
use crate::input::cycle::Cycle;
use crate::plugin::{
    ApproxPrefixCacheProducer, MatchSource, Plugin, PrefixProducer, Recorder, Roles, Routed,
};
use crate::pool::reading::Reading;
use crate::request::cached_prompt::{CachedPrompt, CachedRun, TierWeights};
use crate::request::prompt::BlockHashes;
use crate::state::PluginState;
use crate::state::prefix::{PrefixIndex, PrefixMatch, UsagePrediction};

/// Maximum of the time for which a prompt that was just sent counts as cached.
const MAX_SPECULATIVE_TTL: Duration = Duration::from_secs(60);

/// Blocks that were sent to an endpoint in this part of the time need not be recorded again.
const FRESH_SHARE: u32 = 4;

/// The longest run of a prompt's blocks that an endpoint has cached, weighted by their tiers, or the blocks
/// that it was sent within `speculativeTTL`, whichever are more. Where the events of an endpoint are
/// incomplete, or the prompt is known neither by its text nor by its token ids, its blocks are those that it
/// was sent before, as `approx-prefix-cache-producer` counts them.
///
/// The metrics agent follows the events and knows the texts and token ids of the blocks, so the EPP's
/// settings of tokens, index and sockets are checked and have no effect.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PrecisePrefixCacheProducer {
    token_processor_config: TokenProcessor,
    indexer_config: Indexer,
    kv_events_config: KvEvents,
    /// Accepted, without effect: prompts that were just sent always count.
    #[serde(rename = "speculativeIndexing")]
    _speculative_indexing: bool,
    /// The time for which a prompt that was just sent counts as cached; 0 counts as 2 s, and more than 60 s
    /// as 60 s.
    #[serde(rename = "speculativeTTL", deserialize_with = "crate::plugin::parameter::duration::deserialize")]
    speculative_ttl: Duration,
    /// Whether a request names the data-parallel rank that has cached its prompt.
    name_rank: bool,
    #[serde(skip)]
    approximate: ApproxPrefixCacheProducer,
}

impl Default for PrecisePrefixCacheProducer {
    fn default() -> Self {
        Self {
            token_processor_config: TokenProcessor::default(),
            indexer_config: Indexer::default(),
            kv_events_config: KvEvents::default(),
            _speculative_indexing: false,
            speculative_ttl: DEFAULT_SPECULATIVE_TTL,
            name_rank: false,
            approximate: ApproxPrefixCacheProducer::without_events(),
        }
    }
}

const DEFAULT_SPECULATIVE_TTL: Duration = Duration::from_secs(2);

impl Plugin for PrecisePrefixCacheProducer {
    fn check(&self) -> Result<(), String> {
        if self.indexer_config.tokenizers_pool_config.0 {
            return Err(
                "indexerConfig.tokenizersPoolConfig is not allowed; declare a token-producer".to_owned()
            );
        }
        self.check_values()
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { prefix_producer: Some(self.clone()), recorder: Some(self), ..Roles::default() }
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = vec![
            "blocks are matched by their texts or token ids, which the agent reads from the servers' KV-cache events (--kv-events), and only with \
             the native module; with the wasm filter, and for a server without events, by the prompts that it was sent"
                .to_owned(),
        ];
        let endpoint = &self.kv_events_config.zmq_endpoint;
        if !endpoint.is_empty() {
            warnings.push(format!(
                "kvEventsConfig.zmqEndpoint {endpoint:?} has no effect: the agent connects to the servers (--kv-events), and binds no endpoint"
            ));
        }
        if self.speculative_ttl > MAX_SPECULATIVE_TTL {
            warnings.push(format!("speculativeTTL {:?} counts as 60s", self.speculative_ttl));
        }
        warnings
    }
}

impl PrecisePrefixCacheProducer {
    /// Checks ranges, without the fields that only the older scorer may have.
    pub(crate) fn check_values(&self) -> Result<(), String> {
        if let Some(size) = self.token_processor_config.size().filter(|&size| size < 1) {
            return Err(format!("tokenProcessorConfig.blockSizeTokens is {size}; allowed is 1 or more"));
        }
        for (index, Backend { name, weight }) in
            self.indexer_config.kv_cache_backend_configs.declared.iter().enumerate()
        {
            let at = format!("indexerConfig.kvCacheBackendConfigs[{index}]");
            if name.is_empty() {
                return Err(format!("{at}.name is empty; allowed is the name of a tier, such as gpu or cpu"));
            }
            if !weight.is_finite() || *weight < 0.0 {
                return Err(format!("{at}.weight is {weight}; allowed is 0 or more"));
            }
        }
        Ok(())
    }

    fn weights(&self) -> &TierWeights {
        &self.indexer_config.kv_cache_backend_configs.weights
    }

    fn ttl(&self) -> Duration {
        match self.speculative_ttl {
            Duration::ZERO => DEFAULT_SPECULATIVE_TTL,
            ttl => ttl.min(MAX_SPECULATIVE_TTL),
        }
    }

    /// The blocks that each endpoint was sent a short time ago.
    fn just_sent(&self, cycle: &Cycle<'_>, hashes: &BlockHashes) -> Vec<u32> {
        let mut sent = vec![0; cycle.pool.as_slice().len()];
        if let Some(index) = cycle.state::<PrefixIndex>() {
            let since = cycle.now.saturating_sub(self.ttl());
            hashes.lists().for_each(|list| index.count_sent_since(list, since, &mut sent));
        }
        sent
    }

    /// Whether the blocks that were counted for an endpoint are those of its run, and not more, which it was
    /// sent a short time ago.
    fn is_by_events(
        &self,
        cached: &CachedPrompt,
        run: &CachedRun,
        matches: &PrefixMatch,
        endpoint: usize,
    ) -> bool {
        cached.part_of(run, self.weights(), matches.total) >= matches.blocks(endpoint)
    }
}

impl Recorder for PrecisePrefixCacheProducer {
    fn new_state(&self) -> Option<Box<dyn PluginState>> {
        Some(Box::new(PrefixIndex::with_recent(self.ttl())))
    }

    fn record(&self, cycle: &Cycle<'_>, routed: &Routed<'_>, records: &mut Records) {
        let since = cycle.now.saturating_sub(self.ttl() / FRESH_SHARE);
        let fresh = |index: &PrefixIndex, endpoint, list: &[u64]| index.fresh_since(endpoint, list, since);
        self.approximate.record_blocks(cycle, routed, fresh, records);
        records.usage_predictions.extend(self.predict_usage(cycle, routed));
    }
}

impl PrecisePrefixCacheProducer {
    /// The usage that the response is predicted to have, by the events of the server's cache where they
    /// count.
    fn predict_usage(&self, cycle: &Cycle<'_>, routed: &Routed<'_>) -> Option<UsagePrediction> {
        let prediction = self.approximate.predict_usage(cycle, routed)?;
        let matches = routed.matches?;
        let tokens = cycle.request.cached.and_then(|cached| {
            let run = cached.run(prediction.endpoint)?;
            let endpoint = cycle.pool.index_of(prediction.endpoint)?;
            self.is_by_events(cached, run, matches, endpoint).then(|| run.tokens())
        });
        Some(UsagePrediction { cached: tokens, ..prediction })
    }
}

impl PrefixProducer for PrecisePrefixCacheProducer {
    fn block_size(&self, first: &Reading) -> u32 {
        self.approximate.block_size(first)
    }

    fn max_blocks(&self, block_size: u32) -> usize {
        self.approximate.max_blocks(block_size)
    }

    fn max_prompt_bytes(&self) -> usize {
        self.approximate.max_prompt_bytes()
    }

    fn reads_caches(&self) -> bool {
        true
    }

    fn count_matches(
        &self,
        cycle: &Cycle<'_>,
        hashes: &BlockHashes,
        matched: &mut [u32],
        ends: &mut Vec<usize>,
    ) {
        let of_pool = |run: &&CachedRun| cycle.pool.index_of(run.endpoint()).is_some();
        let known = cycle.request.cached.map_or(0, |cached| cached.runs().iter().filter(of_pool).count());
        if known < matched.len() {
            self.approximate.count_matches(cycle, hashes, matched, ends);
        }
        let Some(cached) = cycle.request.cached else { return };
        let (weights, total) = (self.weights(), u32::try_from(hashes.all().len()).unwrap_or(u32::MAX));
        let sent = self.just_sent(cycle, hashes);
        for run in cached.runs() {
            let Some(endpoint) = cycle.pool.index_of(run.endpoint()) else { continue };
            if let Some((matched, &sent)) = matched.get_mut(endpoint).zip(sent.get(endpoint)) {
                *matched = cached.part_of(run, weights, total).max(sent);
            }
        }
    }

    fn match_source(&self, cycle: &Cycle<'_>, matches: &PrefixMatch, endpoint: usize) -> Option<MatchSource> {
        let key = cycle.endpoint(endpoint).key();
        let found = cycle.request.cached.and_then(|cached| Some((cached, cached.run(key)?)));
        Some(match found {
            None => MatchSource::Approximate,
            Some((cached, run)) if self.is_by_events(cached, run, matches, endpoint) => {
                MatchSource::Events(cached.kind())
            }
            Some(_) => MatchSource::JustSent,
        })
    }

    fn rank(&self, cycle: &Cycle<'_>, endpoint: usize) -> Option<u32> {
        let cached = cycle.request.cached.filter(|_| self.name_rank)?;
        cached.rank_of(cached.run(cycle.endpoint(endpoint).key())?)
    }
}

#[cfg(test)]
mod tests;
