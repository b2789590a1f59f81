//! The state that changes with every request: plugin states, loads in flight, failures and restarts.
//!
//! A decision borrows the [`Ledger`] and returns [`Change`]s. They name endpoints and plugins by their keys,
//! so they mean the same to a copy with another list of endpoints. A [`LedgerStore`] applies them to the
//! ledger, and to all of its copies in one order, so all copies are equal.

mod change;
mod store;

pub use change::{Change, ChangeKind, ChangeList, changes_of};
pub use store::{LedgerStore, LocalLedger};

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::flow_control::Waits;
use endpoint_picker::input::DecisionInput;
use endpoint_picker::period::Period;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::state::avoidance::Avoidance;
use endpoint_picker::state::in_flight::{InFlight, is_other_proxy};
use endpoint_picker::state::prefix::{CachedTokens, PredictionErrors, PredictionSource};
use endpoint_picker::state::restarts::Restarts;
use endpoint_picker::state::{ChangedReadings, Observation, PluginStates};

/// Everything that changes with requests, for the endpoints of one pool.
///
/// Loads are kept per *sender*: each worker of the proxy is one, and each
/// [other proxy](endpoint_picker::state::in_flight::sender_of_proxy) that shares its changes. A sender that
/// vanishes takes its loads with it.
#[derive(Debug, Default)]
pub struct Ledger {
    pool: Arc<Endpoints>,
    states: PluginStates,
    in_flight: InFlight,
    avoidance: Avoidance,
    restarts: Restarts,
    responses: ServedResponses,
    routed: u64,
}

const fn assert_send_and_sync<T: Send + Sync>() {}
const _: () = assert_send_and_sync::<Ledger>();

