//! The ways to choose.

use crate::epp::rules::{EXAMPLES, Rules};
use crate::epp::variant::Variant;
use anyhow::bail;
use endpoint_picker_harness::Filter;
use std::fmt;
use std::str::FromStr;

/// A way to choose a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The native module with one of the configurations, by its name.
    Example(&'static str),
    /// Envoy alone.
    RoundRobin,
    /// The client names the server, which it chooses by the true state of all servers.
    Omniscient,
    /// The EPP with its default configuration.
    Epp,
}

impl Way {
    /// The EPP's default rules in the native module.
    pub(crate) const DEFAULT: Self = Self::Example(EXAMPLES[0]);
    /// The recommended configuration.
    pub(crate) const EXPECTED_LATENCY: Self = Self::Example(EXAMPLES[1]);

    /// The proxy of this way.
    pub(crate) fn variant(self) -> Variant {
        match self {
            Self::Example(_) => Variant::Filter(Filter::Native),
            Self::RoundRobin => Variant::NoPicker,
            Self::Omniscient => Variant::NamedByClient,
            Self::Epp => Variant::Epp,
        }
    }

    /// The rules of its picker, if it has one.
    pub(crate) fn rules(self) -> Rules {
        Rules::Example(if let Self::Example(name) = self { name } else { EXAMPLES[0] })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Example(name) => name,
            Self::RoundRobin => "round-robin",
            Self::Omniscient => "omniscient",
            Self::Epp => "epp",
        })
    }
}

impl FromStr for Way {
    type Err = anyhow::Error;

    fn from_str(name: &str) -> anyhow::Result<Self> {
        let ways =
            EXAMPLES.map(Self::Example).into_iter().chain([Self::RoundRobin, Self::Omniscient, Self::Epp]);
        match ways.clone().find(|way| way.to_string() == name) {
            Some(way) => Ok(way),
            None => bail!(
                "no such way to choose; there are {}",
                ways.map(|way| way.to_string()).collect::<Vec<_>>().join(", ")
            ),
        }
    }
}
