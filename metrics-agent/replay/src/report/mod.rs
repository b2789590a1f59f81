//! The results of a replay as a table, as JSON and as a page.

mod page;
mod text;

use crate::fit::Fit;
use crate::record::{Record, ShadowCounts};
use crate::replay::{Replay, Results};
use crate::simulation::figures::Figures;
use metrics_agent_server_model::Allocation;
use serde::Serialize;
use std::time::Duration;

pub use page::page;

/// The results of a replay, as `--json` prints them.
#[derive(Debug, Serialize)]
pub struct Report {
    requests: usize,
    /// Lines of an access log that were no served prompts.
    passed_over: usize,
    load: f64,
    seeds: u64,
    limit_ms: Option<f64>,
    /// Decisions that did not act; absent: the record has none.
    shadow: Option<ShadowAgreement>,
    servers: FittedServers,
    /// Servers that the rules got.
    servers_replayed: usize,
    /// Differences of the repeated record to the record, as parts of the record's.
    differences: Vec<DifferenceReport>,
    /// Whether the replay can be trusted; absent without measurements in the record.
    is_trusted: Option<bool>,
    rows: Vec<ReportRow>,
}

#[derive(Debug, Serialize)]
struct FittedServers {
    prefill_tokens_per_second: f64,
    prefill_error: Option<f64>,
    /// Whether prompts are read without an effect on decoding.
    reads_apart: bool,
    step_ms: f64,
    step_ms_per_request: f64,
    step_us_per_context_token: f64,
    decode_error: Option<f64>,
    cache_tokens: u64,
    /// Whether responses stay in caches for later prompts.
    keeps_responses: bool,
    cache_error: Option<f64>,
    max_running: usize,
    shows_max_running: bool,
    each: Vec<OneServer>,
}

#[derive(Debug, Serialize)]
struct OneServer {
    endpoint: Option<String>,
    speed: f64,
    error: Option<f64>,
    is_described: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct ShadowAgreement {
    compared: usize,
    agreed: usize,
}

#[derive(Debug, Serialize)]
struct DifferenceReport {
    figure: &'static str,
    part: f64,
}

/// The figures of one way to pick: medians over the seeds, with the least and the most.
#[derive(Debug, Serialize)]
struct ReportRow {
    name: String,
    p50_ms: FigureRange,
    p90_ms: FigureRange,
    p99_ms: FigureRange,
    token_ms: FigureRange,
    tokens_per_second: FigureRange,
    cached: Option<FigureRange>,
    busiest: FigureRange,
    kept_limit: Option<FigureRange>,
    /// Share of the requests that the rules refused; the other figures are without them.
    refused: FigureRange,
    /// Milliseconds to the first token of each hundredth of the requests, with the first seed.
    percentiles_ms: Vec<f64>,
    /// Requests of each server, with the first seed.
    by_server: Vec<usize>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct FigureRange {
    median: f64,
    least: f64,
    most: f64,
}

impl FigureRange {
    fn of(figures: &[Figures], figure: impl Fn(&Figures) -> f64) -> Self {
        let mut numbers: Vec<f64> = figures.iter().map(figure).collect();
        numbers.sort_by(f64::total_cmp);
        let at = |place: usize| numbers.get(place).copied().unwrap_or(f64::NAN);
        let last = numbers.len().saturating_sub(1);
        Self { median: f64::midpoint(at(last / 2), at(numbers.len() / 2)), least: at(0), most: at(last) }
    }
}

impl ReportRow {
    fn new(name: &str, figures: &[Figures], limit: Option<Duration>) -> Self {
        let of = |figure: fn(&Figures) -> f64| FigureRange::of(figures, figure);
        let first = figures.first();
        let percentiles = first.map(|first| (1..100).map(|part| first.percentile(f64::from(part) / 100.0)));
        Self {
            name: name.to_owned(),
            p50_ms: of(|figures| figures.percentile(0.5)),
            p90_ms: of(|figures| figures.percentile(0.9)),
            p99_ms: of(|figures| figures.percentile(0.99)),
            token_ms: of(Figures::token_time),
            tokens_per_second: of(Figures::tokens_per_second),
            cached: figures.iter().any(Figures::has_lookups).then(|| of(Figures::cached)),
            busiest: of(Figures::busiest),
            kept_limit: limit.map(|limit| FigureRange::of(figures, |figures| figures.share_within(limit))),
            refused: of(Figures::share_refused),
            percentiles_ms: percentiles.into_iter().flatten().collect(),
            by_server: first.map(|first| first.by_server().to_vec()).unwrap_or_default(),
        }
    }
}

impl Report {
    /// The report of a replay.
    pub fn new(replay: &Replay<'_>, results: &Results) -> Self {
        let Replay { record, fit, load, seeds, limit, .. } = replay;
        let differences = results.differences();
        let is_trusted = differences.iter().all(crate::replay::Difference::is_trusted);
        let mut rows = Vec::new();
        let alone = |name: &str, figures: &Option<Figures>| {
            figures.as_ref().map(|figures| ReportRow::new(name, core::slice::from_ref(figures), *limit))
        };
        rows.extend(alone("recorded", &results.recorded));
        rows.extend(alone("recorded, replayed", &results.repeated));
        rows.extend(results.rules.iter().map(|(name, figures)| ReportRow::new(name, figures, *limit)));
        let ShadowCounts { compared, agreed } = record.shadow;
        Self {
            shadow: (compared > 0).then_some(ShadowAgreement { compared, agreed }),
            requests: record.requests.len(),
            passed_over: record.passed_over,
            load: *load,
            seeds: *seeds,
            limit_ms: limit.map(|limit| limit.as_secs_f64() * 1e3),
            servers: FittedServers::new(record, fit),
            servers_replayed: replay.fleet.servers.len(),
            is_trusted: (!differences.is_empty()).then_some(is_trusted),
            differences: differences
                .into_iter()
                .map(|difference| DifferenceReport { figure: difference.figure, part: difference.part })
                .collect(),
            rows,
        }
    }
}

impl FittedServers {
    fn new(record: &Record, fit: &Fit) -> Self {
        let times = &fit.fleet.times;
        let one = |(place, server): (usize, &crate::fit::ServerFit)| OneServer {
            endpoint: record.servers.get(place).cloned(),
            speed: 1.0 / server.slowness,
            error: server.error,
            is_described: server.is_described(),
        };
        Self {
            prefill_tokens_per_second: 1.0 / times.prefill_per_token.as_secs_f64().max(1e-9),
            prefill_error: fit.prefill_error,
            reads_apart: times.reads_apart,
            step_ms: times.step.as_secs_f64() * 1e3,
            step_ms_per_request: times.step_per_sequence.as_secs_f64() * 1e3,
            step_us_per_context_token: times.step_per_context_token.as_secs_f64() * 1e6,
            decode_error: fit.decode_error,
            cache_tokens: u64::from(times.kv_blocks) * u64::from(metrics_agent_server_model::BLOCK_TOKENS),
            keeps_responses: times.allocation == Allocation::AsNeeded,
            cache_error: fit.cache_error,
            max_running: times.max_running,
            shows_max_running: fit.shows_places,
            each: fit.servers.iter().enumerate().map(one).collect(),
        }
    }
}