impl Ledger {
    /// Follows a change of the pool or the policy. State of endpoints and plugins that stay is kept.
    ///
    /// `avoid_failing` is the time for which an endpoint is avoided after its first failure; zero switches
    /// that off.
    pub fn adopt<'a>(
        &mut self,
        pool: Arc<Endpoints>,
        pipelines: impl IntoIterator<Item = &'a Pipeline>,
        avoid_failing: Duration,
    ) {
        self.states.adopt(pipelines.into_iter().flat_map(Pipeline::initial_states));
        self.states.remap(&self.pool.moves_to(&pool));
        self.in_flight.adopt(&pool);
        self.avoidance.adopt(&pool, avoid_failing);
        self.restarts.adopt(pool.as_slice().len(), |endpoint| pool.index_of(endpoint).is_some());
        self.responses.adopt(&self.pool, &pool);
        self.pool = pool;
    }

    /// Applies a change that a sender made.
    pub fn apply(&mut self, sender: u64, change: &Change<impl AsRef<[u64]>>) {
        let (endpoint, kind) = match change {
            // Changes of other proxies may be late or out of order, so they are merged.
            Change::State(change) if is_other_proxy(sender) => return self.states.merge(change, &self.pool),
            Change::State(change) => return self.states.apply(change, &self.pool),
            Change::Endpoint { endpoint, kind } => (*endpoint, *kind),
        };
        match kind {
            ChangeKind::Started(load) => {
                self.in_flight.start(sender, endpoint, load);
                self.routed += 1;
            }
            ChangeKind::Ended(load) => self.in_flight.end(sender, endpoint, load),
            ChangeKind::Moved { to, load } => self.in_flight.transfer(sender, endpoint, to, load),
            ChangeKind::InFlight(load) => self.in_flight.set_at(sender, endpoint, load),
            ChangeKind::Failed { at } => {
                self.avoidance.failed(endpoint, at);
                // Other proxies report the failures that they have seen to the agent themselves.
                if !is_other_proxy(sender)
                    && let Some(index) = self.pool.index_of(endpoint)
                {
                    self.responses.failed(index);
                }
            }
            ChangeKind::Recovered { at } => self.avoidance.recovered(endpoint, at),
            ChangeKind::Served { first_byte, is_streamed } => {
                if let Some(index) = self.pool.index_of(endpoint) {
                    self.responses.served(index, first_byte, is_streamed);
                }
            }
            ChangeKind::Cached(cached) => {
                if let Some(index) = self.pool.index_of(endpoint) {
                    self.responses.cached(index, &cached);
                }
            }
            ChangeKind::Restarted { since } => {
                // Several workers may find one restart; what is learned after its first report must stay.
                if self.restarts.report(endpoint, since)
                    && let Some(index) = self.pool.index_of(endpoint)
                {
                    self.states.forget(index, self.pool.as_slice().len());
                }
            }
        }
    }

    /// Has plugins learn from new readings, in the pool's order. `changed` are those that differ from the
    /// last call's.
    pub fn observe(&mut self, readings: &[Reading], changed: ChangedReadings<'_>) {
        let (in_flight, others) = (self.in_flight.loads(), self.in_flight.of_others());
        self.states.observe(&Observation { readings, changed, in_flight, others });
    }

    /// Takes in new readings, as [`Self::observe`]. Returns the restarts that they show and that were not
    /// applied yet.
    pub fn restarts_in(&mut self, readings: &[Reading], changed: ChangedReadings<'_>) -> ChangeList {
        let mut restarted = ChangeList::new();
        let endpoints = self.pool.as_slice();
        for (endpoint, reading) in
            changed.of(readings).filter_map(|(place, reading)| Some((endpoints.get(place)?, reading)))
        {
            let (endpoint, mark) = (endpoint.key(), reading.cached_since);
            if self.restarts.read(endpoint, mark, reading.updated.is_some())
                && let Some(since) = mark
            {
                restarted.push(Change::Endpoint { endpoint, kind: ChangeKind::Restarted { since } });
            }
        }
        // Another worker that read the snapshot earlier may have reported them.
        self.keep_unapplied_restarts(&mut restarted);
        restarted
    }

    /// Removes restarts that were applied since [`Self::restarts_in`] returned them: another sender found
    /// them too.
    pub fn keep_unapplied_restarts(&self, changes: &mut ChangeList) {
        changes.retain(|change| match *change {
            Change::Endpoint { endpoint, kind: ChangeKind::Restarted { since } } => {
                self.restarts.is_unreported(endpoint, since)
            }
            Change::Endpoint { .. } | Change::State(_) => true,
        });
    }

    /// Whether other proxies learn from this change.
    pub fn is_shared(&self, change: &Change) -> bool {
        match change {
            Change::State(change) => self.states.is_shared(change),
            Change::Endpoint { .. } => true,
        }
    }

    /// Replaces all loads of a sender: keys of endpoints with the load there.
    pub fn set_loads(&mut self, sender: u64, loads: impl IntoIterator<Item = (u64, Load)>) {
        self.in_flight.set(sender, loads);
    }

    /// Replaces the state of a plugin, for a simulation that knows the true one.
    #[cfg(feature = "testing")]
    pub(crate) fn replace_state(&mut self, plugin: u64, state: Box<dyn endpoint_picker::state::PluginState>) {
        self.states.replace(plugin, state);
    }

    /// Whether changes of other proxies' loads are [deferred](endpoint_picker::state::deferred_load).
    pub fn has_deferred(&self) -> bool {
        !self.in_flight.deferred().is_empty()
    }

    /// Lets time pass for the deferred part of loads.
    pub fn pass(&mut self, time: Duration) {
        self.in_flight.pass(time);
    }

    /// Drops all loads of a sender that vanished.
    pub fn forget_sender(&mut self, sender: u64) {
        self.in_flight.forget(sender);
    }

    /// All loads of a sender: keys of endpoints with the load there.
    pub fn loads_of(&self, sender: u64) -> impl Iterator<Item = (u64, Load)> {
        self.in_flight.of(sender)
    }

    /// All senders that have, or had, load in flight.
    pub fn senders(&self) -> impl Iterator<Item = u64> {
        self.in_flight.senders()
    }

    /// Has the next decisions send every prompt in full, because a copy of this ledger has missed changes.
    pub fn resend(&mut self) {
        self.states.resend();
    }

    /// The pool adopted last; lists by endpoint have its order.
    pub fn pool(&self) -> &Arc<Endpoints> {
        &self.pool
    }

    /// The plugins' states.
    pub fn states(&self) -> &PluginStates {
        &self.states
    }

    /// The load in flight at each endpoint, of all senders together.
    pub fn loads(&self) -> &[Load] {
        self.in_flight.loads()
    }

    /// The load in flight at each endpoint that this proxy's workers put there.
    pub fn own_loads(&self) -> impl Iterator<Item = Load> {
        self.in_flight.own_loads()
    }

    /// The same, by the keys of endpoints with any load, including endpoints that have left the pool.
    pub fn own_loads_by_key(&self) -> impl Iterator<Item = (u64, Load)> {
        self.in_flight.own()
    }

    /// Start of the caches that an endpoint has now; `None`: unknown.
    pub fn cached_since(&self, endpoint: u64) -> Option<Duration> {
        self.restarts.newest(endpoint)
    }

    /// The number of requests in flight, at all endpoints together.
    pub fn requests_in_flight(&self) -> u64 {
        self.loads().iter().map(|load| load.requests).sum()
    }

    /// How often each endpoint was picked since it came into the pool.
    pub fn picks(&self) -> &[u64] {
        self.in_flight.picks()
    }

    /// The responses of each endpoint to this proxy since it came into the pool.
    pub fn responses(&self) -> &[ResponseCounts] {
        &self.responses.endpoints
    }

    /// How long clients of this proxy waited for the first byte of each stream of tokens, from the choice of
    /// the endpoint on.
    pub fn first_token(&self) -> &Waits {
        &self.responses.first_token
    }

    /// When each endpoint is avoided; those missing at the end are not avoided.
    pub fn avoided(&self) -> &[Period] {
        self.avoidance.avoided()
    }

    /// The keys of the endpoints that are avoided at this time.
    pub fn avoided_endpoints(&self, now: Duration) -> impl Iterator<Item = u64> {
        self.avoidance.avoided_endpoints(now)
    }

    /// Whether an endpoint has failed since it last served a generation.
    pub fn is_failing(&self, endpoint: u64) -> bool {
        self.avoidance.is_failing(endpoint)
    }

    /// Whether any endpoint is failing.
    pub fn has_failing(&self) -> bool {
        self.avoidance.has_failing()
    }

    /// The number of loads that started, of all senders together: it grows when any of them routes a request.
    pub fn routed(&self) -> u64 {
        self.routed
    }

    /// All that a decision borrows: the ledger, and readings in the pool's order with the time of their
    /// arrival.
    pub fn input<'a>(&'a self, readings: &'a [Reading], readings_arrived: Duration) -> DecisionInput<'a> {
        DecisionInput {
            pool: &self.pool,
            readings,
            readings_arrived,
            in_flight: self.loads(),
            deferred: self.in_flight.deferred(),
            avoided: self.avoided(),
            states: &self.states,
            precomputed: None,
        }
    }
}

