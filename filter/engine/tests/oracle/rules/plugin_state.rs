//! State that is kept from request to request.

use core::time::Duration;
use std::collections::{BTreeMap, BTreeSet};

use super::cycle::Cycle;
use super::engine::Situation;
use super::handlers::Run;
use super::latency::Seen;
use super::plan::Plugin;
use super::prompts::full_blocks;
use crate::catalog::BURSTS;
use crate::world::{Prompt, Step};

/// Which endpoint was sent which blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    holders: BTreeMap<u64, BTreeSet<usize>>,
    /// The blocks of each endpoint, those sent longest ago first, and how many it may have.
    sent: BTreeMap<usize, (Vec<u64>, usize)>,
    /// Whether the index may differ: it leaves blocks among the newest sixteenth of a capacity where they
    /// are, and keeps up to a sixteenth too many.
    may_differ: bool,
}

/// The index is exact below this number of blocks.
const EXACT_BELOW: usize = 16;

impl Known {
    pub(super) fn may_differ(&self) -> bool {
        self.may_differ
    }

    /// A capacity that is `current` replaces an earlier one.
    pub(super) fn send(&mut self, endpoint: usize, chain: &[u64], (blocks, current): (usize, bool)) {
        let (sent, capacity) = self.sent.entry(endpoint).or_insert((vec![], blocks));
        if current {
            // The index takes a smaller capacity with the next blocks that are new to it.
            self.may_differ |= sent.len() > blocks;
            *capacity = blocks;
        }
        for &hash in chain {
            sent.retain(|&known| known != hash);
            sent.push(hash);
            self.holders.entry(hash).or_default().insert(endpoint);
            self.may_differ |= *capacity >= EXACT_BELOW && sent.len() > *capacity / 16 * 15;
            while sent.len() > *capacity {
                let forgotten = sent.remove(0);
                self.holders.get_mut(&forgotten).unwrap().remove(&endpoint);
            }
        }
    }

    /// How many blocks of the chain each endpoint was sent, up to the first that none was.
    pub(super) fn count(&self, chain: &[u64]) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        for hash in chain {
            let holders = self.holders.get(hash).cloned().unwrap_or_default();
            if holders.is_empty() {
                break;
            }
            for endpoint in holders {
                *counts.entry(endpoint).or_insert(0) += 1;
            }
        }
        counts
    }
}

/// The endpoint and the last use of each session.
pub(super) type Sessions = BTreeMap<String, (usize, Duration)>;

/// Requests with one prompt that came within a window.
#[derive(Clone, Copy, Debug)]
pub(super) struct Burst {
    pub(super) endpoint: usize,
    pub(super) began: Duration,
    pub(super) requests: u64,
}

/// Everything remembered, by the name of the plugin that remembers it.
#[derive(Clone, Debug, Default)]
pub(super) struct PluginStates {
    pub(super) prefixes: BTreeMap<String, Known>,
    /// Endpoints in the order of their last cold request.
    pub(super) cold: BTreeMap<String, Vec<usize>>,
    pub(super) sessions: BTreeMap<String, Sessions>,
    /// Blocks by the chains of the prompt.
    pub(super) bursts: BTreeMap<String, BTreeMap<Vec<Vec<u64>>, Burst>>,
    /// The images that endpoints were sent.
    pub(super) media: BTreeMap<String, BTreeSet<(usize, String)>>,
    pub(super) latency: BTreeMap<String, Seen>,
    /// Adapters that servers have reported, and the maximum that a server holds.
    pub(super) adapters: BTreeSet<String>,
    pub(super) max_adapters: u32,
    /// Whether readings show adapters.
    pub(super) has_lora: bool,
    /// When the newest distinct reading of each endpoint was taken.
    adapters_read: BTreeMap<usize, Duration>,
    /// The numbers of the requests in flight, oldest first, and how many there have been.
    pub(super) in_flight: Vec<usize>,
    pub(super) sent: usize,
}

impl PluginStates {
    /// A request comes. It is in flight also if it is rejected, until its turn to end.
    pub(super) fn count_request(&mut self) {
        self.in_flight.push(self.sent);
        self.sent += 1;
    }

    /// Time passes, and responses begin and end.
    pub(super) fn advance(&mut self, step: &Step, situation: &Situation<'_>) {
        let Self { latency, adapters, max_adapters, has_lora, adapters_read, in_flight, .. } = self;
        for &number in in_flight.iter().take(step.begin) {
            for seen in latency.values_mut() {
                seen.begin(number, situation.now);
            }
        }
        for number in in_flight.drain(..step.end.min(in_flight.len())) {
            for seen in latency.values_mut() {
                seen.end(number, situation.now);
            }
        }
        for (endpoint, reading) in situation.readings.iter().enumerate() {
            let Some(taken) = reading.updated else { continue };
            let last = adapters_read.get(&endpoint);
            if last.is_some_and(|last| taken.abs_diff(*last) < Duration::from_millis(25)) {
                continue;
            }
            adapters_read.insert(endpoint, taken);
            let Some(lora) = &reading.lora else { continue };
            adapters.extend(lora.running.iter().chain(&lora.waiting).cloned());
            *max_adapters = (*max_adapters).max(lora.max);
            *has_lora = true;
        }
        for seen in latency.values_mut() {
            seen.observe(situation.readings, situation.loads);
        }
    }
}

