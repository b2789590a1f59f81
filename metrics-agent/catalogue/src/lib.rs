//! Which pools there are, which endpoints belong to each, and how their endpoints are scraped and picked.
//!
//! [`manifests`] checks every document by itself, [`plan`] combines them into a [`Plan`]. A plan is used only
//! when everything is right; [`Problems`] lists everything that is wrong, each with its file, document, path,
//! value and the allowed values. [`watch`] reads the manifests again whenever a file changes. [`cluster`]
//! makes the same plan of a cluster's objects, each of which is refused by itself. [`differences`] lists what
//! changes for a user of the EPP, and [`epp`] has its types and names by version.

pub mod cluster;
pub mod dialect;
pub mod differences;
pub mod epp;
pub mod grpc;
mod manifests;
pub mod plan;
pub mod scraping;
pub mod watch;

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_wire::{NamedRules, epp_rules_from_core, v1};
use metrics_agent_sources::manifests::{Problem, Problems, Source};
pub use plan::{Plan, PoolPlan};

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
    /// The rules that decide where ours differ from the EPP's, and its versions from each other, for pools
    /// without an annotation.
    pub epp_rules: EppRules,
    /// The rules of pools without an `EndpointPickerConfig`; `None`: the recommended ones, and the EPP's
    /// default where a version of the EPP decides.
    pub rules: Option<NamedRules>,
}

impl Options {
    /// The part of every pool's policy that comes from flags.
    fn policy(&self) -> v1::Policy {
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        v1::Policy {
            emit_endpoint_scores: self.emit_endpoint_scores,
            neutral_score_after_ms: self.neutral_score_after.map(milliseconds),
            avoid_failing_ms: milliseconds(self.avoid_failing),
            picker_config: self.picker_config(self.epp_rules),
            epp_rules: epp_rules_from_core(self.epp_rules).into(),
            ..v1::Policy::default()
        }
    }

    /// The configuration of a pool without an `EndpointPickerConfig`.
    fn picker_config(&self, epp_rules: EppRules) -> Option<v1::PickerConfig> {
        let default = if epp_rules.is_own() { NamedRules::default() } else { NamedRules::Epp };
        self.rules.unwrap_or(default).picker_config()
    }
}

/// Maximum number of reasons that are kept of one object; the rest are counted.
const MAX_REASONS: usize = 10;

/// Maximum length of a reason, in characters; longer ones are cut. Reasons quote values of the object.
const MAX_REASON_CHARS: usize = 400;

/// The refused objects and files of a moment, ordered by their source.
pub type Refusals = Arc<[Refusal]>;

/// An object or a file whose present version is not in force, wholly or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The object, the key of a `ConfigMap`, or the file.
    pub source: Source,
    /// The object's `metadata.uid`; `None` for files.
    pub uid: Option<String>,
    /// The object's `metadata.generation`.
    pub generation: Option<i64>,
    /// At least one, each with the path of its value.
    pub reasons: Vec<String>,
    /// Whether an earlier version is in force instead.
    pub earlier_in_force: bool,
}

impl Refusal {
    /// The refusals of files: one for each file with a problem.
    pub fn of_files(problems: &Problems, earlier_in_force: bool) -> impl Iterator<Item = Self> {
        let mut reasons = Reasons::default();
        reasons.add(&problems.0);
        reasons.into_bounded().map(move |(source, reasons)| Self {
            source,
            uid: None,
            generation: None,
            reasons,
            earlier_in_force,
        })
    }
}

/// The reasons, and what is in force instead.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reasons.join("; "))?;
        if self.earlier_in_force { f.write_str("; its last valid version stays in force") } else { Ok(()) }
    }
}

/// The reasons of each source.
#[derive(Debug, Default)]
struct Reasons(BTreeMap<Source, Vec<String>>);

impl Reasons {
    fn add<'a>(&mut self, problems: impl IntoIterator<Item = &'a Problem>) {
        for problem in problems {
            self.0
                .entry(problem.origin.source.clone())
                .or_default()
                .push(problem.within_source().to_string());
        }
    }

    /// Each source with its reasons, bounded in number and length.
    fn into_bounded(self) -> impl Iterator<Item = (Source, Vec<String>)> {
        self.0.into_iter().map(|(source, mut reasons)| {
            let more = reasons.len().saturating_sub(MAX_REASONS);
            reasons.truncate(MAX_REASONS);
            for reason in &mut reasons {
                if let Some((end, _)) = reason.char_indices().nth(MAX_REASON_CHARS) {
                    reason.truncate(end);
                    reason.push('…');
                }
            }
            if more > 0 {
                reasons.push(format!("and {more} more"));
            }
            (source, reasons)
        })
    }
}