/// The responses of one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseCounts {
    /// Requests that failed there.
    pub failures: u64,
    /// How long the first byte of each body took.
    pub first_byte: Waits,
    /// Tokens of prompts that the endpoint was predicted to have cached, of responses that report theirs.
    pub predicted_cached: u64,
    /// Tokens of these prompts that it had cached.
    pub cached: u64,
    /// Errors of the predictions by the events of its KV cache.
    pub errors_by_events: PredictionErrors,
    /// Errors of the predictions by the prompts that it was sent.
    pub errors_by_prompts: PredictionErrors,
}

/// The responses of all endpoints that this proxy has sent requests to, since they came into the pool.
#[derive(Debug, Default)]
struct ServedResponses {
    /// In the order of the pool adopted last.
    endpoints: Vec<ResponseCounts>,
    /// How long the first byte of each stream of tokens took, since the ledger began.
    first_token: Waits,
}

impl ServedResponses {
    /// Follows a change from one pool to another.
    fn adopt(&mut self, older: &Endpoints, newer: &Endpoints) {
        let counts = |key| self.endpoints.get(older.index_of(key)?).copied();
        self.endpoints =
            newer.as_slice().iter().map(|endpoint| counts(endpoint.key()).unwrap_or_default()).collect();
    }

    /// A request failed at the endpoint of this index.
    fn failed(&mut self, endpoint: usize) {
        if let Some(counts) = self.endpoints.get_mut(endpoint) {
            counts.failures += 1;
        }
    }

    /// A response of the endpoint of this index has shown cached tokens.
    fn cached(&mut self, endpoint: usize, cached: &CachedTokens) {
        if let Some(counts) = self.endpoints.get_mut(endpoint) {
            counts.predicted_cached = counts.predicted_cached.saturating_add(cached.predicted);
            counts.cached = counts.cached.saturating_add(cached.actual_in_blocks());
            match cached.source {
                PredictionSource::Events => counts.errors_by_events.add(cached),
                PredictionSource::Prompts => counts.errors_by_prompts.add(cached),
            }
        }
    }

    /// The endpoint of this index has sent a body.
    fn served(&mut self, endpoint: usize, first_byte: Duration, is_streamed: bool) {
        if let Some(counts) = self.endpoints.get_mut(endpoint) {
            counts.first_byte.add(first_byte);
        }
        if is_streamed {
            self.first_token.add(first_byte);
        }
    }
}

#[cfg(test)]
mod tests;
