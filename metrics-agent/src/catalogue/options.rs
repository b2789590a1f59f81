//! What the agent's flags say about every pool.

use core::time::Duration;

use endpoint_picker_wire::v1;

use crate::files::FileLimits;

/// How manifests are read, and what every pool's policy has from the agent's flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether plugins that the EPP calls alpha may be used.
    pub allow_experimental_plugins: bool,
    /// The one pool's name when no `InferencePool` is among the manifests.
    pub default_pool: String,
    /// Whether filters behind the picker are told the score of every rated endpoint.
    pub emit_endpoint_scores: bool,
    /// Age of readings from which scorers have no opinion of an endpoint; `None`: as in the EPP.
    pub neutral_score_after: Option<Duration>,
    /// For how long an endpoint is left alone after its first failure; zero: not at all.
    pub avoid_failing: Duration,
    /// How much of each file is read.
    pub file_limits: FileLimits,
}

impl Options {
    /// What the options say of every pool's policy.
    pub(super) fn policy(&self) -> v1::Policy {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        v1::Policy {
            emit_endpoint_scores: self.emit_endpoint_scores,
            neutral_score_after_ms: self.neutral_score_after.map(milliseconds),
            avoid_failing_ms: milliseconds(self.avoid_failing),
            ..v1::Policy::default()
        }
    }
}
