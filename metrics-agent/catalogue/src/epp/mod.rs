//! The EPP by version: its types of plugins and how each decides here, and the names that a version has and
//! another has not.

pub mod names;
pub mod types;

use endpoint_picker::epp_rules::EppRules;

/// A release of the EPP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// Published on 2026-08-17.
    V010,
    /// Published on 2026-09-19.
    V011,
}

impl Release {
    /// All of them, in their order.
    pub const ALL: [Self; 2] = [Self::V010, Self::V011];

    /// The release by whose schema documents are read under these rules; `None`: by those of all.
    pub fn of(rules: EppRules) -> Option<Self> {
        match rules {
            EppRules::V010 => Some(Self::V010),
            EppRules::V011 => Some(Self::V011),
            EppRules::Own | EppRules::Ebab68792 => None,
        }
    }

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V010 => "v0.10",
            Self::V011 => "v0.11",
        }
    }
}
