//! The figures of [`cost`](mod@super::cost) as tables.

use super::cost::CostSample;
use super::cost_cells::{CELLS, CostCell, KB, Traffic};
use super::variant::Variant;
use endpoint_picker_bench::report::markdown::{met, table};
use endpoint_picker_bench::report::{median, rounded};
use std::fmt;

/// Bounds of our whole cost, Envoy's included, divided by the EPP's.
const MAX_AT_1_KB: f64 = 1.0 / 5.0;
const MAX_STREAMED_OR_IDLE: f64 = 1.0 / 10.0;
/// Bounds of what the native module adds, divided by what the EPP adds: processor time of 1 KB, and the
/// median's time.
const MAX_ADDED_CPU: f64 = 1.0 / 25.0;
const MAX_ADDED_TIME: f64 = 1.0 / 20.0;

/// All samples.
pub(crate) struct CostTables<'a>(pub(crate) &'a [CostSample]);

impl CostTables<'_> {
    fn median(&self, cell: CostCell, variant: Variant, figure: impl Fn(&CostSample) -> f64) -> f64 {
        let samples = self.0.iter().filter(|sample| sample.cell == cell && sample.variant == variant);
        median(samples.map(figure).collect())
    }

    /// In the order of [`Variant::ALL`].
    pub(crate) fn of_all(&self, cell: CostCell, figure: impl Fn(&CostSample) -> f64) -> [f64; 4] {
        Variant::ALL.map(|variant| self.median(cell, variant, &figure))
    }

    fn saturated(&self, cell: CostCell) -> [String; 14] {
        let rates = self.of_all(cell, CostSample::per_second);
        let cpu = self.of_all(cell, CostSample::cpu_of_request);
        let [no_picker, wasm, native, epp] = cpu;
        let is_streamed = matches!(cell.traffic, Traffic::Streamed | Traffic::Paced);
        let is_small = cell.traffic == Traffic::Chat(KB);
        let most = if is_streamed { Some(MAX_STREAMED_OR_IDLE) } else { is_small.then_some(MAX_AT_1_KB) };
        let added = |ours: f64| (ours - no_picker) / (epp - no_picker);
        let [rate_no_picker, rate_wasm, rate_native, rate_epp] = rates.map(rounded);
        let [cpu_no_picker, cpu_wasm, cpu_native, cpu_epp] = cpu.map(rounded);
        [
            cell.to_string(),
            rate_no_picker,
            rate_wasm,
            rate_native,
            rate_epp,
            cpu_no_picker,
            cpu_wasm,
            cpu_native,
            cpu_epp,
            rounded(wasm / epp),
            bound(wasm / epp, most),
            rounded(added(wasm)),
            rounded(added(native)),
            bound(added(native), is_small.then_some(MAX_ADDED_CPU)),
        ]
    }

    fn steady(&self, cell: CostCell) -> [String; 11] {
        let medians = self.of_all(cell, |sample| sample.p50.as_secs_f64() * 1e6);
        let tails = self.of_all(cell, |sample| sample.p99.as_secs_f64() * 1e6);
        let added = |[no_picker, pickers @ ..]: [f64; 4]| pickers.map(|picker| picker - no_picker);
        let [wasm, native, epp] = added(medians);
        let [wasm_tail, native_tail, epp_tail] = added(tails);
        [
            cell.to_string(),
            format!("{}, {}", rounded(medians[0]), rounded(tails[0])),
            rounded(wasm),
            rounded(native),
            rounded(epp),
            rounded(wasm / epp),
            rounded(native / epp),
            bound(native / epp, Some(MAX_ADDED_TIME)),
            rounded(wasm_tail),
            rounded(native_tail),
            rounded(epp_tail),
        ]
    }

    fn idle(&self, cell: CostCell) -> [String; 11] {
        let cores = self.of_all(cell, CostSample::cores);
        let [_, scrapes @ ..] = self.of_all(cell, CostSample::scrapes_per_second);
        let [_, scrape @ ..] = self.of_all(cell, CostSample::cpu_per_scrape);
        let [_, _, native, epp] = cores;
        let [no_picker_cores, wasm_cores, native_cores, epp_cores] = cores.map(rounded);
        let [wasm_scrape, native_scrape, epp_scrape] = scrape.map(rounded);
        [
            cell.to_string(),
            no_picker_cores,
            wasm_cores,
            native_cores,
            epp_cores,
            bound(native / epp, Some(MAX_STREAMED_OR_IDLE)),
            scrapes.map(|scrapes| format!("{scrapes:.0}")).join(", "),
            wasm_scrape,
            native_scrape,
            epp_scrape,
            bound(scrape[1] / scrape[2], Some(MAX_STREAMED_OR_IDLE)),
        ]
    }
}

/// The bound of a ratio, if it has one, and whether it is met.
fn bound(ratio: f64, most: Option<f64>) -> String {
    most.map_or_else(String::new, |most| format!("≤ {most}: {}", met(ratio <= most)))
}

impl fmt::Display for CostTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cells = || CELLS.iter().copied().flatten().copied();
        let is_idle = |cell: &CostCell| matches!(cell.traffic, Traffic::None | Traffic::NoneLongMetrics);
        writeln!(
            f,
            "As many requests as possible; processor microseconds of proxy and picker for a request:\n"
        )?;
        let head = [
            "",
            "no picker: req/s",
            "wasm",
            "native",
            "EPP",
            "no picker: CPU µs",
            "wasm",
            "native",
            "EPP",
            "wasm / EPP",
            "aim",
            "of the pickers alone: wasm / EPP",
            "native / EPP",
            "aim for native",
        ];
        let saturated = cells().filter(|cell| cell.rate.is_none() && !is_idle(cell));
        table(f, &head, saturated.map(|cell| self.saturated(cell)))?;

        writeln!(f, "At a fixed rate, microseconds that the pickers add to the request without a picker:\n")?;
        let head = [
            "",
            "no picker: p50, p99",
            "wasm: + p50",
            "native",
            "EPP",
            "wasm / EPP",
            "native / EPP",
            "aim for native",
            "wasm: + p99",
            "native",
            "EPP",
        ];
        table(f, &head, cells().filter(|cell| cell.rate.is_some()).map(|cell| self.steady(cell)))?;

        writeln!(
            f,
            "Without requests, cores in use. Each endpoint should be scraped every 50 ms, 2 000 scrapes/s in all. A picker that"
        )?;
        writeln!(f, "does fewer is too slow; the cost of a scrape shows by how much:\n")?;
        let head = [
            "",
            "no picker",
            "wasm",
            "native",
            "EPP",
            "native / EPP",
            "scrapes/s of wasm, native, EPP",
            "CPU µs per scrape, wasm",
            "native",
            "EPP",
            "native / EPP",
        ];
        table(f, &head, cells().filter(is_idle).map(|cell| self.idle(cell)))?;

        let of = |variant| {
            let samples = self.0.iter().filter(|sample| sample.variant == variant);
            format!("{variant} {}", samples.map(|sample| sample.failed).sum::<u64>())
        };
        writeln!(f, "Requests that failed: {}.\n", Variant::ALL.map(of).join(", "))
    }
}
