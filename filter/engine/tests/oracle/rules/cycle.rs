//! A decision in progress, and what can be read from it.

use core::cell::Cell;
use core::time::Duration;
use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine};
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::load::Reservation;
use endpoint_picker::pool::reading::Reading;

use super::engine::Situation;
use super::handlers::Run;
use super::plan::{Plan, Plugin};
use super::plugin_state::{Burst, PluginStates};
use super::prompts::{chains, token_count};
use crate::catalog::{AGENTS, BURSTS};
use crate::world::{Prompt, RequestSpec};

/// How much of a prompt the endpoints were sent before, according to one producer.
#[derive(Default)]
pub(super) struct Matches {
    counts: BTreeMap<usize, usize>,
    pub(super) block: usize,
    pub(super) chains: Vec<Vec<u64>>,
}

impl Matches {
    fn total(&self) -> usize {
        self.chains.iter().map(Vec::len).sum()
    }

    fn blocks(&self, endpoint: usize) -> usize {
        self.counts.get(&endpoint).copied().unwrap_or(0)
    }

    pub(super) fn tokens(&self, endpoint: usize) -> usize {
        self.blocks(endpoint) * self.block
    }

    pub(super) fn block_tokens(&self) -> u64 {
        self.block as u64
    }

    pub(super) fn ratio(&self, endpoint: usize) -> f64 {
        if self.total() == 0 { 0.0 } else { self.blocks(endpoint) as f64 / self.total() as f64 }
    }
}

/// A decision in progress.
pub(super) struct Cycle<'a> {
    pub(super) situation: &'a Situation<'a>,
    pub(super) spec: &'a RequestSpec,
    pub(super) states: &'a PluginStates,
    pub(super) plan: &'a Plan,
    found: BTreeMap<String, Matches>,
    /// The endpoint that the stage before picked.
    pub(super) peer: Cell<Option<usize>>,
}

