//! The working sets of sessions: how many tokens each needs in the caches.

use core::num::NonZeroU32;
use core::time::Duration;
use std::collections::BTreeMap;

use super::PluginState;
use super::generations::Generations;

/// Maximum number of sessions in one of the two generations: at most 6 MiB for both, and for those in work.
const SESSIONS: usize = 32_768;

/// The time after which a session is forgotten, as that of a [prompt](super::Sessions).
const LIFETIME: Duration = Duration::from_secs(3600);

/// The time from a turn in which its session is in work: its response, and the tool that it calls. Of the
/// pauses of recorded agents (the traces of Claude Code in `AgentX`) nine of ten are shorter than 131 s, and
/// 95.5 % than 300 s. With half of it the p95 of turns is 1.3 times as long where sessions need 1.5 times
/// the caches (`make simulate`): sessions come back that lost their place while they worked.
const LEASE: Duration = Duration::from_secs(240);

/// Tokens from which a prompt counts: servers read shorter ones in some 0.2 s, for which no session has to
/// wait.
const MIN_TOKENS: u64 = 4096;

/// The part of its size that a session keeps at each turn with a shorter prompt: it is halved by eleven.
const KEPT: u64 = 16;

/// The sessions in work, by the hash of the client's name or, without one, of the first prompt.
///
/// A session is in work for [a time](LEASE) after each turn. The words of a change are [those of a
/// turn](WorkingSetTurn::words).
#[derive(Debug)]
pub struct WorkingSets {
    sets: Generations<WorkingSet>,
    /// Sessions in work by their last turns. Those whose time is over are taken out by the next change.
    in_work: BTreeMap<(Duration, u64), WorkingSet>,
    /// Tokens of the sessions in work, by endpoint.
    tokens: Vec<u64>,
    continued: Continued,
}

#[derive(Clone, Copy, Debug)]
struct WorkingSet {
    /// The chain of prompts with the longest prompt: the agent's, not a chain of its sub-agents.
    chain: u64,
    tokens: u64,
    /// The part of them that counts.
    counted: u64,
    endpoint: usize,
    sent: Duration,
    /// It has no name, and had one turn.
    may_be_single: bool,
}

/// One turn of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkingSetTurn {
    /// The session: a hash of the client's name for it, or of its first prompt.
    pub session: u64,
    /// The chain of prompts that extend each other. Sub-agents have others.
    pub chain: u64,
    /// Tokens of its prompt, below 2^32.
    pub tokens: u32,
    /// Tokens of it that the endpoint was sent before.
    pub cached: u32,
    /// Whether the client names the session. Without a name, nothing may follow.
    pub is_named: bool,
}

/// A session that comes into the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionDemand {
    /// The tokens that count.
    pub tokens: NonZeroU32,
    /// Whether the session had turns before.
    pub is_known: bool,
}

impl WorkingSetTurn {
    /// Whether a server has to read more than half of the prompt.
    pub(crate) fn misses_cache(&self) -> bool {
        self.cached < self.tokens / 2
    }

    fn counts(&self) -> bool {
        u64::from(self.tokens) >= MIN_TOKENS
    }

    /// The words of a change: an endpoint was sent this turn. `None`: its prompt is too short to count.
    pub(crate) fn words(&self) -> Option<[u64; 4]> {
        let sizes = u64::from(self.tokens) << 32 | u64::from(self.cached);
        self.counts().then_some([self.session, self.chain, sizes, self.is_named.into()])
    }

    fn read(words: &[u64]) -> Option<Self> {
        let &[session, chain, sizes, is_named @ (0 | 1)] = words else { return None };
        let [tokens, cached] = [sizes >> 32, sizes & u64::from(u32::MAX)].map(u32::try_from);
        let is_named = is_named == 1;
        Some(Self { session, chain, tokens: tokens.ok()?, cached: cached.ok()?, is_named })
    }
}

