//! The state of a pool that changes with requests.
//!
//! A plugin's state changes only by a [`StateChange`] that is recorded when a request is routed. Changes are
//! values: a shell that decides in several places passes them on, and all places have the same state. Only
//! the plugin knows what the words of its changes mean: it encodes them when it
//! [records](crate::plugin::Recorder::record) a request, and its [`PluginState`] applies them.

pub mod avoidance;
mod bursts;
mod cold_order;
#[expect(clippy::indexing_slicing, reason = "the place that is read was just made")]
pub mod deferred_load;
mod generations;
#[expect(clippy::indexing_slicing, reason = "only `place` makes places, and the arrays grow with them")]
pub mod in_flight;
pub mod latency;
mod media_items;
pub mod prefix;
pub mod restarts;
mod session_bindings;
mod sessions;
mod working_sets;

pub use bursts::{Bursts, Group};
pub use cold_order::ColdOrder;
pub use media_items::MediaItems;
pub use session_bindings::SessionBindings;
pub use sessions::Sessions;
pub use working_sets::{SessionDemand, WorkingSetTurn, WorkingSets};

use core::any::Any;
use core::fmt::Debug;
use core::time::Duration;

use smallvec::SmallVec;

use crate::pool::Endpoints;
use crate::pool::load::Load;
use crate::pool::reading::Reading;

/// The changes that follow from one decision, which take no allocation for the usual two plugins with a
/// state.
pub type StateChanges = SmallVec<[StateChange; 2]>;

/// The words of a change. Up to four take no allocation: more name blocks of a prompt, or learn from times
/// that were predicted.
pub type Words = SmallVec<[u64; 4]>;

/// A change of the state of one plugin: something about an endpoint, which only the plugin can read. `W` is a
/// list of its own, or a slice borrowed from the bytes that the change was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateChange<W = Words> {
    /// The plugin's [key](crate::plugin::Instance::key).
    pub plugin: u64,
    /// The endpoint's [key](crate::pool::Endpoint::key).
    pub endpoint: u64,
    /// The time of the request that it follows from, on the shell's clock.
    pub at: Duration,
    /// The rest, as the plugin encodes it.
    pub words: W,
}

impl<W: AsRef<[u64]>> StateChange<W> {
    /// The same change with words of its own.
    pub fn into_owned(self) -> StateChange {
        let Self { plugin, endpoint, at, words } = self;
        StateChange { plugin, endpoint, at, words: words.as_ref().into() }
    }
}

/// The state of one plugin. Endpoints are given by their index in the pool.
///
/// The words of a change may come from another proxy, so no words do harm: those that the state does not
/// [read](Self::can_read) have no effect.
pub trait PluginState: Any + Debug + Send + Sync {
    /// Whether a change of this state has such words.
    fn can_read(&self, words: &[u64]) -> bool;

    /// Whether other proxies learn from a change with these words.
    fn is_shared(&self, words: &[u64]) -> bool {
        let _ = words;
        true
    }

    /// Applies a change of this proxy, which is the newest.
    fn apply(&mut self, endpoint: usize, at: Duration, words: &[u64]);

    /// Applies a change of another proxy. It may arrive late, twice, or behind a later one, which then stays
    /// in force.
    fn merge(&mut self, endpoint: usize, at: Duration, words: &[u64]);

    /// Follows a change of the pool: `moves[old index]` is the endpoint's new index, or `None` if it left.
    fn remap(&mut self, moves: &[Option<usize>]);

    /// New readings have arrived. Decisions have these readings, or none, until it is called again.
    fn observe(&mut self, observation: &Observation<'_>) {
        let _ = observation;
    }

    /// A replica has missed changes: those that would be left out, because others have them already, are
    /// recorded again.
    fn resend(&mut self) {}
}

/// New readings, and what is in flight when they arrive. All in the pool's order; those missing at the end
/// count as unknown or idle.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// Each endpoint's newest reading.
    pub readings: &'a [Reading],
    /// The readings that differ from the last observation's.
    pub changed: ChangedReadings<'a>,
    /// Load in flight at each endpoint.
    pub in_flight: &'a [Load],
    /// The part of it that is of other proxies.
    pub others: &'a [Load],
}

/// The readings that differ from the last ones, of an observation or a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedReadings<'a> {
    /// Any may.
    All,
    /// No others than those at these places.
    At(&'a [usize]),
}

impl<'a> ChangedReadings<'a> {
    /// These of the readings, with their places.
    pub fn of<T>(self, readings: &'a [T]) -> impl Iterator<Item = (usize, &'a T)> {
        let (all, places) = match self {
            Self::All => (readings, &[][..]),
            Self::At(places) => (&[][..], places),
        };
        let at = move |&place: &usize| readings.get(place).map(|reading| (place, reading));
        all.iter().enumerate().chain(places.iter().filter_map(at))
    }
}

/// The states of plugins, by their [keys](crate::plugin::Instance::key): pipelines that have a plugin in
/// common share its state.
#[derive(Debug, Default)]
pub struct PluginStates(Vec<(u64, Box<dyn PluginState>)>);

