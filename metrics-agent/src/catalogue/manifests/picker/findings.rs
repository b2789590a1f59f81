//! Faults and warnings that are found while a configuration is checked.

use crate::catalogue::manifests::fault::{Fault, Faults};

/// All faults and warnings so far.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) faults: Faults,
    pub(super) warnings: Vec<Fault>,
}

impl Findings {
    pub(super) fn fault(&mut self, at: impl Into<String>, text: impl Into<String>) {
        self.faults.push(at, text);
    }

    pub(super) fn warn(&mut self, at: impl Into<String>, text: impl Into<String>) {
        self.warnings.push(Fault::new(at, text));
    }
}