impl Default for WorkingSets {
    fn default() -> Self {
        let sets = Generations::new(SESSIONS, LIFETIME);
        Self { sets, in_work: BTreeMap::new(), tokens: Vec::new(), continued: Continued::default() }
    }
}

impl WorkingSets {
    /// Tokens of the sessions in work at each endpoint; endpoints missing at the end have none.
    pub(crate) fn in_work(&self, now: Duration) -> Vec<u64> {
        let mut tokens = self.tokens.clone();
        // Few: those whose time is over since the last change.
        for (_, set) in self.in_work.iter().take_while(|((sent, _), _)| is_over(*sent, now)) {
            if let Some(sum) = tokens.get_mut(set.endpoint) {
                *sum = sum.saturating_sub(set.counted);
            }
        }
        tokens
    }

    /// The tokens that a session brings into the caches with this turn. `None`: the session is in work and
    /// keeps its place, at least half of its prompt is cached, or it does not count.
    pub(crate) fn demand(&self, turn: &WorkingSetTurn, now: Duration) -> Option<SessionDemand> {
        let known = self.known(turn.session, now);
        let is_in_work = known.is_some_and(|set| !is_over(set.sent, now));
        if is_in_work || !turn.counts() || !turn.misses_cache() {
            return None;
        }
        let tokens = self.counted(turn.tokens.into(), turn.is_named || known.is_some());
        let tokens = NonZeroU32::new(u32::try_from(tokens).ok()?)?;
        Some(SessionDemand { tokens, is_known: known.is_some() })
    }

    /// The part of a session's tokens that counts. `is_session`: more turns follow, as far as is known.
    fn counted(&self, tokens: u64, is_session: bool) -> u64 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of the tokens")]
        let part = || (tokens as f64 * self.continued.share()) as u64;
        if is_session { tokens } else { part() }
    }

    fn known(&self, session: u64, now: Duration) -> Option<WorkingSet> {
        self.sets.find(session).filter(|set| now.abs_diff(set.sent) <= LIFETIME)
    }

    fn take(&mut self, endpoint: usize, at: Duration, turn: &WorkingSetTurn) {
        let older = self.known(turn.session, at);
        if older.is_some_and(|older| older.sent > at) {
            return;
        }
        let (mut chain, mut tokens, mut endpoint) = (turn.chain, u64::from(turn.tokens), endpoint);
        if let Some(older) = older {
            if self.leave(older.sent, turn.session).is_some_and(|left| left.may_be_single) {
                self.continued.add(true);
            }
            // The agent itself is idle meanwhile; where it has begun a shorter prompt, the size follows in
            // some turns.
            let kept = older.tokens - older.tokens / KEPT;
            if turn.chain != older.chain && tokens < kept {
                (chain, tokens, endpoint) = (older.chain, kept, older.endpoint);
            }
        }
        let is_session = turn.is_named || older.is_some();
        let counted = self.counted(tokens, is_session);
        let set = WorkingSet { chain, tokens, counted, endpoint, sent: at, may_be_single: !is_session };
        self.sets.insert(turn.session, set, at);
        self.count(&set);
        self.in_work.insert((at, turn.session), set);
        while let Some(&(sent, session)) = self.in_work.keys().next()
            && (is_over(sent, at) || self.in_work.len() > 2 * SESSIONS)
        {
            if self.leave(sent, session).is_some_and(|left| left.may_be_single) {
                self.continued.add(false);
            }
        }
    }

    fn leave(&mut self, sent: Duration, session: u64) -> Option<WorkingSet> {
        let set = self.in_work.remove(&(sent, session))?;
        if let Some(sum) = self.tokens.get_mut(set.endpoint) {
            *sum = sum.saturating_sub(set.counted);
        }
        Some(set)
    }

    fn count(&mut self, set: &WorkingSet) {
        if self.tokens.len() <= set.endpoint {
            self.tokens.resize(set.endpoint + 1, 0);
        }
        if let Some(sum) = self.tokens.get_mut(set.endpoint) {
            *sum += set.counted;
        }
    }
}