impl Cycle<'_> {
    /// The states after the request was sent.
    pub(super) fn remember(
        &self,
        destination: usize,
        runs: &[Run],
        rated: &BTreeMap<String, Vec<usize>>,
    ) -> PluginStates {
        let mut states = self.states.clone();
        let prefill = runs.iter().find(|run| run.profile == "prefill").and_then(|run| run.picked.first());
        let targets: Vec<usize> = [Some(&destination), prefill].into_iter().flatten().copied().collect();
        for plugin in &self.plan.plugins {
            let name = plugin.name.clone();
            match plugin.kind.as_str() {
                "approx-prefix-cache-producer" => {
                    let known = states.prefixes.entry(name).or_default();
                    let matches = self.matches(&plugin.name);
                    if matches.chains.is_empty() {
                        continue;
                    }
                    let full = full_blocks(&self.spec.prompt, matches.block);
                    for &target in &targets {
                        let capacity = self.capacity(plugin, target, matches.block);
                        for (chain, &full) in matches.chains.iter().zip(&full) {
                            let is_full_only = plugin.flag("capacityInTokens", false);
                            let blocks = if is_full_only { full.min(chain.len()) } else { chain.len() };
                            if blocks > 0 {
                                known.send(target, &chain[..blocks], capacity);
                            }
                        }
                    }
                }
                BURSTS => {
                    let chains = &self.matches(&name).chains;
                    if chains.iter().all(Vec::is_empty) {
                        continue;
                    }
                    let new = Burst { endpoint: destination, began: self.situation.now, requests: 0 };
                    let group = self.burst(plugin, chains).unwrap_or(new);
                    if group.endpoint == destination {
                        let group = Burst { requests: group.requests + 1, ..group };
                        states.bursts.entry(name).or_default().insert(chains.clone(), group);
                    }
                }
                "mm-embeddings-cache-producer" => {
                    if let Prompt::Image { url, .. } = &self.spec.prompt {
                        states.media.entry(name).or_default().insert((destination, url.clone()));
                    }
                }
                "expected-latency-scorer" | "predicted-latency-producer" => {
                    let seen = states.latency.entry(name).or_default();
                    self.expect(plugin, &targets, states.sent - 1, seen);
                }
                "no-hit-lru-scorer" => {
                    let is_cold = rated.get(&name).is_some_and(|rated| self.is_cold(plugin, rated));
                    let order = states.cold.entry(name).or_default();
                    for &target in targets.iter().filter(|_| is_cold) {
                        order.retain(|&known| known != target);
                        order.push(target);
                        let most = plugin.value("lruSize").as_u64().unwrap_or(1024);
                        if order.len() as u64 > most {
                            order.remove(0);
                        }
                    }
                }
                "session-affinity-scorer" | "session-affinity-filter" => {
                    let Some(session) = self.session(plugin) else { continue };
                    let bound = self.binding(plugin, &session);
                    // A session moves only when its endpoint was looked for and not found.
                    let is_gone =
                        |bound: &usize| rated.get(&name).is_some_and(|rated| !rated.contains(bound));
                    if bound.is_none_or(|bound| bound == destination || is_gone(&bound)) {
                        let sessions = states.sessions.entry(name).or_default();
                        sessions.insert(session, (destination, self.situation.now));
                    }
                }
                _ => {}
            }
        }
        states
    }

    /// Blocks remembered of an endpoint, and whether they replace an earlier number.
    fn capacity(&self, producer: &Plugin, endpoint: usize, block: usize) -> (usize, bool) {
        let reading = self.reading(endpoint);
        let reported = reading.num_blocks.filter(|&blocks| blocks > 0 && producer.flag("autoTune", true));
        let size = reading.block_size.filter(|&size| size > 0);
        let of_blocks = || Some(u64::from(reported?) * u64::from(size?));
        let in_tokens = producer.flag("autoTune", true) && producer.flag("capacityInTokens", false);
        let tokens = reading.cache_tokens.or_else(of_blocks).filter(|&tokens| in_tokens && tokens > 0);
        if let Some(tokens) = tokens {
            return ((usize::try_from(tokens).unwrap() / block).max(1), true);
        }
        let configured = producer.value("lruCapacityPerServer").as_u64().filter(|&blocks| blocks > 0);
        let configured = usize::try_from(configured.unwrap_or(31_250)).unwrap();
        (reported.map_or(configured, |blocks| blocks as usize), false)
    }
}
