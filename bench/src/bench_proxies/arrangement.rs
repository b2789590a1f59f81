//! How several proxies of one pool have their pickers.

use std::fmt;

/// How several proxies of one pool have their pickers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrangement {
    /// Our filter; each proxy has an agent of its own, and the agents share through a store.
    Store,
    /// Our filter; all proxies share through one agent.
    OneAgent,
    /// Our filter; each proxy has an agent of its own, and nothing is shared.
    Apart,
    /// The EPP, one for all proxies.
    OneEpp,
    /// Each proxy has an EPP of its own; EPPs share nothing.
    OwnEpps,
}

impl Arrangement {
    /// Whether all proxies have one picker process.
    pub(crate) fn has_one_picker(self) -> bool {
        match self {
            Self::OneAgent | Self::OneEpp => true,
            Self::Store | Self::Apart | Self::OwnEpps => false,
        }
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store => "sharing through a store",
            Self::OneAgent => "sharing through one agent",
            Self::Apart => "not sharing",
            Self::OneEpp => "one EPP",
            Self::OwnEpps => "an EPP each",
        })
    }
}
