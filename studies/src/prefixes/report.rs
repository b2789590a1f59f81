//! The figures of all runs as tables.

use super::clients::{Outcomes, Served};
use super::prediction::Index;
use super::{CrashSample, EXACT_WITHIN, PrefixSample, PrefixSamples, Turn};
use crate::timed_servers::cached_share;
use endpoint_picker_bench::report::markdown::{met, table};
use endpoint_picker_bench::report::with_range;
use metrics_agent_replay::simulation::figures::percentile;
use std::fmt;
use std::time::{Duration, Instant};

/// The aim: part of the requests that the index of events may be off by more than a block.
const MAX_OFF: f64 = 0.05;

/// All runs.
pub(crate) struct PrefixTables<'a>(pub(crate) &'a PrefixSamples);

impl Outcomes {
    /// Milliseconds within which this part of the first tokens came.
    fn first_token(&self, part: f64) -> f64 {
        let mut times: Vec<Duration> = self.served.iter().map(|served| served.first_token).collect();
        times.sort_unstable();
        percentile(&times, part).as_secs_f64() * 1e3
    }
}

/// Requests with a prediction for which an index is off by more than a block, as a part of all with a
/// prediction; `None` of nothing.
fn off<'a>(served: impl IntoIterator<Item = &'a Served>, index: Index) -> Option<f64> {
    part(served, |served| Some(served.prediction.as_ref()?.is_off(index, served.prompt, served.cached)))
}

/// Requests whose prediction is by events, in the same way.
fn by_events<'a>(served: impl IntoIterator<Item = &'a Served>) -> Option<f64> {
    part(served, |served| Some(served.prediction.as_ref()?.is_by_events()))
}

/// The part of the known values that are true.
fn part<'a>(
    served: impl IntoIterator<Item = &'a Served>,
    value: impl Fn(&Served) -> Option<bool>,
) -> Option<f64> {
    let known: Vec<bool> = served.into_iter().filter_map(value).collect();
    let count = known.iter().filter(|is_true| **is_true).count();
    (!known.is_empty()).then(|| count as f64 / known.len() as f64)
}

fn percent(part: Option<f64>) -> String {
    part.map_or_else(|| "–".to_owned(), |part| format!("{:.1} %", part * 100.0))
}

impl Turn {
    /// Part of the prompts' tokens that the servers had cached.
    fn hits(&self) -> f64 {
        cached_share(self.tokens)
    }

    /// Tokens of the prompts that the servers computed, in thousands.
    fn computed(&self) -> f64 {
        (self.tokens.queried - self.tokens.hit) as f64 / 1e3
    }
}

impl PrefixSample {
    fn served(&self) -> impl Iterator<Item = &Served> {
        self.turns.iter().flat_map(|turn| &turn.outcomes.served)
    }

    /// The median of a figure over the turns, with the least and the most.
    fn figure(&self, of: impl Fn(&Turn) -> f64) -> String {
        with_range(self.turns.iter().map(of).collect())
    }

    fn row(&self) -> Vec<String> {
        let failed: usize = self.turns.iter().map(|turn| turn.outcomes.failures.len()).sum();
        let counts = [self.way.to_string(), self.served().count().to_string(), failed.to_string()];
        let off = Index::ALL.map(|index| percent(off(self.served(), index)));
        let figures = [
            self.figure(|turn| turn.hits() * 100.0),
            self.figure(Turn::computed),
            self.figure(|turn| turn.outcomes.first_token(0.5)),
            self.figure(|turn| turn.outcomes.first_token(0.9)),
        ];
        counts.into_iter().chain(off).chain(figures).collect()
    }
}

