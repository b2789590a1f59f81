//! The findings of an examination, and their text.

use core::fmt;
use std::collections::BTreeMap;

use metrics_agent_status::columns::{counted, printable};

/// The maximum of places that are listed for one finding.
const MAX_PLACES: usize = 3;

/// A mistake in a running Envoy or its agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How much it costs.
    pub severity: Severity,
    /// The mistake and its effect.
    pub problem: String,
    /// Where in Envoy's configuration, or at the agent.
    pub place: String,
    /// The change that mends it.
    pub fix: String,
}

/// How much a mistake costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Requests are lost, are not picked, or clients choose their server.
    Error,
    /// Requests are picked; some cost more or fail where they need not.
    Warning,
}

/// The result of an examination.
#[derive(Debug, Default)]
pub struct Report {
    /// Lines about Envoy and the agent.
    subject: Vec<String>,
    /// Findings, the worst first, each with all its places.
    findings: BTreeMap<(Severity, usize), (Finding, Vec<String>)>,
    /// The checks that found nothing.
    passed: Vec<&'static str>,
}

impl Finding {
    /// A mistake that costs requests or picks.
    pub fn error(place: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Error, problem: problem.into(), place: place.into(), fix: fix.into() }
    }

    /// A mistake that costs less.
    pub fn warning(place: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(place, problem, fix) }
    }
}

impl Report {
    /// A report that begins with these lines.
    pub fn new(subject: Vec<String>) -> Self {
        Self { subject, ..Self::default() }
    }

    /// Whether nothing was found.
    pub fn is_ok(&self) -> bool {
        self.findings.is_empty()
    }

    /// The findings, the worst first. Of equal findings at several places only the first is among them.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.values().map(|(finding, _)| finding)
    }

    /// The checks that found nothing.
    pub fn passed(&self) -> &[&'static str] {
        &self.passed
    }

    /// Adds the result of a check.
    pub fn add(&mut self, check: &'static str, findings: Vec<Finding>) {
        if findings.is_empty() {
            self.passed.push(check);
        }
        for finding in findings {
            let is_equal = |(other, _): &&mut (Finding, Vec<String>)| {
                (&other.problem, &other.fix) == (&finding.problem, &finding.fix)
            };
            if let Some((_, places)) = self.findings.values_mut().find(is_equal) {
                if !places.contains(&finding.place) {
                    places.push(finding.place);
                }
            } else {
                let key = (finding.severity, self.findings.len());
                let places = vec![finding.place.clone()];
                self.findings.insert(key, (finding, places));
            }
        }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Texts have names of Envoy's configuration, which comes from outside.
        for line in &self.subject {
            writeln!(f, "{}", printable(line))?;
        }
        for (finding, places) in self.findings.values() {
            writeln!(f, "{:7}  {}", finding.severity, printable(&finding.problem))?;
            for place in places.iter().take(MAX_PLACES) {
                writeln!(f, "         at:  {}", printable(place))?;
            }
            if places.len() > MAX_PLACES {
                writeln!(f, "         and at {}", counted(places.len() - MAX_PLACES, "other place"))?;
            }
            writeln!(f, "         fix: {}", printable(&finding.fix))?;
        }
        for check in &self.passed {
            writeln!(f, "ok       {check}")?;
        }
        let count = |severity| self.findings.keys().filter(|(other, _)| *other == severity).count();
        match (count(Severity::Error), count(Severity::Warning)) {
            (0, 0) => writeln!(f, "no mistakes found"),
            (errors, 0) => writeln!(f, "{}", counted(errors, "error")),
            (0, warnings) => writeln!(f, "{}", counted(warnings, "warning")),
            (errors, warnings) => {
                writeln!(f, "{}, {}", counted(errors, "error"), counted(warnings, "warning"))
            }
        }
    }
}
