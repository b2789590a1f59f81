//! A plugin as a pipeline uses it.

use std::sync::Arc;

/// A plugin in the role `T`.
#[derive(Debug)]
pub(crate) struct Slot<T: ?Sized> {
    /// The instance's name in the configuration.
    pub(crate) name: Arc<str>,
    /// The [key](crate::plugin::Instance::key) of the instance, under which its state is kept.
    pub(crate) key: u64,
    /// The producers that it reads.
    pub(crate) inputs: Inputs,
    /// The plugin.
    pub(crate) plugin: Arc<T>,
}

/// The producers and deciders that a plugin reads, each as an index among the pipeline's plugins of its kind.
/// `None`: it reads none, or there is none of the name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs {
    pub(crate) prefix_producer: Option<u16>,
    pub(crate) latency_predictor: Option<u16>,
    pub(crate) media_cache: Option<u16>,
    pub(crate) topology: Option<u16>,
    /// In the order in which the plugin needs them.
    pub(crate) session_producers: Vec<Option<u16>>,
    /// The deciders that it asks, in the order in which it needs them.
    pub(crate) deciders: Vec<Option<u16>>,
}

impl<T: ?Sized> Clone for Slot<T> {
    fn clone(&self) -> Self {
        let Self { name, key, inputs, plugin } = self;
        Self { name: name.clone(), key: *key, inputs: inputs.clone(), plugin: plugin.clone() }
    }
}
