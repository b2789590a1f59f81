//! The lines of a check.

use core::fmt::{self, Write};

use crate::catalogue::Plan;
use crate::commands::check;
use crate::commands::columns::{counted, printable};

/// The lines of a check, and whether everything is right.
#[derive(Debug, Default)]
pub struct Report {
    lines: String,
    problems: usize,
}

impl Report {
    /// Whether nothing is refused, and every policy is in force.
    pub fn is_ok(&self) -> bool {
        self.problems == 0
    }

    pub(super) fn add_plan(&mut self, plan: &Plan) {
        let (objects, pools) = (counted(plan.documents, "object"), counted(plan.pools.len(), "pool"));
        self.line(format_args!("valid: {objects}; in force: {pools}"));
        check::add(&mut self.lines, plan);
    }

    /// A line about what is as it should be.
    pub(super) fn line(&mut self, text: impl fmt::Display) {
        // Texts have values of the cluster's objects.
        let _ = writeln!(self.lines, "{}", printable(&text.to_string()));
    }

    /// A line below the last one.
    pub(super) fn detail(&mut self, text: impl fmt::Display) {
        self.line(format_args!("  {text}"));
    }

    /// A problem with its reasons.
    pub(super) fn problem(&mut self, what: &str, reasons: impl Iterator<Item = impl fmt::Display>) {
        self.problems += 1;
        self.line(what);
        for reason in reasons {
            self.detail(reason);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines)?;
        match self.problems {
            0 => writeln!(f, "no problems"),
            problems => writeln!(f, "{}", counted(problems, "problem")),
        }
    }
}
