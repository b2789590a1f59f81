//! The rules that a variant runs.

use anyhow::Result;
use endpoint_picker_bench::manifests::Manifests;
use endpoint_picker_bench::parity::setup;
use endpoint_picker_harness::tools;
use std::path::PathBuf;

/// A file with an `EndpointPickerConfig`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// One of `bench/parity/configs`, by its name.
    Parity(&'static str),
    /// One of `examples/choosing`, by its name.
    Example(&'static str),
    /// One of `studies/src/prefixes/rules`, by its name.
    Prefixes(&'static str),
}

/// The configurations of `examples/choosing` that can be compared.
pub(crate) const EXAMPLES: [&str; 9] = [
    "default",
    "expected-latency",
    "lmetric",
    "token-aware",
    "lora",
    "session",
    "flow-control",
    "expected-latency-flow-control",
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
        Manifests::read(&self.path())
    }

    fn path(self) -> PathBuf {
        let (folder, name) = match self {
            Self::Parity(name) => (setup::configs(), name),
            Self::Example(name) => (tools::root().join("examples/choosing"), name),
            Self::Prefixes(name) => (tools::root().join("studies/src/prefixes/rules"), name),
        };
        folder.join(format!("{name}.yaml"))
    }
}
