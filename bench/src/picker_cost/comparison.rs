//! The measurements of two proxies, as rows of the table.

use super::proxy_pair::{Prompts, ProxyPair};
use super::turns::{Round, Turn, rounds};
use crate::load::wrk::WrkLoad;
use crate::report::table::Row;
use crate::report::{median, rounded};
use anyhow::{Result, ensure};
use endpoint_picker_harness::statistics::PickerStatistics;
use std::time::Duration;

const SATURATING: WrkLoad = WrkLoad::Saturating { connections: 32 };
const STEADY_RATE: u32 = 300;
const STEADY: WrkLoad = WrkLoad::Steady { per_second: STEADY_RATE };

const ABSTAINED: &str = r#"abstained{pool="default",reason="no_snapshot"}"#;

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundPlan {
    /// Rounds for each kind of load; in each, both proxies have a turn.
    pub(crate) rounds: u32,
    /// How long a turn lasts; whole seconds.
    pub(crate) turn: Duration,
}

/// How the figure with the picker is compared with the baseline's, and the bound.
#[derive(Clone, Copy, Debug)]
enum Comparison {
    Ratio { least: f64 },
    Added { most: Option<f64> },
}

impl ProxyPair {
    /// Measures the cost of a request. Fails when a request fails, or the picker abstains.
    pub(crate) async fn requests(&self, plan: RoundPlan) -> Result<Vec<Row>> {
        self.warm_up(plan)?;
        let abstained = self.abstained().await?;
        let saturated = rounds(self.both(), SATURATING, plan.rounds, plan.turn)?;
        let steady = rounds(self.both(), STEADY, plan.rounds, plan.turn)?;
        let abstained = self.abstained().await? - abstained;
        ensure!(abstained == 0, "the picker abstained {abstained} times while it was measured");

        let endpoints = self.endpoints();
        let saturated = |what, figure, comparison| {
            row(format!("{endpoints} endpoints, saturated: {what}"), &saturated, figure, comparison)
        };
        let steady = |what, figure, comparison| {
            row(format!("{endpoints} endpoints, {STEADY_RATE} req/s: {what}"), &steady, figure, comparison)
        };
        Ok(vec![
            saturated("req/s", |turn| turn.figures.rate(), Comparison::Ratio { least: 0.85 }),
            saturated("processor us per req", |turn| micros(turn.cpu), Comparison::Added { most: None }),
            steady("p50 us", |turn| micros(turn.figures.p50), Comparison::Added { most: Some(100.0) }),
            steady("p99 us", |turn| micros(turn.figures.p99), Comparison::Added { most: None }),
        ])
    }

    /// Requests that the picker left to Envoy, without those of the last second.
    async fn abstained(&self) -> Result<u64> {
        Ok(PickerStatistics::of(&self.picker.envoy).await?.count(ABSTAINED))
    }

    /// Measures the rate of answers of 1 000 chunks.
    pub(crate) fn streamed_answers(&mut self, plan: RoundPlan) -> Result<Row> {
        self.send(Prompts::Streamed);
        self.warm_up(plan)?;
        let rounds = rounds(self.both(), SATURATING, plan.rounds, plan.turn)?;
        let comparison = Comparison::Ratio { least: 0.97 };
        Ok(row("answers of 1 000 chunks: req/s".to_owned(), &rounds, |turn| turn.figures.rate(), comparison))
    }

    /// Measures what sharing costs the workers, with repeated prompts and with new ones.
    pub(crate) fn sharing(&mut self, plan: RoundPlan, workers: u32) -> Result<Vec<Row>> {
        let repeated = self.sharing_of("repeated prompts", plan, workers)?;
        self.send(Prompts::New);
        Ok(vec![repeated, self.sharing_of("new prompts", plan, workers)?])
    }

    fn sharing_of(&self, prompts: &str, plan: RoundPlan, workers: u32) -> Result<Row> {
        self.warm_up(plan)?;
        let rounds = rounds(self.both(), SATURATING, plan.rounds, plan.turn)?;
        let endpoints = self.endpoints();
        let what = format!(
            "{workers} workers, {endpoints} endpoints, {prompts}, alone and sharing: processor us per req"
        );
        Ok(row(what, &rounds, |turn| micros(turn.cpu), Comparison::Added { most: Some(5.0) }))
    }

    /// Opens connections to every endpoint and fills the prefix index.
    fn warm_up(&self, plan: RoundPlan) -> Result<()> {
        rounds(self.both(), SATURATING, 1, plan.turn).map(drop)
    }
}

fn row(what: String, rounds: &[Round], figure: fn(&Turn) -> f64, comparison: Comparison) -> Row {
    let of = |proxy: fn(&Round) -> &Turn| median(rounds.iter().map(|round| figure(proxy(round))).collect());
    let (baseline, picker) = (of(|round| &round.baseline), of(|round| &round.picker));
    let compared = rounds.iter().map(|round| match comparison {
        Comparison::Ratio { .. } => figure(&round.picker) / figure(&round.baseline),
        Comparison::Added { .. } => figure(&round.picker) - figure(&round.baseline),
    });
    let least = compared.clone().fold(f64::INFINITY, f64::min);
    let most = compared.clone().fold(f64::NEG_INFINITY, f64::max);
    let middle = median(compared.collect());
    let (sign, aim, is_met) = match comparison {
        Comparison::Ratio { least } => ("x ", format!(">= x {least}"), Some(middle >= least)),
        Comparison::Added { most: Some(most) } => ("+ ", format!("<= + {most}"), Some(middle <= most)),
        Comparison::Added { most: None } => ("+ ", String::new(), None),
    };
    let compared = format!("{sign}{} ({} to {})", rounded(middle), rounded(least), rounded(most));
    Row { what, baseline: rounded(baseline), picker: rounded(picker), compared, aim, is_met }
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}
