//! The table at the end of a run.

use super::servable::{FaultLog, Unservable};
use crate::load::{Failure, Phases};
use crate::report::{median, rounded};
use std::collections::BTreeMap;
use std::time::Duration;

/// The full rules should be back within this time.
const RECOVERY_AIM: Duration = Duration::from_secs(2);
/// All proxies should agree again within this time.
const AGREEMENT_AIM: Duration = Duration::from_secs(10);
/// Lost requests that are shown.
const SHOWN: usize = 20;

/// The results for each kind of fault.
#[derive(Debug, Default)]
pub(crate) struct ChaosTable {
    rows: BTreeMap<&'static str, Row>,
    lost: Vec<(&'static str, Failure)>,
}

#[derive(Debug, Default)]
struct Row {
    recoveries: Vec<Duration>,
    agreements: Vec<Duration>,
    sent: usize,
    served: usize,
    unservable: BTreeMap<Unservable, usize>,
    lost: usize,
}

impl ChaosTable {
    /// Adds the time from the end of a fault until the full rules were back.
    pub(crate) fn add_recovery(&mut self, fault: &'static str, took: Duration) {
        self.rows.entry(fault).or_default().recoveries.push(took);
    }

    /// Adds the time from the recovery until all proxies agreed again.
    pub(crate) fn add_agreement(&mut self, fault: &'static str, took: Duration) {
        self.rows.entry(fault).or_default().agreements.push(took);
    }

    /// Adds the requests of the load; returns the number of lost ones.
    pub(crate) fn add_phases(&mut self, phases: Phases, faults: &FaultLog) -> usize {
        for (name, phase) in phases {
            let row = self.rows.entry(name).or_default();
            row.sent += phase.sent;
            row.served += phase.served;
            for failure in phase.failures {
                if let Some(reason) = faults.unservable(&failure) {
                    *row.unservable.entry(reason).or_default() += 1;
                } else {
                    row.lost += 1;
                    self.lost.push((name, failure));
                }
            }
        }
        self.lost.len()
    }

    /// The longest recovery or agreement.
    pub(crate) fn slowest(&self) -> Duration {
        let rows = self.rows.values();
        rows.flat_map(|row| row.recoveries.iter().chain(&row.agreements)).max().copied().unwrap_or_default()
    }

    /// Recoveries and agreements that took too long.
    pub(crate) fn late(&self) -> usize {
        let late = |times: &[Duration], aim| times.iter().filter(|took| **took > aim).count();
        let rows = self.rows.values();
        rows.map(|row| late(&row.recoveries, RECOVERY_AIM) + late(&row.agreements, AGREEMENT_AIM)).sum()
    }

    pub(crate) fn print(&self) {
        println!(
            "| Fault | Times | Sent | Served | Not servable | Lost | Full rules after, ms: median, most | Agreed after, ms |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        let mut total = Row::default();
        for (name, row) in &self.rows {
            row.print(name);
            total.add(row);
        }
        total.print("**all**");
        for (name, failure) in self.lost.iter().take(SHOWN) {
            let took = failure.ended - failure.sent;
            println!("lost during \"{name}\": request {} after {took:?}: {}", failure.id, failure.kind);
        }
    }
}

impl Row {
    fn add(&mut self, other: &Self) {
        self.recoveries.extend(&other.recoveries);
        self.agreements.extend(&other.agreements);
        self.sent += other.sent;
        self.served += other.served;
        self.lost += other.lost;
        for (reason, count) in &other.unservable {
            *self.unservable.entry(*reason).or_default() += count;
        }
    }

    fn print(&self, name: &str) {
        let Self { recoveries, agreements, sent, served, unservable, lost } = self;
        let unservable: Vec<_> =
            unservable.iter().map(|(reason, count)| format!("{count}: {}", reason.text())).collect();
        let (times, unservable) = (recoveries.len(), unservable.join("; "));
        let [recovery, agreement] = [recoveries, agreements].map(|times| millis(times));
        println!(
            "| {name} | {times} | {sent} | {served} | {unservable} | {lost} | {recovery} | {agreement} |"
        );
    }
}

/// The median and the longest.
fn millis(times: &[Duration]) -> String {
    let millis: Vec<f64> = times.iter().map(|took| took.as_secs_f64() * 1e3).collect();
    let most = times.iter().max();
    let most = most.map(|most| rounded(most.as_secs_f64() * 1e3));
    most.map_or_else(String::new, |most| format!("{}, {most}", rounded(median(millis))))
}
