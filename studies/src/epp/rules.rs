//! The rules that a variant runs.

use anyhow::Result;
use endpoint_picker_bench::manifests::Manifests;
use endpoint_picker_bench::parity::setup;
use endpoint_picker_harness::shipped::rules::recommended;
use endpoint_picker_harness::tools;

/// A file with an `EndpointPickerConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// One of `bench/parity/configs`, by its name.
    Parity(&'static str),
    /// The recommended configuration, `expected-latency`, or one of its switches, or one of
    /// `tests/simulation/rules`, by its name.
    Example(&'static str),
    /// One of `studies/src/prefixes/rules`, by its name.
    Prefixes(&'static str),
    /// This text.
    Text(&'static str),
}

/// The configurations that can be compared.
pub(crate) const EXAMPLES: [&str; 9] = [
    "default",
    "expected-latency",
    "optimized-baseline",
    "lmetric",
    "token-aware",
    "lora",
    "flow-control-epp",
    "flow-control",
    "latency-limits",
];

impl Rules {
    /// The EPP's default rules.
    pub(crate) const DEFAULT: Self = Self::Example(EXAMPLES[0]);

    /// Whether our side gets the file. Without one it has the EPP's default rules.
    pub(super) fn has_config(self) -> bool {
        self != Self::Parity("default")
    }

    pub(crate) fn read(self) -> Result<Manifests> {
        let (folder, name) = match self {
            Self::Example("expected-latency") => return Manifests::parse(&recommended(&[])?),
            Self::Example(name @ ("flow-control" | "latency-limits")) => {
                return Manifests::parse(&recommended(&[name])?);
            }
            Self::Text(text) => return Manifests::parse(text),
            Self::Parity(name) => (setup::configs(), name),
            Self::Example(name) => (tools::root().join("tests/simulation/rules"), name),
            Self::Prefixes(name) => (tools::root().join("studies/src/prefixes/rules"), name),
        };
        Manifests::read(&folder.join(format!("{name}.yaml")))
    }
}
