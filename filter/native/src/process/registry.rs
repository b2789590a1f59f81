//! Values that all users in the process share for as long as there is one.

use std::sync::{Arc, Weak};

use super::sync::Mutex;

/// Shared values by their keys. A value ends with its last user.
pub(crate) struct ProcessRegistry<K, V>(Mutex<Vec<(K, Weak<V>)>>);

impl<K: PartialEq, V> ProcessRegistry<K, V> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// The values whose keys fulfil a condition, the newest first.
    pub(crate) fn find(&self, mut condition: impl FnMut(&K) -> bool) -> Vec<Arc<V>> {
        let values = self.0.lock();
        let found = values.iter().rev().filter(|(key, _)| condition(key));
        found.filter_map(|(_, value)| value.upgrade()).collect()
    }

    /// The value of this key, made now if it has no other user.
    pub(crate) fn get_or_make<E>(&self, key: K, make: impl FnOnce() -> Result<V, E>) -> Result<Arc<V>, E> {
        let mut values = self.0.lock();
        values.retain(|(_, value)| value.strong_count() > 0);
        let known = values.iter().find(|(other, _)| *other == key);
        if let Some(value) = known.and_then(|(_, value)| value.upgrade()) {
            return Ok(value);
        }
        let value = Arc::new(make()?);
        values.push((key, Arc::downgrade(&value)));
        Ok(value)
    }
}