impl PluginStates {
    /// No plugins.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// The state of this plugin; `None` if it has no state, or one of another type.
    pub fn of<S: PluginState>(&self, plugin: u64) -> Option<&S> {
        let (_, state) = self.0.iter().find(|(key, _)| *key == plugin)?;
        (&**state as &dyn Any).downcast_ref()
    }

    /// Replaces the plugins whose state is kept by these, given with their [initial
    /// states](crate::pipeline::Pipeline::initial_states). Those that were there before keep their state.
    pub fn adopt(&mut self, plugins: impl IntoIterator<Item = (u64, Box<dyn PluginState>)>) {
        let mut older = core::mem::take(&mut self.0);
        for (key, new) in plugins {
            if self.0.iter().all(|(other, _)| *other != key) {
                // With other parameters a plugin may have a state of another type.
                let fits = |older: &dyn PluginState| older.type_id() == (*new).type_id();
                let kept = older.iter().position(|(other, state)| *other == key && fits(&**state));
                let state = kept.map_or(new, |at| older.swap_remove(at).1);
                self.0.push((key, state));
            }
        }
    }

    /// Replaces the state of a plugin that has one.
    pub fn replace(&mut self, plugin: u64, state: Box<dyn PluginState>) {
        if let Some((_, older)) = self.0.iter_mut().find(|(key, _)| *key == plugin) {
            *older = state;
        }
    }

    /// Whether the plugin of this change can read its words. A plugin without state here reads any.
    pub fn can_read(&self, change: &StateChange<impl AsRef<[u64]>>) -> bool {
        let state = self.0.iter().find(|(key, _)| *key == change.plugin);
        state.is_none_or(|(_, state)| state.can_read(change.words.as_ref()))
    }

    /// Whether other proxies learn from this change.
    pub fn is_shared(&self, change: &StateChange) -> bool {
        let state = self.0.iter().find(|(key, _)| *key == change.plugin);
        state.is_some_and(|(_, state)| state.is_shared(&change.words))
    }

    /// Applies a change of this proxy. One of a plugin without state here, or about an endpoint that the pool
    /// lacks, has no effect.
    pub fn apply(&mut self, change: &StateChange<impl AsRef<[u64]>>, pool: &Endpoints) {
        if let Some((state, endpoint)) = self.find(change, pool) {
            state.apply(endpoint, change.at, change.words.as_ref());
        }
    }

    /// As [`Self::apply`], for a change of another proxy: see [`PluginState::merge`].
    pub fn merge(&mut self, change: &StateChange<impl AsRef<[u64]>>, pool: &Endpoints) {
        if let Some((state, endpoint)) = self.find(change, pool) {
            state.merge(endpoint, change.at, change.words.as_ref());
        }
    }

    fn find<W>(
        &mut self,
        change: &StateChange<W>,
        pool: &Endpoints,
    ) -> Option<(&mut dyn PluginState, usize)> {
        let (_, state) = self.0.iter_mut().find(|(key, _)| *key == change.plugin)?;
        Some((&mut **state, pool.index_of(change.endpoint)?))
    }

    /// As [`PluginState::observe`], for all plugins.
    pub fn observe(&mut self, observation: &Observation<'_>) {
        self.0.iter_mut().for_each(|(_, state)| state.observe(observation));
    }

    /// As [`PluginState::resend`], for all plugins.
    pub fn resend(&mut self) {
        self.0.iter_mut().for_each(|(_, state)| state.resend());
    }

    /// Drops everything about one endpoint of a pool of this many: it has restarted, and its caches are
    /// empty.
    pub fn forget(&mut self, endpoint: usize, endpoints: usize) {
        let moves: Vec<_> = (0..endpoints).map(|other| (other != endpoint).then_some(other)).collect();
        self.remap(&moves);
    }

    /// Follows a change of the pool, as [`PluginState::remap`].
    pub fn remap(&mut self, moves: &[Option<usize>]) {
        self.0.iter_mut().for_each(|(_, state)| state.remap(moves));
    }

    /// The state of a plugin that is tested alone.
    #[cfg(test)]
    pub(crate) fn only(state: Box<dyn PluginState>) -> Self {
        Self(vec![(0, state)])
    }
}

#[cfg(test)]
mod tests {
    use super::prefix::{Capacity, PrefixIndex};
    use super::*;
    use crate::pool::Endpoint;
    use crate::test;

    #[test]
    fn state_about_a_restarted_endpoint_is_dropped_and_the_rest_stays() {
        let endpoint = |n| Endpoint::new(format!("{n}"), ([10, 0, 0, n], 8000).into(), vec![]);
        let pool = Endpoints::new("p".to_owned(), (0..4).map(endpoint).collect()).unwrap();
        let mut states = PluginStates::only(Box::new(PrefixIndex::default()));
        for endpoint in [1, 2] {
            let words = PrefixIndex::words(Capacity::first(9), &[7, 8]);
            let endpoint = pool.as_slice()[endpoint].key();
            states.apply(&StateChange { plugin: 0, endpoint, at: Duration::ZERO, words }, &pool);
        }
        states.forget(1, 4);
        let mut matched = [0; 4];
        states.of::<PrefixIndex>(0).unwrap().count_matches(&[7, 8], &mut matched);
        assert_eq!(matched, [0, 0, 2, 0]);
    }
}
