//! The session of a request, by its name and the prompts that were sent before.

use super::{Pipeline, Prepared};
use crate::input::cycle::Cycle;
use crate::request::Request;
use crate::request::session::{MIN_UNNAMED_TOKENS, SESSIONS, SessionName, SessionSource, SessionTurn};
use crate::state::Sessions;

/// Blocks of a prompt that are searched for the end of the session's last prompt, back from the last block
/// that an endpoint was sent. It is that block, unless another request has branched off behind it.
const BRANCH_BLOCKS: usize = 8;

/// The same back from the last block that is cached by KV-cache events: the response may be between, of up
/// to 8192 tokens in blocks of 64.
const RESPONSE_BLOCKS: usize = 128;

impl Pipeline {
    /// Whether the sessions of requests are known. They change no decision, unless [sessions are
    /// limited](Self::limits_sessions).
    pub(super) fn knows_sessions(&self) -> bool {
        self.providers.epp_rules.is_own()
    }

    /// The place of a request in its session. `None`: it has no name and a short prompt, several prompts, or
    /// no full block of one.
    #[inline]
    pub(super) fn session(&self, cycle: &Cycle<'_>, prepared: &Prepared<'_>) -> Option<SessionTurn> {
        if !self.knows_sessions() {
            return None;
        }
        if let Some(stored) = cycle.request.stored {
            let (source, key) = (SessionSource::Stored, stored.hash());
            return Some(SessionTurn { source, key, is_continued: true, end: None });
        }
        let name = prepared.session_name;
        let (blocks, block_size) = prepared.only_list()?;
        if name.is_none() && blocks.len().saturating_mul(block_size) < MIN_UNNAMED_TOKENS {
            return None;
        }
        let searched = if self.reads_caches() { RESPONSE_BLOCKS } else { BRANCH_BLOCKS };
        find(cycle, name, blocks, searched)
    }

    /// The name of the session of a request that this pipeline has prepared.
    pub fn session_name_of(&self, prepared: &Prepared<'_>) -> Option<SessionName> {
        if self.knows_sessions() { prepared.session_name } else { self.session_name(prepared.request) }
    }

    /// The name of a request's session: by the headers that the configuration names, by those of known
    /// clients, or by the body.
    pub(super) fn session_name(&self, request: &Request<'_>) -> Option<SessionName> {
        let headers = request.headers;
        let configured = |id: &str| SessionName::of(SessionSource::Configured, id, None);
        let mut producers = self.session_producers.iter();
        let of_producers = producers.find_map(|slot| configured(slot.plugin.session_id(headers)?));
        let of_agents = || {
            let (header, id) = self.providers.agent_identity(headers)?;
            if SessionName::is_known_header(header) { None } else { configured(id) }
        };
        let named = of_producers.or_else(of_agents).or_else(|| SessionName::in_headers(headers));
        SessionName::first(named, request.session)
    }
}

/// The turn of a prompt with these blocks, of which this number is searched.
#[cold]
#[inline(never)]
fn find(
    cycle: &Cycle<'_>,
    name: Option<SessionName>,
    blocks: &[u64],
    searched: usize,
) -> Option<SessionTurn> {
    let sessions = cycle.input.states.of::<Sessions>(SESSIONS)?;
    let sent = cycle.prefixes.first()?.matched.iter().max().copied().unwrap_or(0);
    let sent = blocks.len().min(usize::try_from(sent).unwrap_or(usize::MAX));
    let hash = name.map_or(0, SessionName::hash);
    let mut ends = blocks.iter().take(sent).rev().take(searched).map(|block| block ^ hash);
    let known = ends.find_map(|end| sessions.of_prompt(end, cycle.now));
    let end = blocks.last()? ^ hash;
    let source = name.map_or(SessionSource::Prompt, |name| name.source);
    Some(SessionTurn { source, key: known.unwrap_or(end), is_continued: known.is_some(), end: Some(end) })
}
