//! The state of a pool that changes with requests.
//!
//! A plugin's state changes only by a [`Change`] that is recorded when a request is routed. Changes are values: a shell that decides
//! in several places passes them on, and all places have the same state.

pub mod avoidance;
mod change;
mod cold_order;
#[expect(clippy::indexing_slicing, reason = "the place that is read was just made")]
pub mod deferred_load;
#[expect(clippy::indexing_slicing, reason = "only `place` makes places, and the arrays grow with them")]
pub mod in_flight;
pub mod prefix;
pub mod restarts;
mod session_bindings;

pub use change::{Change, Event};
pub use cold_order::ColdOrder;
pub use session_bindings::SessionBindings;

use core::mem::discriminant;

use prefix::PrefixIndex;

/// The state of one plugin. Endpoints are given by their index in the pool.
#[derive(Debug, Default)]
pub enum PluginState {
    /// The plugin has no state.
    #[default]
    None,
    /// Prompts sent.
    Prefixes(PrefixIndex),
    /// Endpoints in the order of their last cold request.
    ColdOrder(ColdOrder),
    /// Which endpoint each session is bound to.
    Sessions(SessionBindings),
}

impl PluginState {
    /// Applies a change. One of another kind has no effect.
    pub fn apply(&mut self, change: &Change<impl AsRef<[u64]>>) {
        match change {
            Change::SentPrompt { endpoint, capacity, chain } => {
                if let Self::Prefixes(index) = self {
                    index.add(*endpoint, chain.as_ref(), *capacity);
                }
            }
            Change::SentCold { endpoint, at } => {
                if let Self::ColdOrder(order) = self {
                    order.touch(*endpoint, *at);
                }
            }
            Change::BoundSession { session, endpoint, at } => {
                if let Self::Sessions(bindings) = self {
                    bindings.bind(*session, *endpoint, *at);
                }
            }
        }
    }

    /// Applies a change that another proxy made. It may arrive late, twice, or behind a later one of the same endpoint or session, which
    /// then stays in force.
    pub fn merge(&mut self, change: &Change<impl AsRef<[u64]>>) {
        match (change, self) {
            (Change::SentCold { endpoint, at }, Self::ColdOrder(order)) => order.merge(*endpoint, *at),
            (Change::BoundSession { session, endpoint, at }, Self::Sessions(bindings)) => {
                bindings.merge(*session, *endpoint, *at);
            }
            // The blocks of a prompt are a set: adding them late or twice only makes them more recent.
            (change @ Change::SentPrompt { .. }, state) => state.apply(change),
            (Change::SentCold { .. } | Change::BoundSession { .. }, _) => {}
        }
    }

    /// A replica has missed changes: recently sent blocks are sent again on next use.
    pub fn resend(&mut self) {
        if let Self::Prefixes(index) = self {
            index.let_nothing_be_fresh();
        }
    }

    /// Follows a change of the pool: `moves[old index]` is the endpoint's new index, or `None` if it left.
    pub fn remap(&mut self, moves: &[Option<usize>]) {
        match self {
            Self::None => {}
            Self::Prefixes(index) => index.remap(moves),
            Self::ColdOrder(order) => order.remap(moves),
            Self::Sessions(bindings) => bindings.remap(moves),
        }
    }
}

/// The states of plugins, by their [keys](crate::plugin::Instance::key): pipelines that have a plugin in common share its state.
#[derive(Debug, Default)]
pub struct PluginStates(Vec<(u64, PluginState)>);

impl PluginStates {
    /// No plugins.
    pub const fn none() -> Self {
        Self(Vec::new())
    }

    /// The state of this plugin.
    pub fn of(&self, plugin: u64) -> &PluginState {
        self.0.iter().find(|(key, _)| *key == plugin).map_or(&PluginState::None, |(_, state)| state)
    }

    /// Replaces the plugins whose state is kept by these, given with their [initial
    /// states](crate::pipeline::Pipeline::initial_states). Those that were there before keep their state.
    pub fn adopt(&mut self, plugins: impl IntoIterator<Item = (u64, PluginState)>) {
        let mut older = core::mem::take(&mut self.0);
        for (key, new) in plugins {
            if self.0.iter().all(|(other, _)| *other != key) {
                // With other parameters a plugin may have a state of another kind.
                let fits = |older: &PluginState| discriminant(older) == discriminant(&new);
                let kept = older.iter().position(|(other, state)| *other == key && fits(state));
                let state = kept.map_or(new, |at| older.swap_remove(at).1);
                self.0.push((key, state));
            }
        }
    }

    /// Applies an event. One of a plugin without state here has no effect.
    pub fn apply(&mut self, event: &Event<impl AsRef<[u64]>>) {
        if let Some((_, state)) = self.0.iter_mut().find(|(key, _)| *key == event.plugin) {
            state.apply(&event.change);
        }
    }

    /// As [`Self::apply`], for an event of another proxy: see [`PluginState::merge`].
    pub fn merge(&mut self, event: &Event<impl AsRef<[u64]>>) {
        if let Some((_, state)) = self.0.iter_mut().find(|(key, _)| *key == event.plugin) {
            state.merge(&event.change);
        }
    }

    /// As [`PluginState::resend`], for all plugins.
    pub fn resend(&mut self) {
        self.0.iter_mut().for_each(|(_, state)| state.resend());
    }

    /// Drops everything about one endpoint of a pool of this many: it has restarted, and its caches are empty.
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
    pub(crate) fn only(state: PluginState) -> Self {
        Self(vec![(0, state)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn state_about_a_restarted_endpoint_is_dropped_and_the_rest_stays() {
        let mut states = PluginStates::only(PluginState::Prefixes(PrefixIndex::default()));
        for endpoint in [1, 2] {
            let change = Change::SentPrompt { endpoint, capacity: 9, chain: vec![7, 8] };
            states.apply(&Event { plugin: 0, change });
        }
        states.forget(1, 4);
        let PluginState::Prefixes(index) = states.of(0) else { panic!("the index of prompts") };
        let mut matched = [0; 4];
        index.count_matches(&[7, 8], &mut matched);
        assert_eq!(matched, [0, 0, 2, 0]);
    }
}
