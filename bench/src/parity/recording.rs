//! The EPP's responses in a file: for each run one line about it, then one line for each case.

use super::case::{Answer, Case};
use super::setup::{self, Comparison, Setup};
use anyhow::{Context, Result, ensure};
use endpoint_picker::epp_rules::EppRules;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// The EPP's responses to the cases of one run of a setup.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// How it came about.
    pub run: Run,
    /// The cases in their order: a picker remembers.
    pub cases: Vec<(Case, Answer)>,
}

/// The run that was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Version of the EPP; recordings name it in `reference`.
    #[serde(rename = "reference")]
    pub epp: String,
    /// Seed of the cases.
    pub seed: u64,
    /// The configuration, if it was drawn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

/// A case in the file.
#[derive(Serialize, Deserialize)]
struct Line {
    #[serde(flatten)]
    case: Case,
    answer: Answer,
}

impl Run {
    /// The setup as it was when this run was recorded.
    pub fn comparison(&self, setup: &'static Setup, rules: EppRules) -> Result<Comparison> {
        match &self.config {
            Some(config) => Ok(Comparison::with_config(setup, rules, config.clone())),
            None => Comparison::new(setup, rules, self.seed),
        }
    }
}

impl Recording {
    /// Reads a setup's recordings with the EPP of these rules.
    pub fn read_all(setup: &Setup, rules: EppRules) -> Result<Vec<Self>> {
        let path = path(setup, rules);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let mut all: Vec<Self> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let place = || format!("line {} of {}", index + 1, path.display());
            if line.starts_with(r#"{"reference""#) {
                let run = serde_json::from_str(line).with_context(place)?;
                all.push(Self { run, cases: Vec::new() });
            } else {
                let Line { case, answer } = serde_json::from_str(line).with_context(place)?;
                all.last_mut().with_context(place)?.cases.push((case, answer));
            }
        }
        ensure!(!all.is_empty(), "{} has no run", path.display());
        ensure!(all.iter().all(|run| !run.cases.is_empty()), "{}: a run has no cases", path.display());
        Ok(all)
    }

    /// Writes recordings in the place of the old ones.
    pub fn write_all<'a>(
        recordings: impl Iterator<Item = &'a Self>,
        setup: &Setup,
        rules: EppRules,
    ) -> Result<()> {
        let mut text = String::new();
        for Self { run, cases } in recordings {
            text += &serde_json::to_string(run)?;
            text.push('\n');
            for (case, answer) in cases.iter().cloned() {
                text += &serde_json::to_string(&Line { case, answer })?;
                text.push('\n');
            }
        }
        let path = path(setup, rules);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }
}

fn path(setup: &Setup, rules: EppRules) -> PathBuf {
    setup::folder().join("recorded").join(rules.as_str()).join(format!("{}.jsonl", setup.name))
}
