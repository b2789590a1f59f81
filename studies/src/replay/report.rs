//! The predictions next to the measurements, as a table.

use super::{CONFIGURATIONS, ReplayedRun};
use endpoint_picker_bench::report::markdown::table;
use endpoint_picker_bench::report::{median, rounded};
use std::fmt;

/// All runs, in the order of their configurations.
pub(crate) struct ReplayTable(pub(super) Vec<ReplayedRun>);

impl ReplayTable {
    /// The differences of the predictions from the measurements, as parts of these, smallest first, each with
    /// the record and the predicted configuration.
    fn errors(&self) -> Vec<(f64, &str, &str)> {
        let of_run = |run: &ReplayedRun| {
            let name = run.name;
            let others = self.0.iter().zip(run.predicted).filter(move |(other, _)| other.name != name);
            others.map(move |(other, predicted)| ((predicted / other.measured - 1.0).abs(), name, other.name))
        };
        let mut errors: Vec<_> = self.0.iter().flat_map(of_run).collect();
        errors.sort_by(|one, other| one.0.total_cmp(&other.0));
        errors
    }
}

impl fmt::Display for ReplayTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "The p90 to the first token in milliseconds, predicted and measured:\n")?;
        let head = ["Record of", "requests", "recorded picks, replayed"].map(str::to_owned);
        let head: Vec<_> = head.into_iter().chain(CONFIGURATIONS.map(|(name, _)| name.to_owned())).collect();
        let of_run = |run: &ReplayedRun| {
            let trust = if run.is_trusted { "" } else { ": \"cannot be trusted\"" };
            let repeated = format!("{}{trust}", rounded(run.repeated));
            let predicted = CONFIGURATIONS.into_iter().zip(run.predicted).map(|((name, _), predicted)| {
                if name == run.name { String::new() } else { rounded(predicted) }
            });
            let first = [run.name.to_owned(), run.requests.to_string(), repeated];
            first.into_iter().chain(predicted).collect::<Vec<_>>()
        };
        let first = ["**measured**".to_owned(), String::new(), String::new()];
        let measured = first.into_iter().chain(self.0.iter().map(|run| rounded(run.measured)));
        table(f, &head, self.0.iter().map(of_run).chain([measured.collect()]))?;
        let errors = self.errors();
        let percent = |part: f64| part * 100.0;
        let (Some(least), Some(worst)) = (errors.first(), errors.last()) else { return Ok(()) };
        let median = median(errors.iter().map(|error| error.0).collect());
        writeln!(
            f,
            "Errors {:.1} to {:.1} %, {:.1} % in the median; the worst is {} from the record of {}.",
            percent(least.0),
            percent(worst.0),
            percent(median),
            worst.2,
            worst.1,
        )
    }
}

impl fmt::Display for ReplayedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, requests, measured, repeated, .. } = self;
        write!(f, "{name}: {requests} requests, p90 {measured:.1} ms, replayed {repeated:.1} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predictions_are_compared_with_what_the_other_runs_measured() {
        let run = |name, measured, predicted| ReplayedRun {
            name,
            requests: 1,
            measured,
            repeated: measured,
            predicted,
            is_trusted: true,
        };
        let [(one, _), (other, _), ..] = CONFIGURATIONS;
        let runs = [run(one, 100.0, [90.0, 220.0, 0.0, 0.0]), run(other, 200.0, [95.0, 190.0, 0.0, 0.0])];
        let table = ReplayTable(runs.into());
        let rounded = table.errors().into_iter().map(|(error, of, to)| ((error * 100.0).round(), of, to));
        assert_eq!(rounded.collect::<Vec<_>>(), [(5.0, other, one), (10.0, one, other)]);
    }
}
