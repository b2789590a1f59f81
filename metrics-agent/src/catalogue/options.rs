//! Options for reading manifests, from the agent's flags.

use core::time::Duration;

use endpoint_picker_wire::v1;

use crate::files::FileLimits;

/// Options for reading manifests, and the part of every pool's policy that comes from flags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether plugins of the EPP's alpha stage are allowed.
    pub allow_experimental_plugins: bool,
    /// The name of the only pool when the manifests have no `InferencePool`.
    pub default_pool: String,
    /// Whether filters after the picker get the score of every rated endpoint.
    pub emit_endpoint_scores: bool,
    /// Age of readings from which scorers give an endpoint a neutral score; `None`: never, as in the EPP.
    pub neutral_score_after: Option<Duration>,
    /// How long an endpoint is avoided after its first failure; zero: not at all.
    pub avoid_failing: Duration,
    /// Limits on files.
    pub file_limits: FileLimits,
}

impl Options {
    /// The part of every pool's policy that comes from flags.
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
