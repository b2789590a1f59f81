//! What one plugin needs of another.

use super::Plugin;

/// Another instance that a plugin's parameter names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PluginRef<'a> {
    /// The parameter, as a path: `deciders.prefill`.
    pub parameter: &'static str,
    /// The instance's name.
    pub name: &'a str,
    /// What it is needed for.
    pub role: Role,
}

/// What another plugin is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// [`Plugin::as_decider`].
    Decider,
    /// [`Plugin::as_prefix_producer`].
    PrefixProducer,
    /// [`Plugin::as_session_producer`].
    SessionProducer,
}

impl Role {
    /// Whether the plugin can play it.
    pub fn is_played_by(self, plugin: &dyn Plugin) -> bool {
        match self {
            Self::Decider => plugin.as_decider().is_some(),
            Self::PrefixProducer => plugin.as_prefix_producer().is_some(),
            Self::SessionProducer => plugin.as_session_producer().is_some(),
        }
    }

    /// In words, for messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decider => "decider",
            Self::PrefixProducer => "prefix producer",
            Self::SessionProducer => "session producer",
        }
    }
}
