//! The table at the end.

use super::judge::{Excuse, Judge};
use crate::bench::{median, rounded};
use crate::traffic::{Failure, Tally};
use std::collections::BTreeMap;
use std::time::Duration;

/// The full rules should be back within this time.
const RECOVERY_AIM: Duration = Duration::from_secs(2);
/// Lost requests that are shown.
const SHOWN: usize = 20;

/// What is known of each kind of fault.
#[derive(Debug, Default)]
pub(super) struct Report {
    rows: BTreeMap<&'static str, Row>,
    lost: Vec<(&'static str, Failure)>,
}

#[derive(Debug, Default)]
struct Row {
    recoveries: Vec<Duration>,
    sent: usize,
    served: usize,
    excused: BTreeMap<Excuse, usize>,
    lost: usize,
}

impl Report {
    /// A fault of this name is over, and so long after its end the full rules were back.
    pub(super) fn recovered(&mut self, fault: &'static str, took: Duration) {
        self.rows.entry(fault).or_default().recoveries.push(took);
    }

    /// Judges what happened to the load; gives the number of lost requests.
    pub(super) fn add(&mut self, tally: Tally, judge: &Judge) -> usize {
        for (name, phase) in tally {
            let row = self.rows.entry(name).or_default();
            row.sent += phase.sent;
            row.served += phase.served;
            for failure in phase.failures {
                if let Some(excuse) = judge.excuse(&failure) {
                    *row.excused.entry(excuse).or_default() += 1;
                } else {
                    row.lost += 1;
                    self.lost.push((name, failure));
                }
            }
        }
        self.lost.len()
    }

    /// The longest recovery.
    pub(super) fn slowest(&self) -> Duration {
        self.rows.values().flat_map(|row| &row.recoveries).max().copied().unwrap_or_default()
    }

    /// Recoveries that took too long.
    pub(super) fn late(&self) -> usize {
        self.rows.values().flat_map(|row| &row.recoveries).filter(|took| **took > RECOVERY_AIM).count()
    }

    pub(super) fn print(&self) {
        println!(
            "| Fault | Times | Sent | Served | Not servable | Lost | Full rules after, ms: median, most |"
        );
        println!("|---|---|---|---|---|---|---|");
        let mut total = Row::default();
        for (name, row) in &self.rows {
            row.print(name);
            total.add(row);
        }
        total.print("**all**");
        for (name, failure) in self.lost.iter().take(SHOWN) {
            let took = failure.ended - failure.sent;
            println!("lost during \"{name}\": request {} after {took:?}: {}", failure.id, failure.trouble);
        }
    }
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.recoveries.extend(&other.recoveries);
        self.sent += other.sent;
        self.served += other.served;
        self.lost += other.lost;
        for (excuse, count) in &other.excused {
            *self.excused.entry(*excuse).or_default() += count;
        }
    }

    fn print(&self, name: &str) {
        let Self { recoveries, sent, served, excused, lost } = self;
        let millis: Vec<f64> = recoveries.iter().map(|took| took.as_secs_f64() * 1e3).collect();
        let recovery = recoveries
            .iter()
            .max()
            .map_or_else(String::new, |most| format!("{}, {}", rounded(median(millis)), most.as_millis()));
        let excused: Vec<_> =
            excused.iter().map(|(excuse, count)| format!("{count}: {}", excuse.text())).collect();
        let (times, excused) = (recoveries.len(), excused.join("; "));
        println!("| {name} | {times} | {sent} | {served} | {excused} | {lost} | {recovery} |");
    }
}
