//! Rules that have a name, for pools without an `EndpointPickerConfig`.

use crate::v1;

/// The rules of a pool without an `EndpointPickerConfig`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamedRules {
    /// The recommended rules: `examples/choosing/expected-latency.yaml`.
    #[default]
    ExpectedLatency,
    /// The EPP's default.
    Epp,
}

impl NamedRules {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::ExpectedLatency, Self::Epp];

    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ExpectedLatency => "expected-latency",
            Self::Epp => "epp",
        }
    }

    /// The rules of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rules| rules.as_str() == name)
    }

    /// The configuration as a policy has it. `None`: the configuration of a policy without one.
    pub fn picker_config(self) -> Option<v1::PickerConfig> {
        match self {
            Self::ExpectedLatency => Some(expected_latency()),
            Self::Epp => None,
        }
    }
}

/// The file of these rules, as the agent reads it; a test of the agent compares both.
fn expected_latency() -> v1::PickerConfig {
    const SCORER: &str = "expected-latency-scorer";
    let plugin = |name: &str, parameters: &str| v1::Plugin {
        name: name.to_owned(),
        r#type: name.to_owned(),
        parameters: parameters.to_owned(),
    };
    let scorer = v1::PluginRef { name: SCORER.to_owned(), weight: None };
    v1::PickerConfig {
        plugins: vec![
            plugin(SCORER, "{}"),
            plugin("approx-prefix-cache-producer", r#"{"capacityInTokens":true}"#),
        ],
        profiles: vec![v1::Profile { name: "default".to_owned(), plugins: vec![scorer] }],
        ..v1::PickerConfig::default()
    }
}
