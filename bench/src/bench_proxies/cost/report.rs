//! The figures of [`cost`](mod@super) as a table.

use super::{ARRANGEMENTS, CostSample, PER_SECOND, PROXIES, Prompts};
use crate::bench_proxies::arrangement::Arrangement;
use crate::report::markdown::{met, table};
use crate::report::{median, rounded};
use std::fmt;

/// Most processor time of the proxies beside proxies that do not share.
const MOST_OF_APART: f64 = 1.1;
/// Most cores for an agent.
const MOST_CORES: f64 = 0.3;
/// Most megabytes that the store receives each second.
const MOST_MEGABYTES: f64 = 4.0;

/// All samples.
pub(crate) struct CostTable<'a>(pub(crate) &'a [CostSample]);

impl CostTable<'_> {
    fn of(&self, arrangement: Arrangement, prompts: Prompts, figure: fn(&CostSample) -> f64) -> Vec<f64> {
        let samples = self.0.iter();
        let samples = samples.filter(|sample| sample.arrangement == arrangement && sample.prompts == prompts);
        samples.map(figure).collect()
    }

    fn row(&self, prompts: Prompts, arrangement: Arrangement) -> [String; 9] {
        let figure = |figure| median(self.of(arrangement, prompts, figure));
        let apart = self.of(Arrangement::Apart, prompts, CostSample::envoy_micros);
        let own = self.of(arrangement, prompts, CostSample::envoy_micros);
        let mut ratios: Vec<f64> = own.iter().zip(apart).map(|(own, apart)| own / apart).collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let range = [ratios.first(), ratios.last()].map(|ratio| rounded(ratio.copied().unwrap_or(f64::NAN)));
        let more = median(ratios);
        let is_sharing = arrangement != Arrangement::Apart;
        let has_store = arrangement == Arrangement::Store;
        let beside = format!("× {} ({} to {})", rounded(more), range[0], range[1]);
        let cores = figure(CostSample::agent_cores);
        let megabytes = figure(CostSample::megabytes);
        let bytes = figure(|sample| sample.stored as f64 / sample.requests as f64);
        let is_met = more <= MOST_OF_APART && cores <= MOST_CORES && megabytes <= MOST_MEGABYTES;
        let if_sharing = |text: String| if is_sharing { text } else { String::new() };
        let if_store = |text: String| if has_store { text } else { String::new() };
        [
            format!("{prompts}, {arrangement}"),
            rounded(figure(CostSample::per_second)),
            rounded(figure(CostSample::envoy_micros)),
            if_sharing(beside),
            rounded(cores),
            if_store(rounded(megabytes)),
            if_store(rounded(bytes)),
            if_store(rounded(figure(CostSample::store_cores))),
            if_sharing(met(is_met).to_owned()),
        ]
    }
}

impl fmt::Display for CostTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{PROXIES} proxies, {PER_SECOND} requests/s of 2 KB to each. Aims: processor time of Envoy at most × {MOST_OF_APART} of proxies that do not share, \
             at most {MOST_CORES} cores for an agent, at most {MOST_MEGABYTES} MB/s to the store:\n"
        )?;
        let head = [
            "",
            "requests/s",
            "µs of Envoy for a request",
            "beside not sharing (range)",
            "cores for each agent",
            "MB/s to the store",
            "bytes for a request",
            "cores for the store",
            "",
        ];
        let rows = Prompts::ALL
            .into_iter()
            .flat_map(|prompts| ARRANGEMENTS.map(|arrangement| self.row(prompts, arrangement)));
        table(f, &head, rows)?;
        let failed: u64 = self.0.iter().map(|sample| sample.failed).sum();
        writeln!(f, "Requests that failed: {failed}.\n")
    }
}