/// Whether the time in work of a session with its last turn at `sent` is over.
fn is_over(sent: Duration, now: Duration) -> bool {
    sent.saturating_add(LEASE) < now
}

impl PluginState for WorkingSets {
    fn can_read(&self, words: &[u64]) -> bool {
        WorkingSetTurn::read(words).is_some()
    }

    fn apply(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        if let Some(turn) = WorkingSetTurn::read(words) {
            self.take(endpoint, at, &turn);
        }
    }

    /// A turn that is not newer than the session's last one changes nothing.
    fn merge(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        let is_newer = |turn: &WorkingSetTurn| self.sets.find(turn.session).is_none_or(|set| set.sent < at);
        if let Some(turn) = WorkingSetTurn::read(words).filter(is_newer) {
            self.take(endpoint, at, &turn);
        }
    }

    /// The sessions of an endpoint that leaves are forgotten: their prompts are cached nowhere.
    fn remap(&mut self, moves: &[Option<usize>]) {
        self.sets.remap(moves, |set| &mut set.endpoint);
        self.tokens.clear();
        for (key, mut set) in core::mem::take(&mut self.in_work) {
            if let Some(endpoint) = moves.get(set.endpoint).copied().flatten() {
                set.endpoint = endpoint;
                self.count(&set);
                self.in_work.insert(key, set);
            }
        }
    }
}

/// How many of the late sessions without a name had a second turn.
#[derive(Clone, Copy, Debug)]
struct Continued {
    continued: f64,
    all: f64,
}

impl Default for Continued {
    /// One prompt without a second turn: prompts without a name are no sessions before some have become one.
    fn default() -> Self {
        Self { continued: 0.0, all: 1.0 }
    }
}

impl Continued {
    /// The number of sessions that count, about.
    const MEMORY: f64 = 50.0;

    fn add(&mut self, is_continued: bool) {
        let kept = 1.0 - 1.0 / Self::MEMORY;
        self.continued = kept * self.continued + f64::from(u8::from(is_continued));
        self.all = kept * self.all + 1.0;
    }

    fn share(self) -> f64 {
        self.continued / self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(1_000 + seconds)
    }

    /// A turn of a named session of one agent, all of whose prompt is cached.
    fn turn(session: u64, tokens: u32) -> WorkingSetTurn {
        WorkingSetTurn { session, chain: session, tokens, cached: tokens, is_named: true }
    }

    fn unnamed(session: u64, tokens: u32) -> WorkingSetTurn {
        WorkingSetTurn { cached: 0, is_named: false, ..turn(session, tokens) }
    }

    fn send(sets: &mut WorkingSets, endpoint: usize, at: Duration, turn: &WorkingSetTurn) {
        sets.apply(endpoint, at, &turn.words().unwrap());
    }

    #[test]
    fn a_session_is_in_work_for_four_minutes_after_each_turn() {
        let mut sets = WorkingSets::default();
        send(&mut sets, 1, at(0), &turn(1, 30_000));
        send(&mut sets, 1, at(2), &turn(2, 50_000));
        assert_eq!(sets.in_work(at(240)), [0, 80_000]);
        assert_eq!(sets.in_work(at(241)), [0, 50_000]);
        send(&mut sets, 0, at(242), &turn(2, 51_000));
        assert_eq!(sets.in_work(at(482)), [51_000, 0]);
        assert_eq!((sets.in_work(at(483)), sets.in_work.len()), (vec![0, 0], 1));
    }

