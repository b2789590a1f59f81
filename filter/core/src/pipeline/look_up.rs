//! What is looked up for a request before it is decided on.

use crate::cycle::{Cycle, NOTHING_SAID, Prefix, Session};
use crate::pipeline::Pipeline;
use crate::prompt::{BlockHashes, block_hashes};
use crate::reading::Reading;
use crate::request::Request;
use crate::state::PluginState;
use crate::state::prefix::PrefixMatch;

/// What was looked up.
pub(crate) struct Lookup<'a> {
    /// The prompt's blocks, for each prefix producer.
    pub(crate) hashes: Vec<BlockHashes>,
    prefixes: Vec<Prefix>,
    sessions: Vec<Session<'a>>,
}

impl Lookup<'_> {
    /// The decision in progress, with what was found.
    pub(crate) fn seen_by<'a>(&'a self, cycle: Cycle<'a>) -> Cycle<'a> {
        Cycle { prefixes: &self.prefixes, sessions: &self.sessions, ..cycle }
    }
}

impl Pipeline {
    /// The prompt's blocks and matches for each prefix producer, and the request's session for each session producer that
    /// finds one.
    pub(crate) fn look_up<'a>(&'a self, cycle: &Cycle<'a>, candidates: &[usize]) -> Lookup<'a> {
        let first = candidates.first().and_then(|&first| cycle.readings.get(first));
        let (hashes, prefixes) = self.look_up_prompt(cycle, first.unwrap_or(&NOTHING_SAID));
        Lookup { hashes, prefixes, sessions: self.sessions(cycle.request) }
    }

    /// The request's session for each session producer that finds one.
    fn sessions<'a>(&'a self, request: &Request<'a>) -> Vec<Session<'a>> {
        let producers = self.plugins.iter().filter_map(|instance| {
            let id = instance.plugin.as_session_producer()?.session_id(request.headers)?;
            Some(Session { producer: &instance.name, id })
        });
        producers.collect()
    }

    /// The prompt's blocks and matches for each prefix producer; `first` is the first candidate's reading.
    fn look_up_prompt(&self, cycle: &Cycle<'_>, first: &Reading) -> (Vec<BlockHashes>, Vec<Prefix>) {
        let Some(prompt) = cycle.request.prompt else { return Default::default() };
        let mut found = (Vec::new(), Vec::new());
        for (index, instance) in self.plugins.iter().enumerate() {
            let Some(producer) = instance.plugin.as_prefix_producer() else { continue };
            let block_size = producer.block_size(first);
            let max_blocks = producer.max_blocks(block_size);
            let request = cycle.request;
            let hashes =
                block_hashes(prompt, request.model, request.cache_salt, block_size as usize, max_blocks);
            let mut matched = vec![0; cycle.pool.endpoints().len()];
            if let PluginState::Prefixes(known) = cycle.of(index).state() {
                for list in hashes.lists() {
                    known.count_matches(list, &mut matched);
                }
            }
            let total = u32::try_from(hashes.all().len()).unwrap_or(u32::MAX);
            let matches = PrefixMatch { matched, total, block_size };
            found.0.push(hashes);
            found.1.push(Prefix { producer: instance.name.clone(), matches });
        }
        found
    }
}
