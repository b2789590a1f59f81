//! The table of the traces, and its bars.

use super::{GENERATED, TraceResults, TraceTable};
use crate::cell::table::{median, summary};
use crate::cell::variant::SIMPLE;
use core::fmt::Write;
use metrics_agent_replay::simulation::figures::Figures;

/// The p90 to the first token, the median over the seeds.
fn p90(figures: &[Figures]) -> f64 {
    let mut numbers: Vec<f64> = figures.iter().map(|figures| figures.percentile(0.9)).collect();
    numbers.sort_by(f64::total_cmp);
    median(&numbers)
}

impl TraceResults {
    /// The recommended rules' p90 as a part of the best simple way's.
    fn regret(&self) -> f64 {
        let best =
            self.ways[1..=SIMPLE.len()].iter().map(|(_, figures)| p90(figures)).fold(f64::INFINITY, f64::min);
        p90(&self.ways[0].1) / best
    }
}

impl TraceTable {
    /// The table, in Markdown: medians over the seeds, and in brackets the least and the most.
    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| | way | p50 ms | p90 ms | p99 ms | % cached | busiest |\n|---|---|---|---|---|---|---|\n",
        );
        for trace in &self.0 {
            let mut name = format!("{}: {} requests, {:.2}/s", trace.name, trace.requests, trace.per_second);
            for (way, figures) in &trace.ways {
                let of = |figure: &dyn Fn(&Figures) -> f64| summary(figures.iter().map(figure).collect());
                let cells = [
                    core::mem::take(&mut name),
                    way.clone(),
                    of(&|figures| figures.percentile(0.5)),
                    of(&|figures| figures.percentile(0.9)),
                    of(&|figures| figures.percentile(0.99)),
                    of(&|figures| figures.cached() * 100.0),
                    of(&Figures::busiest),
                ];
                let _ = writeln!(text, "| {} |", cells.join(" | "));
            }
        }
        text
    }

    /// The generated traces with which the recommended rules miss their bar.
    pub fn missed(&self) -> Vec<String> {
        let missed = |trace: &TraceResults| {
            let (_, bar) = GENERATED.into_iter().find(|(name, _)| *name == trace.name)?;
            let regret = trace.regret();
            (regret > bar).then(|| format!("{}: {regret:.3} of the best simple way, bar {bar}", trace.name))
        };
        self.0.iter().filter_map(missed).collect()
    }
}