    #[test]
    fn a_prompt_that_is_not_cached_needs_room_unless_its_session_is_in_work() {
        let mut sets = WorkingSets::default();
        let demand = |sets: &WorkingSets, seconds, tokens, cached| {
            sets.demand(&WorkingSetTurn { cached, ..turn(1, tokens) }, at(seconds))
        };
        let needs =
            |tokens, is_known| Some(SessionDemand { tokens: NonZeroU32::new(tokens).unwrap(), is_known });
        assert_eq!(demand(&sets, 0, 20_000, 4_000), needs(20_000, false));
        assert_eq!(demand(&sets, 0, 20_000, 10_000), None, "half of it is cached");
        assert_eq!(demand(&sets, 0, 4_095, 0), None, "short");
        send(&mut sets, 0, at(0), &turn(1, 40_000));
        assert_eq!(demand(&sets, 240, 41_000, 0), None, "in work, though it was evicted");
        assert_eq!(demand(&sets, 241, 41_000, 40_000), None, "it is back, and still cached");
        assert_eq!(demand(&sets, 241, 41_000, 0), needs(41_000, true));
    }

    #[test]
    fn prompts_without_a_name_count_as_far_as_others_were_continued() {
        let mut sets = WorkingSets::default();
        let tokens = |sets: &WorkingSets| sets.demand(&unnamed(999, 10_000), at(0)).map(|it| it.tokens.get());
        assert_eq!(tokens(&sets), None);
        for n in 0..200 {
            send(&mut sets, 0, at(0), &unnamed(n, 10_000));
            send(&mut sets, 0, at(0), &unnamed(n, 11_000));
        }
        assert!(tokens(&sets).is_some_and(|tokens| (9_700..10_000).contains(&tokens)));
        assert_eq!(sets.in_work(at(0)), [200 * 11_000], "later turns count wholly");
        (200..400).for_each(|n| send(&mut sets, 0, at(1), &unnamed(n, 10_000)));
        send(&mut sets, 0, at(300), &turn(400, 5_000));
        let tokens = sets.demand(&unnamed(999, 10_000), at(300)).map_or(0, |it| it.tokens.get());
        assert!(tokens < 300, "{tokens}: nothing followed for four minutes");
    }

    #[test]
    fn sub_agents_neither_shrink_nor_move_a_session_and_a_shorter_prompt_does_slowly() {
        let mut sets = WorkingSets::default();
        send(&mut sets, 1, at(0), &turn(1, 64_000));
        let other = WorkingSetTurn { chain: 7, ..turn(1, 16_000) };
        send(&mut sets, 0, at(1), &other);
        assert_eq!(sets.in_work(at(1)), [0, 60_000]);
        for n in 2..40 {
            send(&mut sets, 0, at(n), &other);
        }
        assert_eq!(sets.in_work(at(40)), [16_000, 0]);
    }

    #[test]
    fn sessions_follow_the_pool_and_neither_older_turns_nor_other_words_have_an_effect() {
        let mut sets = WorkingSets::default();
        send(&mut sets, 0, at(0), &turn(1, 30_000));
        send(&mut sets, 1, at(1), &turn(2, 50_000));
        sets.remap(&[None, Some(0)]);
        assert_eq!(sets.in_work(at(1)), [50_000]);
        let back = sets.demand(&WorkingSetTurn { cached: 0, ..turn(1, 30_000) }, at(1));
        assert!(back.is_some_and(|demand| !demand.is_known));
        for words in [&[1, 2, 3][..], &[1, 2, 3, 0, 5], &[1, 2, u64::MAX, 2]] {
            assert!(!sets.can_read(words));
            sets.apply(5, at(2), words);
        }
        send(&mut sets, 0, at(0), &turn(2, 9_000));
        for _ in 0..2 {
            sets.merge(0, at(1), &turn(2, 9_000).words().unwrap());
        }
        assert_eq!(sets.in_work(at(2)), [50_000]);
        assert_eq!(turn(1, 4_095).words(), None);
        let turn = WorkingSetTurn { cached: 7, ..unnamed(1, u32::MAX) };
        assert_eq!(WorkingSetTurn::read(&turn.words().unwrap()), Some(turn));
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let mut sets = WorkingSets::default();
        for n in 0..3 * SESSIONS as u64 {
            send(&mut sets, 0, at(0), &turn(n, 5_000));
        }
        assert!(sets.in_work.len() <= 2 * SESSIONS && sets.sets.len() <= 2 * SESSIONS);
    }
}
