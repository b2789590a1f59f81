//! The EPP's responses in a file: one line about the run, then one line for each case.

use super::case::{Answer, Case};
use super::setup::{self, Comparison, Setup};
use anyhow::{Context, Result, ensure};
use endpoint_picker::epp_rules::EppRules;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

/// The EPP's responses to the cases of one setup.
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
    /// Reads a setup's recording with the EPP of these rules.
    pub fn read(setup: &Setup, rules: EppRules) -> Result<Self> {
        let path = path(setup, rules);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let mut lines = text.lines();
        let run = serde_json::from_str(lines.next().unwrap_or_default())
            .with_context(|| format!("first line of {}", path.display()))?;
        let case = |(index, line): (usize, &str)| {
            let Line { case, answer } = serde_json::from_str(line)
                .with_context(|| format!("line {} of {}", index + 2, path.display()))?;
            Ok((case, answer))
        };
        let cases: Vec<_> = lines.enumerate().map(case).collect::<Result<_>>()?;
        ensure!(!cases.is_empty(), "{} has no cases", path.display());
        Ok(Self { run, cases })
    }

    /// Writes it in the place of the old one.
    pub fn write(&self, setup: &Setup, rules: EppRules) -> Result<()> {
        let mut text = serde_json::to_string(&self.run)?;
        for (case, answer) in self.cases.iter().cloned() {
            let line = Line { case, answer };
            text.push('\n');
            text += &serde_json::to_string(&line)?;
        }
        text.push('\n');
        let path = path(setup, rules);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))
    }
}

fn path(setup: &Setup, rules: EppRules) -> PathBuf {
    setup::folder().join("recorded").join(rules.as_str()).join(format!("{}.jsonl", setup.name))
}
