//! The second step of a decision: prefix matches and sessions.

use super::{Pipeline, Slot};
use crate::cycle::{Cycle, NO_READING, Prefix, Session};
use crate::plugin::PrefixProducer;
use crate::prompt::{BlockHashes, block_hashes};
use crate::request::Request;
use crate::state::PluginState;
use crate::state::prefix::PrefixMatch;

/// Prefix matches and sessions of one request.
pub(super) struct Lookup<'a> {
    /// The prompt's blocks for each prefix producer, by the producer's key.
    hashes: Vec<(u64, BlockHashes)>,
    prefixes: Vec<Prefix<'a>>,
    sessions: Vec<Session<'a>>,
}

impl Lookup<'_> {
    /// The decision in progress with what was looked up.
    pub(super) fn seen_by<'a>(&'a self, cycle: Cycle<'a>) -> Cycle<'a> {
        Cycle { prefixes: &self.prefixes, sessions: &self.sessions, ..cycle }
    }

    /// The prompt's blocks by the prefix producer of this key.
    pub(super) fn hashes_of(&self, producer: u64) -> Option<&BlockHashes> {
        self.hashes.iter().find(|(key, _)| *key == producer).map(|(_, hashes)| hashes)
    }
}

impl Pipeline {
    /// The prompt's blocks and matches for each prefix producer, and the request's session for each session producer that
    /// finds one.
    pub(super) fn look_up<'a>(&'a self, cycle: &Cycle<'a>, candidates: &[usize]) -> Lookup<'a> {
        let (hashes, prefixes) = self.look_up_prompt(cycle, candidates);
        Lookup { hashes, prefixes, sessions: self.sessions(cycle.request) }
    }

    fn sessions<'a>(&'a self, request: &Request<'a>) -> Vec<Session<'a>> {
        let sessions = self.session_producers.iter().filter_map(|slot| {
            let id = slot.plugin.session_id(request.headers)?;
            Some(Session { producer: &slot.name, id })
        });
        sessions.collect()
    }

    fn look_up_prompt<'a>(
        &'a self,
        cycle: &Cycle<'a>,
        candidates: &[usize],
    ) -> (Vec<(u64, BlockHashes)>, Vec<Prefix<'a>>) {
        let request = cycle.request;
        let Some(prompt) = request.prompt else { return Default::default() };
        let first = candidates.first().map_or(&NO_READING, |&first| cycle.reading(first));
        let look_up = |slot: &'a Slot<dyn PrefixProducer>| {
            let block_size = slot.plugin.block_size(first);
            let max_blocks = slot.plugin.max_blocks(block_size);
            let hashes =
                block_hashes(prompt, request.model, request.cache_salt, block_size as usize, max_blocks);
            let mut matched = vec![0; cycle.pool.endpoints().len()];
            if let PluginState::Prefixes(index) = cycle.of(slot.key).state() {
                for list in hashes.lists() {
                    index.count_matches(list, &mut matched);
                }
            }
            let total = u32::try_from(hashes.all().len()).unwrap_or(u32::MAX);
            let matches = PrefixMatch { matched, total, block_size };
            ((slot.key, hashes), Prefix { producer: &slot.name, matches })
        };
        self.prefix_producers.iter().map(look_up).unzip()
    }
}
