//! Objects and files that are refused.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::sources::problem::{Problem, Problems, Source};

/// Most reasons that are kept of one object; the rest are counted.
const MAX_REASONS: usize = 10;

/// Longest reason, in characters; longer ones are cut. Reasons quote values of the object.
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
pub(super) struct Reasons(BTreeMap<Source, Vec<String>>);

impl Reasons {
    pub(super) fn add<'a>(&mut self, problems: impl IntoIterator<Item = &'a Problem>) {
        for problem in problems {
            self.0
                .entry(problem.origin.source.clone())
                .or_default()
                .push(problem.within_source().to_string());
        }
    }

    /// Each source with its reasons, bounded in number and length.
    pub(super) fn into_bounded(self) -> impl Iterator<Item = (Source, Vec<String>)> {
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
