//! The figures of [`cost`](mod@super::cost) as tables.

use super::cost::CostSample;
use super::cost_cells::{CELLS, CostCell, Traffic};
use super::variant::Variant;
use crate::report::markdown::{met, table};
use crate::report::{median, rounded};
use std::fmt;

/// Bounds of our cost divided by the EPP's.
const MOST_AT_1_KB: f64 = 1.0 / 5.0;
const MOST_STREAMED_OR_IDLE: f64 = 1.0 / 10.0;
const MOST_ADDED: f64 = 1.0 / 10.0;

/// All samples.
pub(crate) struct CostTables<'a>(pub(crate) &'a [CostSample]);

impl CostTables<'_> {
    fn median(&self, cell: CostCell, variant: Variant, figure: impl Fn(&CostSample) -> f64) -> f64 {
        let samples = self.0.iter().filter(|sample| sample.cell == cell && sample.variant == variant);
        median(samples.map(figure).collect())
    }

    fn of_all(&self, cell: CostCell, figure: impl Fn(&CostSample) -> f64) -> [f64; 3] {
        Variant::ALL.map(|variant| self.median(cell, variant, &figure))
    }

    fn saturated(&self, cell: CostCell) -> [String; 10] {
        let rates = self.of_all(cell, CostSample::per_second);
        let [no_picker, filter, epp] = self.of_all(cell, CostSample::cpu_per_1000);
        let most = match cell.traffic {
            Traffic::Streamed | Traffic::Paced => Some(MOST_STREAMED_OR_IDLE),
            Traffic::Chat(1_024) => Some(MOST_AT_1_KB),
            Traffic::Chat(_) | Traffic::None | Traffic::NoneLongMetrics => None,
        };
        let [a, b, c] = rates.map(rounded);
        let [aim, is_met] = bound(filter / epp, most);
        [
            cell.to_string(),
            a,
            b,
            c,
            rounded(no_picker),
            rounded(filter),
            rounded(epp),
            rounded(filter / epp),
            format!("{aim} {is_met}"),
            rounded((filter - no_picker) / (epp - no_picker)),
        ]
    }

    fn steady(&self, cell: CostCell) -> [String; 8] {
        let [no_picker, filter, epp] = self.of_all(cell, |sample| sample.p50.as_secs_f64() * 1e6);
        let [no_picker_99, filter_99, epp_99] = self.of_all(cell, |sample| sample.p99.as_secs_f64() * 1e6);
        let ratio = (filter - no_picker) / (epp - no_picker);
        let [aim, is_met] = bound(ratio, Some(MOST_ADDED));
        [
            cell.to_string(),
            format!("{}, {}", rounded(no_picker), rounded(no_picker_99)),
            rounded(filter - no_picker),
            rounded(epp - no_picker),
            rounded(ratio),
            rounded(filter_99 - no_picker_99),
            rounded(epp_99 - no_picker_99),
            format!("{aim} {is_met}"),
        ]
    }

    fn idle(&self, cell: CostCell) -> [String; 10] {
        let [no_picker, filter, epp] = self.of_all(cell, CostSample::cores);
        let [_, filter_scrapes, epp_scrapes] = self.of_all(cell, CostSample::scrapes_per_second);
        let [_, filter_scrape, epp_scrape] = self.of_all(cell, CostSample::cpu_per_scrape);
        let [cores, scrape] =
            [filter / epp, filter_scrape / epp_scrape].map(|ratio| met(ratio <= MOST_STREAMED_OR_IDLE));
        [
            cell.to_string(),
            rounded(no_picker),
            rounded(filter),
            rounded(epp),
            rounded(filter / epp),
            format!("{filter_scrapes:.0}, {epp_scrapes:.0}"),
            rounded(filter_scrape),
            rounded(epp_scrape),
            rounded(filter_scrape / epp_scrape),
            format!("≤ {MOST_STREAMED_OR_IDLE}: cores {cores}, per scrape {scrape}"),
        ]
    }
}

/// The bound of the ratio, and whether it is met.
fn bound(ratio: f64, most: Option<f64>) -> [String; 2] {
    most.map_or_else(
        || [String::new(), String::new()],
        |most| [format!("≤ {most}:"), met(ratio <= most).to_owned()],
    )
}

impl fmt::Display for CostTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = || CELLS.into_iter().flatten().copied();
        let is_idle = |cell: &CostCell| matches!(cell.traffic, Traffic::None | Traffic::NoneLongMetrics);
        writeln!(f, "As many requests as possible; processor seconds of proxy and picker:\n")?;
        let head = [
            "",
            "A: req/s",
            "B",
            "C",
            "A: CPU s per 1 000",
            "B",
            "C",
            "B / C",
            "aim",
            "of the pickers alone: (B − A) / (C − A)",
        ];
        let saturated = cells().filter(|cell| cell.rate.is_none() && !is_idle(cell));
        table(f, head, saturated.map(|cell| self.saturated(cell)))?;

        writeln!(f, "At a fixed rate, microseconds that B and C add to A:\n")?;
        let head = ["", "A: p50, p99", "B: + p50", "C: + p50", "B / C", "B: + p99", "C: + p99", "aim"];
        table(f, head, cells().filter(|cell| cell.rate.is_some()).map(|cell| self.steady(cell)))?;

        writeln!(
            f,
            "Without requests, cores in use. Each endpoint should be scraped every 50 ms, 2 000 scrapes/s in all. A picker that"
        )?;
        writeln!(f, "does fewer is too slow; the cost of a scrape shows by how much:\n")?;
        let head =
            ["", "A", "B", "C", "B / C", "scrapes/s, B and C", "CPU µs per scrape, B", "C", "B / C", "aim"];
        table(f, head, cells().filter(is_idle).map(|cell| self.idle(cell)))?;

        let failed: u64 = self.0.iter().map(|sample| sample.failed).sum();
        let of = |variant| {
            let samples = self.0.iter().filter(|sample| sample.variant == variant);
            samples.map(|sample| sample.failed).sum::<u64>()
        };
        let [a, b, c] = Variant::ALL.map(of);
        match failed {
            0 => writeln!(f, "No request failed.\n"),
            _ => writeln!(f, "Requests that failed: A {a}, B {b}, C {c}.\n"),
        }
    }
}
