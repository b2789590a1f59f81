//! A decision as the filter acts on it.

use endpoint_picker::decision::{Outcome, PromptBlocks};

use crate::labels::Labels;
use crate::pick::Pick;

/// What kind of decision it is.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) has_body: bool,
    /// Whether somebody is told why.
    pub(crate) explains: bool,
}

/// Envoy's `header_to_metadata` passes over values of 8 KiB and more.
pub(crate) const LONGEST_EXPLANATION: usize = 8191;

/// A decision as the filter acts on it.
pub(crate) struct Verdict {
    pub(crate) act: Act,
    /// Why, if that was asked.
    pub(crate) explanation: Option<String>,
    /// Whether the shadow would have done the same, if there is one.
    pub(crate) shadow_agrees: Option<bool>,
    /// Whose tokens those of the answer are, if they are counted.
    pub(crate) models: Option<Labels>,
}

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Self {
        Self { act: Act::Other(outcome), explanation: None, shadow_agrees: None, models: None }
    }
}

/// What a decision means for the request.
pub(crate) enum Act {
    /// Set these headers, and those on the answer; the load is to be given back.
    Route {
        headers: Vec<(&'static str, String)>,
        answer_headers: Vec<(String, String)>,
        pick: Pick,
        prompt: PromptBlocks,
        /// The agent has been silent for so long that no readings were used.
        is_stale: bool,
    },
    /// Everything else, as decided.
    Other(Outcome),
}
