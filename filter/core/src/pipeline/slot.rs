//! A plugin in one role of a pipeline.

use core::fmt::Debug;
use std::sync::Arc;

/// A plugin in the role `T`.
#[derive(Debug)]
pub(crate) struct Slot<T: ?Sized> {
    /// The instance's name in the configuration.
    pub(crate) name: Arc<str>,
    /// The [key](crate::plugin::Instance::key) of the instance, under which its state is kept.
    pub(crate) key: u64,
    /// The plugin.
    pub(crate) plugin: Arc<T>,
}

impl<T: ?Sized> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), key: self.key, plugin: self.plugin.clone() }
    }
}

/// Gives the slots of one plugin another key.
pub(super) fn rekey<'a, T: ?Sized + 'a>(
    slots: impl IntoIterator<Item = &'a mut Slot<T>>,
    key: u64,
    new: u64,
) {
    for slot in slots {
        if slot.key == key {
            slot.key = new;
        }
    }
}
