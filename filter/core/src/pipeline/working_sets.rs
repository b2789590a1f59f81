//! The working sets of sessions, by which the queue admits sessions.

use core::time::Duration;

use xxhash_rust::xxh64::xxh64;

use super::{Pipeline, Prepared, Scratch};
use crate::flow_control::{CacheRoom, Stages};
use crate::input::DecisionInput;
use crate::input::cycle::Cycle;
use crate::plugin::fairness_id;
use crate::request::Request;
use crate::request::session::{SessionName, SessionTurn};
use crate::state::{SessionDemand, StateChange, WorkingSetTurn, WorkingSets};

/// The key of the [state](WorkingSets) of working sets. Instances of plugins have hashes of their types and
/// names as keys.
pub(super) const WORKING_SETS: u64 = 0x5345_5353_494f_4e02;

impl Pipeline {
    /// The part of the caches that sessions in work may fill; `None`: sessions are not limited.
    fn cache_share(&self) -> Option<f64> {
        let share = self.flow_control.as_ref()?.usage_limit.cache_share()?;
        self.knows_sessions().then_some(share)
    }

    /// Whether sessions wait while those in work fill the caches.
    pub fn limits_sessions(&self) -> bool {
        self.cache_share().is_some()
    }

    /// The tokens that the session of a request brings into the caches. `None`: it brings none that count, or
    /// sessions are not limited.
    pub fn session_demand(
        &self,
        request: &Request<'_>,
        input: &DecisionInput<'_>,
        now: Duration,
    ) -> Option<SessionDemand> {
        let sets = input.states.of::<WorkingSets>(WORKING_SETS)?;
        let prepared = self.prepare(request, input, now);
        let cycle = self.cycle(request, input, now);
        let lookup = self.look_up(&cycle, &prepared, &mut Scratch::default());
        let cycle = lookup.seen_by(cycle);
        let session = self.session(&cycle, &prepared)?;
        let cached = cycle.prefixes.first()?.matched.iter().max().copied().unwrap_or(0);
        sets.demand(&working_set_turn(&cycle, &prepared, &session, cached)?, now)
    }

    /// The change by which a session is in work after this turn, which goes to this endpoint.
    pub(super) fn working_set_change(
        &self,
        cycle: &Cycle<'_>,
        prepared: &Prepared<'_>,
        session: &SessionTurn,
        endpoint: usize,
    ) -> Option<StateChange> {
        if !self.limits_sessions() {
            return None;
        }
        let cached = cycle.prefixes.first()?.blocks(endpoint);
        let words = working_set_turn(cycle, prepared, session, cached)?.words()?.into();
        let (plugin, endpoint) = (WORKING_SETS, cycle.endpoint(endpoint).key());
        Some(StateChange { plugin, endpoint, at: cycle.now, words })
    }

    /// The room in the caches of these endpoints. `None`: sessions are not limited, or the size of no cache
    /// is known.
    pub fn cache_room(&self, stages: &Stages, input: &DecisionInput<'_>, now: Duration) -> Option<CacheRoom> {
        let rooms = self.rooms(input, now)?;
        let all = || stages.all().iter().filter_map(|&endpoint| rooms(endpoint));
        let (free, whole) = (all().map(|room| room.free).max()?, all().map(|room| room.whole).max()?);
        Some(CacheRoom { free, whole })
    }

    /// The candidates whose caches have room for the session of a request that is cached nowhere. `None`: all
    /// of them, or none.
    #[inline]
    pub(super) fn with_room(
        &self,
        cycle: &Cycle<'_>,
        prepared: &Prepared<'_>,
        candidates: &[usize],
    ) -> Option<Vec<usize>> {
        if self.limits_sessions() { self.find_room(cycle, prepared, candidates) } else { None }
    }

    #[cold]
    #[inline(never)]
    fn find_room(
        &self,
        cycle: &Cycle<'_>,
        prepared: &Prepared<'_>,
        candidates: &[usize],
    ) -> Option<Vec<usize>> {
        let rooms = self.rooms(cycle.input, cycle.now)?;
        let session = self.session(cycle, prepared)?;
        let matches = cycle.prefixes.first()?;
        let cached = candidates.iter().map(|&endpoint| matches.blocks(endpoint)).max()?;
        let turn = working_set_turn(cycle, prepared, &session, cached)?;
        if !turn.misses_cache() {
            return None;
        }
        let has_room = |endpoint: &usize| rooms(*endpoint).is_some_and(|room| room.fits(turn.tokens.into()));
        let kept: Vec<usize> = candidates.iter().copied().filter(has_room).collect();
        (!kept.is_empty() && kept.len() < candidates.len()).then_some(kept)
    }

    /// The room for sessions at each of these endpoints, in words.
    pub(super) fn room_texts(&self, cycle: &Cycle<'_>, endpoints: &[usize]) -> Vec<(usize, String)> {
        let Some(rooms) = self.rooms(cycle.input, cycle.now) else { return Vec::new() };
        let text = |&endpoint: &usize| {
            let CacheRoom { free, whole } = rooms(endpoint)?;
            Some((endpoint, format!("session-admission-policy: {free} of {whole} tokens free")))
        };
        endpoints.iter().filter_map(text).collect()
    }

    /// The room in the cache of an endpoint; `None`: its size is not known.
    fn rooms<'a>(
        &self,
        input: &DecisionInput<'a>,
        now: Duration,
    ) -> Option<impl Fn(usize) -> Option<CacheRoom> + use<'a>> {
        let share = self.cache_share()?;
        let in_work = input.states.of::<WorkingSets>(WORKING_SETS)?.in_work(now);
        let readings = self.usable_readings(input, now);
        Some(move |endpoint: usize| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of tokens")]
            let whole = (readings.get(endpoint)?.kv_tokens()? as f64 * share) as u64;
            let free = whole.saturating_sub(in_work.get(endpoint).copied().unwrap_or(0));
            Some(CacheRoom { free, whole })
        })
    }
}

/// A turn with this number of cached blocks. Requests of one name are of one session, also those of its
/// sub-agents, but not those of another fairness id: by another user's name, nothing is had of its place.
fn working_set_turn(
    cycle: &Cycle<'_>,
    prepared: &Prepared<'_>,
    session: &SessionTurn,
    cached: u32,
) -> Option<WorkingSetTurn> {
    let (blocks, block_size) = prepared.only_list()?;
    let tokens = |blocks: usize| u32::try_from(blocks.saturating_mul(block_size)).unwrap_or(u32::MAX);
    let user = fairness_id(cycle.request.headers).map_or(0, |id| xxh64(id.as_bytes(), 0));
    Some(WorkingSetTurn {
        session: user ^ prepared.session_name.map_or(session.key, SessionName::agent),
        chain: session.key,
        tokens: tokens(blocks.len()),
        cached: tokens(usize::try_from(cached).unwrap_or(usize::MAX)),
        is_named: prepared.session_name.is_some(),
    })
}
