//! A plugin as a pipeline uses it.

use std::sync::Arc;

/// A plugin in the role `T`.
#[derive(Debug)]
pub(crate) struct Slot<T: ?Sized> {
    /// The instance's name in the configuration.
    pub(crate) name: Arc<str>,
    /// The [key](super::Instance::key) of the instance, under which its state is kept.
    pub(crate) key: u64,
    /// The plugin.
    pub(crate) plugin: Arc<T>,
}

impl<T: ?Sized> Clone for Slot<T> {
    fn clone(&self) -> Self {
        Self { name: self.name.clone(), key: self.key, plugin: self.plugin.clone() }
    }
}
