//! The second step of a decision: prefix matches and sessions.

use super::Pipeline;
use super::prepare::{Prepared, PromptHashes};
use crate::few::Few;
use crate::input::cycle::{Cycle, Prefix, Session};
use crate::request::Request;
use crate::state::PluginState;
use crate::state::prefix::PrefixMatch;

/// Prefix matches and sessions of one request.
pub(super) struct Lookup<'a> {
    prefixes: Few<Prefix<'a>>,
    sessions: Vec<Session<'a>>,
}

impl Lookup<'_> {
    /// The decision in progress with what was looked up.
    pub(super) fn seen_by<'a>(&'a self, cycle: Cycle<'a>) -> Cycle<'a> {
        Cycle { prefixes: &self.prefixes, sessions: &self.sessions, ..cycle }
    }
}

impl Pipeline {
    /// The prompt's matches for each prefix producer, and the request's session for each session producer that finds one.
    pub(super) fn look_up<'a>(&'a self, cycle: &Cycle<'a>, prepared: &Prepared) -> Lookup<'a> {
        let prefixes = self.prefix_producers.iter().zip(&prepared.prompts).map(|(slot, prompt)| {
            let PromptHashes { producer, block_size, ref hashes } = *prompt;
            let mut matched = vec![0; cycle.pool.endpoints().len()];
            if let PluginState::Prefixes(index) = cycle.of(producer).state() {
                for list in hashes.lists() {
                    index.count_matches(list, &mut matched);
                }
            }
            let total = u32::try_from(hashes.all().len()).unwrap_or(u32::MAX);
            Prefix { producer: &slot.name, matches: PrefixMatch { matched, total, block_size } }
        });
        Lookup { prefixes: prefixes.collect(), sessions: self.sessions(cycle.request) }
    }

    fn sessions<'a>(&'a self, request: &Request<'a>) -> Vec<Session<'a>> {
        let sessions = self.session_producers.iter().filter_map(|slot| {
            let id = slot.plugin.session_id(request.headers)?;
            Some(Session { producer: &slot.name, id })
        });
        sessions.collect()
    }
}