impl<'a> Cycle<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        states: &'a PluginStates,
        situation: &'a Situation<'a>,
        spec: &'a RequestSpec,
    ) -> Self {
        Self { situation, spec, states, plan, found: BTreeMap::new(), peer: Cell::new(None) }
    }

    /// The endpoint's newest reading; none when the newest snapshot is older than ten seconds.
    pub(super) fn reading(&self, endpoint: usize) -> Reading {
        let is_usable = self.situation.since(self.situation.readings_arrived) <= Duration::from_secs(10);
        if is_usable { self.situation.readings[endpoint].clone() } else { Reading::default() }
    }

    /// Whether the endpoint's reading is fresh enough to be scored.
    pub(super) fn is_known(&self, endpoint: usize) -> bool {
        let Some(limit) = self.plan.neutral_score_after else { return true };
        self.reading(endpoint).updated.is_some_and(|updated| self.situation.since(updated) <= limit)
    }

    pub(super) fn load(&self, endpoint: usize) -> Load {
        self.situation.loads[endpoint]
    }

    pub(super) fn label(&self, endpoint: usize, key: &str) -> Option<&str> {
        let mut labels = self.situation.pool.as_slice()[endpoint].labels();
        labels.find(|(name, _)| *name == key).map(|(_, value)| value)
    }

    /// The first value of a header that is text and not empty.
    pub(super) fn header(&self, name: &str) -> Option<String> {
        let named = self.spec.headers.iter().filter(|(header, _)| *header == name.to_lowercase());
        let mut values = named.filter_map(|(_, value)| String::from_utf8(value.clone()).ok());
        values.find(|value| !value.is_empty())
    }

    /// Whether the client accepts only an endpoint with its prompt in the cache.
    pub(super) fn wants_cached(&self) -> bool {
        let values = self.spec.headers.iter().filter(|(name, _)| name == "prefer");
        values
            .map(|(_, value)| String::from_utf8_lossy(value).to_lowercase())
            .any(|value| value.split(',').any(|preference| preference.trim() == "if-available"))
    }

    pub(super) fn tokens(&self) -> u64 {
        token_count(&self.spec.prompt)
    }

    pub(super) fn has_image(&self) -> bool {
        matches!(self.spec.prompt, Prompt::Image { .. })
    }

    pub(super) fn matches(&self, producer: &str) -> &Matches {
        static NOTHING: Matches = Matches { counts: BTreeMap::new(), block: 0, chains: vec![] };
        self.found.get(producer).unwrap_or(&NOTHING)
    }

    pub(super) fn is_cold(&self, plugin: &Plugin, candidates: &[usize]) -> bool {
        let matches = self.matches(plugin.prefixes());
        candidates.iter().all(|&endpoint| matches.blocks(endpoint) == 0)
    }

    /// Looks the prompt up for every producer; `first` is the candidate whose block size counts for all.
    pub(super) fn look_up(&mut self, first: usize) {
        if matches!(self.spec.prompt, Prompt::Nothing) {
            return;
        }
        for producer in &self.plan.plugins {
            let matches = match producer.kind.as_str() {
                "approx-prefix-cache-producer" => self.sent_blocks(producer, first),
                BURSTS => self.burst_blocks(producer),
                _ => continue,
            };
            self.found.insert(producer.name.clone(), matches);
        }
    }

    fn sent_blocks(&self, producer: &Plugin, first: usize) -> Matches {
        let reported =
            self.reading(first).block_size.filter(|&size| size > 0 && producer.flag("autoTune", true));
        let block = reported.map_or(producer.whole("blockSizeTokens", 16), |size| size as usize);
        let block = block.max(producer.whole("minBlockSizeTokens", 64));
        let tokens = producer.whole("maxPrefixTokensToMatch", 131_072);
        let blocks = producer.whole("maxPrefixBlocksToMatch", 2048);
        let most = if tokens > 0 {
            tokens / block
        } else if blocks > 0 {
            blocks
        } else {
            usize::MAX
        };
        let chains = chains(self.spec, block, most);
        let mut counts = BTreeMap::new();
        if let Some(known) = self.states.prefixes.get(&producer.name) {
            for (endpoint, count) in chains.iter().flat_map(|chain| known.count(chain)) {
                *counts.entry(endpoint).or_insert(0) += count;
            }
        }
        Matches { counts, block, chains }
    }

    /// All blocks at the endpoint that the group of this prompt has, if it is not full.
    fn burst_blocks(&self, producer: &Plugin) -> Matches {
        let (block, tokens) =
            (producer.whole("blockSizeTokens", 64), producer.whole("maxPrefixTokensToMatch", 0));
        let chains = chains(self.spec, block, if tokens > 0 { tokens / block } else { 2048 });
        let matches = Matches { counts: BTreeMap::new(), block, chains };
        let group = self.burst(producer, &matches.chains);
        let counts = group.map(|group| (group.endpoint, matches.total())).into_iter().collect();
        Matches { counts, ..matches }
    }

    /// The group that a request with these chains joins.
    pub(super) fn burst(&self, producer: &Plugin, chains: &[Vec<u64>]) -> Option<Burst> {
        let group = *self.states.bursts.get(&producer.name)?.get(chains)?;
        let window = Duration::from_millis(producer.whole("windowDurationMs", 100) as u64);
        let most = producer.value("maxPerReplica").as_u64().unwrap_or(u64::MAX);
        (self.situation.since(group.began) <= window && group.requests < most).then_some(group)
    }

    /// Tokens of the prompt that the endpoint was not sent before, according to a producer.
    pub(super) fn missing_tokens(&self, producer: &str, endpoint: usize) -> u64 {
        let matches = self.matches(producer);
        let (total, matched) = (matches.total(), matches.blocks(endpoint));
        let indexed = (total * matches.block) as u64;
        ((total - matched) * matches.block) as u64 + self.tokens().saturating_sub(indexed)
    }

    /// Tokens that the request adds to the endpoint's load.
    pub(super) fn added_tokens(&self, endpoint: usize) -> u64 {
        let load = &self.plan.load;
        let input = self.tokens();
        let missing = self.missing_tokens(load.prefixes(), endpoint);
        let max = self.max_request_tokens(endpoint);
        if !load.flag("addEstimatedOutputTokens", false) {
            return missing.min(max);
        }
        let is_v011 = self.plan.is_v011;
        let estimate =
            if is_v011 { 1_000.0 } else { (input as f64 * load.number("outputRatio", 1.5)).round() };
        let most = load.number("maxEstimatedOutputTokens", f64::MAX);
        let allowed = self
            .spec
            .max_output_tokens
            .filter(|tokens| !is_v011 || *tokens > 0)
            .map_or(f64::MAX, |tokens| tokens as f64);
        let estimate = estimate.min(most).min(allowed);
        // All three of them are whole numbers.
        (missing + (0..=20_000).find(|&n: &u64| n as f64 >= estimate).unwrap()).min(max)
    }

    /// A request has no more tokens in flight at an endpoint than its KV cache has.
    pub(super) fn max_request_tokens(&self, endpoint: usize) -> u64 {
        let reading = self.reading(endpoint);
        let [blocks, size] = [reading.num_blocks, reading.block_size].map(Option::unwrap_or_default);
        let of_blocks = u64::from(blocks) * u64::from(size);
        match reading.cache_tokens.unwrap_or(of_blocks) {
            0 => 1 << 20,
            tokens => tokens,
        }
    }

    pub(super) fn reserve(&self, run: &Run) -> Reservation {
        let endpoint = run.picked[0];
        let tokens = self.added_tokens(endpoint);
        let load = |requests, tokens| Load { requests, tokens };
        let (prefill, response) = if run.profile == "prefill" {
            (load(1, tokens), load(0, 0))
        } else if self.plan.load.flag("addEstimatedOutputTokens", false) {
            (load(0, 0), load(1, tokens))
        } else {
            (load(0, tokens), load(1, 0))
        };
        Reservation { endpoint, prefill, response }
    }

    /// The candidate that the request's session belongs to.
    pub(super) fn bound(&self, plugin: &Plugin, candidates: &[usize]) -> Option<usize> {
        let bound = if plugin.text("strategy", "encoded_endpoint_header") == "session_id" {
            self.binding(plugin, &self.session(plugin)?)?
        } else {
            let header =
                plugin.value("encodedEndpointHeaderConfig")["header"].as_str().unwrap_or("x-session-token");
            let name = BASE64_STANDARD.decode(self.header(header)?).ok()?;
            self.situation.pool.as_slice().iter().position(|endpoint| endpoint.name().as_bytes() == name)?
        };
        candidates.contains(&bound).then_some(bound)
    }

    pub(super) fn session(&self, plugin: &Plugin) -> Option<String> {
        let named = |id: Option<String>| id.map(|id| id.trim().to_owned()).filter(|id| !id.is_empty());
        let sources = plugin.value("sessionIdConfig")["sources"].as_array().cloned().unwrap_or_default();
        if sources.is_empty() {
            return named(self.header("x-session-id"));
        }
        sources.iter().find_map(|source| match source["header"].as_str() {
            Some(header) => named(self.header(header)),
            // The value is used as it is.
            None if source["attribute"] == AGENTS => {
                ["x-zone", "session-id"].iter().find_map(|name| self.header(name))
            }
            None => named(self.cookie("sid")),
        })
    }

    fn cookie(&self, name: &str) -> Option<String> {
        let header = self.header("cookie")?;
        let mut pairs = header.split(';').filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
    }

    pub(super) fn binding(&self, plugin: &Plugin, session: &str) -> Option<usize> {
        let seconds =
            plugin.value("sessionIdConfig")["evictionTtlSeconds"].as_f64().filter(|&seconds| seconds > 0.0);
        let lifetime = Duration::from_secs_f64(seconds.unwrap_or(300.0));
        let (endpoint, used) = self.states.sessions.get(&plugin.name)?.get(session)?;
        (self.situation.since(*used) <= lifetime).then_some(*endpoint)
    }
}
