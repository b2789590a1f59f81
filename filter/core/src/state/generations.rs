//! Values about endpoints that are forgotten some time after their last use.

use core::time::Duration;

use hashbrown::HashMap;

/// Values about endpoints by a hash, in two generations.
///
/// A value that is inserted, or inserted again, goes into the young one; when that is full or as old as
/// values live, it becomes the old one, and the previous old one is forgotten. So memory is bounded without a
/// sweep, and no value in use is lost before `size` others were used.
#[derive(Clone, Debug)]
pub(super) struct Generations<V> {
    /// Maximum number of values in one generation.
    size: usize,
    lifetime: Duration,
    young: HashMap<u64, V>,
    old: HashMap<u64, V>,
    /// When the young generation began.
    since: Duration,
}

impl<V: Copy> Generations<V> {
    /// No values. Each generation holds `size`, and is forgotten when the next one is older than `lifetime`.
    pub(super) fn new(size: usize, lifetime: Duration) -> Self {
        Self { size, lifetime, young: HashMap::new(), old: HashMap::new(), since: Duration::ZERO }
    }

    pub(super) fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// The value of this key, which may be older than the lifetime.
    pub(super) fn find(&self, key: u64) -> Option<V> {
        self.young.get(&key).or_else(|| self.old.get(&key)).copied()
    }

    pub(super) fn insert(&mut self, key: u64, value: V, at: Duration) {
        let is_past = at.abs_diff(self.since) > self.lifetime;
        if is_past || self.young.len() >= self.size && !self.young.contains_key(&key) {
            self.old = core::mem::take(&mut self.young);
            self.since = at;
        }
        self.young.insert(key, value);
    }

    /// Follows a change of the pool, as [`PluginState::remap`](super::PluginState::remap). `endpoint` is the
    /// index in a value.
    pub(super) fn remap(&mut self, moves: &[Option<usize>], endpoint: impl Fn(&mut V) -> &mut usize) {
        for generation in [&mut self.young, &mut self.old] {
            generation.retain(|_, value| {
                let index = endpoint(value);
                match moves.get(*index).copied().flatten() {
                    Some(moved) => {
                        *index = moved;
                        true
                    }
                    None => false,
                }
            });
        }
    }

    /// Values that are kept.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}