impl CrashSample {
    /// The times of the run: their names, and when they begin.
    fn times(&self) -> [(&'static str, Option<Instant>); 4] {
        [
            ("sent before a server is killed", None),
            ("until it is ready again", Some(self.killed)),
            ("the first 5 s from then on", Some(self.ready)),
            ("later", Some(self.ready + EXACT_WITHIN)),
        ]
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let times = self.times();
        let row = |(at, (name, begin)): (usize, &(&str, Option<Instant>))| {
            let end = times.get(at + 1).and_then(|(_, end)| *end);
            let is_in =
                |sent: Instant| begin.is_none_or(|begin| sent >= begin) && end.is_none_or(|end| sent < end);
            let served: Vec<&Served> =
                self.outcomes.served.iter().filter(|served| is_in(served.sent)).collect();
            let repeated = self.outcomes.repeated.iter().filter(|sent| is_in(**sent)).count();
            let shares = [off(served.iter().copied(), Index::Events), by_events(served.iter().copied())];
            let counts = [(*name).to_owned(), served.len().to_string(), repeated.to_string()];
            counts.into_iter().chain(shares.map(percent)).collect()
        };
        times.iter().enumerate().map(row).collect()
    }

    /// The part of the requests that are off after the time within which they have to be exact again.
    fn off_afterwards(&self) -> Option<f64> {
        let after = self.ready + EXACT_WITHIN;
        off(self.outcomes.served.iter().filter(|served| served.sent >= after), Index::Events)
    }
}

impl PrefixTables<'_> {
    fn ways(f: &mut fmt::Formatter<'_>, samples: &[PrefixSample]) -> fmt::Result {
        let head = [
            "",
            "requests",
            "failed",
            "off by events",
            "off by sent prompts",
            "the same with the EPP's capacity",
            "hits, %",
            "computed, 1000 tokens",
            "first token, p50 ms",
            "p90 ms",
        ];
        table(f, &head, samples.iter().map(PrefixSample::row))
    }

    /// The share that the index of events is off for, next to its aim.
    fn aim(off: Option<f64>) -> String {
        let is_met = off.map_or("not measured", |off| met(off <= MAX_OFF));
        format!("{} (aim: at most {:.0} %, {is_met})", percent(off), MAX_OFF * 100.0)
    }

    fn crash(f: &mut fmt::Formatter<'_>, sample: &CrashSample) -> fmt::Result {
        let CrashSample { outcomes, killed, ready } = sample;
        let head = ["", "requests", "repeated by the client", "off by events", "matched by events"];
        table(f, &head, sample.rows())?;
        let (took, from) = ((*ready - *killed).as_secs_f64(), EXACT_WITHIN.as_secs_f64());
        writeln!(
            f,
            "The server was killed with SIGKILL, and ready again after {took:.0} s. {} requests failed.",
            outcomes.failures.len()
        )?;
        writeln!(f, "Off by events from {from:.0} s on: {}.\n", Self::aim(sample.off_afterwards()))
    }
}

impl fmt::Display for PrefixTables<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(PrefixSamples { servers, crash, ranks }) = self;
        writeln!(
            f,
            "*Off*: part of the requests for whose server an index had other cached blocks of the prompt than the response reports, by more than \
             a block of 64 tokens. *Hits*: part of the prompts' tokens by `vllm:prefix_cache_hits_total`; *computed*: the others, of a turn. \
             Figures are medians of the turns, with the least and the most.\n"
        )?;
        if !servers.is_empty() {
            writeln!(f, "### Two servers\n")?;
            Self::ways(f, servers)?;
            let served = servers.iter().flat_map(PrefixSample::served);
            writeln!(f, "Off by events, all together: {}.\n", Self::aim(off(served, Index::Events)))?;
        }
        if let Some(crash) = crash {
            writeln!(f, "### A server is killed\n")?;
            Self::crash(f, crash)?;
        }
        if !ranks.is_empty() {
            writeln!(f, "### Two data-parallel ranks of one server\n")?;
            Self::ways(f, ranks)?;
        }
        let of_ways = servers.iter().chain(ranks).flat_map(|PrefixSample { way, turns }| {
            turns.iter().map(|turn| (way.to_string(), &turn.outcomes))
        });
        let runs = of_ways.chain(crash.iter().map(|sample| ("killed".to_owned(), &sample.outcomes)));
        for (run, outcomes) in runs {
            for failure in &outcomes.failures {
                writeln!(f, "Not served ({run}): {failure}\n")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { served, failures, repeated } = self;
        let off = Index::ALL.map(|index| percent(off(served, index))).join(", ");
        write!(
            f,
            "{} requests, {} failed, {} repeated; off {off}; ",
            served.len(),
            failures.len(),
            repeated.len()
        )?;
        write!(f, "first token {:.0} / {:.0} ms", self.first_token(0.5), self.first_token(0.9))
    }
}

impl fmt::Display for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} % cached, {:.0} 000 tokens computed, {}",
            self.hits() * 100.0,
            self.computed(),
            self.outcomes
        )
    }
}
