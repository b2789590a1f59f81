//! The figures of all runs as a table.

use super::FieldSample;
use crate::way::Way;
use endpoint_picker_bench::report::markdown::table;
use endpoint_picker_bench::report::rounded;
use std::fmt;

/// All runs.
pub(crate) struct FieldTable<'a> {
    pub(crate) ways: &'a [Way],
    pub(crate) runs: &'a [FieldSample],
}

impl FieldTable<'_> {
    /// The runs of each client with each workload, which follow each other.
    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.runs.chunks(self.ways.len()).map(|runs| {
            let first = runs.first().map(|run| format!("{}, {}", run.workload, run.client));
            let figures = runs.iter().map(|run| {
                let [p50, p90] = [run.figures.p50, run.figures.p90].map(rounded);
                format!("{p50} / {p90}, {:.0} %", run.cached * 100.0)
            });
            first.into_iter().chain(figures).collect()
        })
    }
}

impl fmt::Display for FieldTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Milliseconds to the first token by the client's own report, p50 / p90, and the share of prompt tokens that the servers had cached:\n"
        )?;
        let head = [String::new()].into_iter().chain(self.ways.iter().map(Way::to_string));
        table(f, &head.collect::<Vec<_>>(), self.rows())?;
        let requests: usize = self.runs.iter().map(|run| run.figures.requests).sum();
        let failed: usize = self.runs.iter().map(|run| run.figures.failed).sum();
        writeln!(f, "{requests} requests were served, {failed} failed.\n")
    }
}
